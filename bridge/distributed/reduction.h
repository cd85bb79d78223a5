// reduction: c10d's ReduceOp in the engine's words.
#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "engine/collectives/collective.h"

namespace neuron::bridge {

struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  double factor = 1.0;       // PREMUL_SUM with a number
  at::Tensor factor_tensor;  // PREMUL_SUM with a tensor: one element of the reduced type, in device memory
};

// For a reduction of tensors like `reduced`. Checks the rule about operators that the product lacks; raises
// ValueError for an operator that there is not.
Reduction translate(const c10d::ReduceOp& op, const at::Tensor& reduced, const char* call);

}  // namespace neuron::bridge
