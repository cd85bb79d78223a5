// call_site: the Python lines that made the device memory change, for the memory history.
#pragma once

#include "bridge/runtime/python_stack.h"
#include "engine/device/memory_history.h"

namespace neuron::bridge {

// Of the calling thread; null on threads that Python does not know, such as a stream's. Takes Python's global
// lock.
CallSite call_site();
// Requires: `site` came from call_site(), and is not null.
const PythonStack& stack_of(const CallSite& site);

}  // namespace neuron::bridge
