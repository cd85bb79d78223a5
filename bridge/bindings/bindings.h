// The binding's parts. Each adds its names to the module; conversions only.
#pragma once

#include <pybind11/pybind11.h>

namespace neuron::bridge {

void bind_device(pybind11::module_& module);
void bind_memory(pybind11::module_& module);
void bind_memory_history(pybind11::module_& module);
void bind_streams(pybind11::module_& module);
void bind_dispatch(pybind11::module_& module);
void bind_environment(pybind11::module_& module);
void bind_distributed(pybind11::module_& module);

}  // namespace neuron::bridge
