// Operators on sparse and nested tensors: they run the CPU's kernels, on the caller, on aliases of the parts.
#pragma once

#include <torch/library.h>

namespace neuron::bridge {

// Runs the operator with the kernel that the CPU has for `key`; refuses by name when there is none. `what` names
// the tensors.
void run_composed(const c10::OperatorHandle& op, c10::DispatchKey cpu_key, const char* what,
                  torch::jit::Stack& stack);

// A kernel for each operator of PyTorch that has one for `cpu_key` and none yet for `key`: composite ones would
// come first, and ask for what the device does otherwise.
void register_composed(torch::Library& library, c10::DispatchKey key, c10::DispatchKey cpu_key,
                       torch::CppFunction (*kernel)());

}  // namespace neuron::bridge
