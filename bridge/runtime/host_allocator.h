// Pinned host memory: page-aligned blocks that an asynchronous copy may read and write after the call
// returned.
//
// A freed block is given out again only when every stream that was recorded on it has passed its copy.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

#include "engine/device/stream.h"

namespace neuron::bridge {

at::HostAllocator& host_allocator();

bool is_pinned(const void* pointer);
// Keeps the pinned block that contains `pointer` until `stream` has completed `position`. False: not pinned.
bool record_host_use(const void* pointer, Stream& stream, StreamPosition position);

}  // namespace neuron::bridge
