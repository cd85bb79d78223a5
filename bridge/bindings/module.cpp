// neuron_emu._C: loading it registers the device with torch; the functions are what the Python face calls.
#include <torch/csrc/utils/pybind.h>

#include "bridge/bindings/bindings.h"
#include "bridge/runtime/cpu_allocator.h"
#include "bridge/runtime/inline_policy.h"

PYBIND11_MODULE(_C, module) {
  neuron::bridge::install_cpu_allocator();
  neuron::bridge::choose_inline_policy();
  module.attr("torch_version") = NEURON_TORCH_VERSION;
  neuron::bridge::bind_device(module);
  neuron::bridge::bind_memory(module);
  neuron::bridge::bind_memory_history(module);
  neuron::bridge::bind_streams(module);
  neuron::bridge::bind_dispatch(module);
  neuron::bridge::bind_environment(module);
  neuron::bridge::bind_distributed(module);
}
