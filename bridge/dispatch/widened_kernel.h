// Widened kernels: element types that the product's users may give to an operator, as on CUDA, and that its CPU kernel
// lacks. Such a call runs in a wider type, and its results are rounded to the type that was given.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <optional>

namespace neuron::bridge {

// For an operator whose CPU kernel lacks types that CUDA's has: the kernel that widens them and calls the operator
// again. Calls in other types go through plans as ever.
std::optional<torch::CppFunction> widened_kernel(const c10::OperatorHandle& op);

}  // namespace neuron::bridge
