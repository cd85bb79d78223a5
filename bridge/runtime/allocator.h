// Allocator: device memory for torch's storages.
//
// A storage's data pointer carries its Block as context, so that any tensor leads to its block in one load.
// Blocks are allocated for the current stream of the allocating thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

#include "engine/device/block_pool.h"
#include "engine/device/stream.h"

namespace neuron::bridge {

c10::DeviceAllocator& device_allocator();

// Device memory of `nbytes` for `stream`. Raises torch.OutOfMemoryError.
c10::DataPtr allocate_on(Stream& stream, std::size_t nbytes);

// The block behind a data pointer or tensor; null when it is not device memory of ours (or empty).
Block* block_of(const c10::DataPtr& data);
Block* block_of(const at::Tensor& tensor);

// Keeps the tensor's memory from reuse until `stream` has completed `position`, whatever is freed before.
void record_use(const at::Tensor& tensor, Stream& stream, StreamPosition position);
void record_use(Block* block, Stream& stream, StreamPosition position);
// Tensor.record_stream: all that `stream` has been given so far.
void record_stream(const c10::DataPtr& data, const c10::Stream& stream);

}  // namespace neuron::bridge
