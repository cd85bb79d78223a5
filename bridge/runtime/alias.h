// Alias: a CPU tensor over device memory, for the kernels that run a command.
//
// An alias owns nothing, never reaches Python, and is retargeted in place when its command is used again. The
// one that submits keeps the memory alive (see allocator.h: same-stream order, record_use for others).
#pragma once

#include <ATen/core/Tensor.h>

namespace neuron::bridge {

// A CPU tensor with the sizes, strides, dtype and conj/neg bits of `tensor`, over the same bytes.
at::Tensor make_alias(const at::Tensor& tensor);
// The same over `data`, of which `nbytes` may be touched.
at::Tensor make_alias(void* data, std::size_t nbytes, at::IntArrayRef sizes, at::IntArrayRef strides,
                      at::ScalarType dtype);

// Points the alias to other bytes; sizes, strides and dtype stay.
void retarget(const at::Tensor& alias, void* data);
// Kernels may turn the lazy conjugate and negative bits of a tensor that they write to; the tensor behind the
// alias keeps its own. Brings the memory in line with them.
void restore_lazy_bits(const at::Tensor& alias, bool conj, bool neg);

// Bytes from the tensor's first element to the end of its furthest one.
std::size_t extent_bytes(at::IntArrayRef sizes, at::IntArrayRef strides, std::size_t itemsize);

}  // namespace neuron::bridge
