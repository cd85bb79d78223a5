// Storage resize, as Tensor.resize_, UntypedStorage.resize_ and FSDP2's free and re-allocate do it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

namespace neuron::bridge {

// Gives the storage new memory of `nbytes` for the current stream, with the common prefix copied in stream
// order; the old block is freed (commands in flight keep what they use). 0 frees the memory.
void resize_storage(c10::StorageImpl& storage, std::size_t nbytes);

// Gives an out= tensor the sizes and strides that the CPU's kernel gives it.
void resize_out(const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides);

}  // namespace neuron::bridge
