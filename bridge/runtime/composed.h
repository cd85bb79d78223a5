// Composed tensors: those that are no memory of their own, but are made of strided tensors: sparse ones (COO, CSR
// and its kin) of indices and values, nested ones of the strided layout of a buffer.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

namespace neuron::bridge {

// The tensor that takes a part's place.
using PartMap = c10::function_ref<at::Tensor(const at::Tensor&)>;

bool is_composed(const at::Tensor& tensor);

// The same tensor made of other parts; it is where they are. Requires: is_composed(tensor).
at::Tensor rebuild(const at::Tensor& tensor, PartMap map);

// Gives `target` sizes and parts of `source`, which is of the same layout: what a kernel that writes to such a
// tensor has made of it.
void adopt(const at::Tensor& target, const at::Tensor& source, PartMap map);

}  // namespace neuron::bridge
