// Storage resize, as Tensor.resize_, UntypedStorage.resize_ and FSDP2's free and re-allocate do it.
#pragma once

#include <c10/core/StorageImpl.h>

namespace neuron::bridge {

// Gives the storage new memory of `nbytes` for the current stream, with the common prefix copied in stream
// order; the old block is freed (commands in flight keep what they use). 0 frees the memory.
void resize_storage(c10::StorageImpl& storage, std::size_t nbytes);

}  // namespace neuron::bridge
