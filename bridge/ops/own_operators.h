// The aten operators that bridge/ops writes out: those that make, view, move or read device memory.
#pragma once

#include <ATen/core/operator_name.h>

namespace neuron::bridge {

bool is_own_operator(const c10::OperatorName& name);

}  // namespace neuron::bridge
