// What neuron does not do, and says by name: quantized and mkldnn tensors, operators without a kernel for the
// CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include "bridge/dispatch/op_info.h"

namespace neuron::bridge {

// Strided, and neither nested nor quantized.
bool is_plain(const at::Tensor& tensor);
// Raise NotImplementedError with the operator's name and what to do.
void check_layout(const char* op, const at::Tensor& tensor);
void check_has_cpu_kernel(const OpInfo& info);

}  // namespace neuron::bridge
