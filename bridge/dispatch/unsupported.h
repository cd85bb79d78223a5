// What neuron does not do, and says by name: tensors that are not plain and strided, operators without a kernel
// for the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include "bridge/dispatch/op_info.h"

namespace neuron::bridge {

bool is_plain(const at::Tensor& tensor);
// Raise NotImplementedError with the operator's name and what to do.
void check_plain(const char* op, const at::Tensor& tensor);
void check_has_cpu_kernel(const OpInfo& info);

}  // namespace neuron::bridge
