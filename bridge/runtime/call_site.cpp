#include "bridge/runtime/call_site.h"

#include <torch/csrc/utils/pybind.h>

#include <memory>

namespace neuron::bridge {

CallSite call_site() {
  // A stream's thread has no lines to tell, and must not wait for Python's lock.
  if (PyGILState_GetThisThreadState() == nullptr) return nullptr;
  const pybind11::gil_scoped_acquire gil;
  // Memory is freed while an exception is on its way, too.
  const pybind11::error_scope exception;
  return std::make_shared<const PythonStack>(python_stack(StackDepth::kWhole));
}

const PythonStack& stack_of(const CallSite& site) { return *static_cast<const PythonStack*>(site.get()); }

}  // namespace neuron::bridge
