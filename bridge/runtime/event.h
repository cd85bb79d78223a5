// DeviceEvent: what a c10::Event's opaque pointer points to.
#pragma once

#include "engine/device/event.h"

namespace neuron::bridge {

// The engine event behind a c10::Event's native pointer. Null when it was never recorded.
inline Event* engine_event(void* native) { return static_cast<Event*>(native); }

// Raises what the event's recording is poisoned with, after the host has waited for it.
void synchronize_event(const Event& event);
double elapsed_time(const Event& start, const Event& end);

}  // namespace neuron::bridge
