// Errors: from the engine's Status and StreamError to the exceptions that PyTorch's users expect.
//
// kInvalidArgument -> ValueError; kOutOfMemory -> torch.OutOfMemoryError; group errors (kTimeout, kAborted,
// kPeerDied, kMismatch) -> torch.distributed.DistBackendError; everything else -> RuntimeError. What an ATen
// kernel threw on a stream keeps its own type, with the op's name added.
#pragma once

#include "engine/base/result.h"
#include "engine/base/status.h"
#include "engine/device/command.h"

namespace neuron::bridge {

[[noreturn]] void raise(const Status& status);
[[noreturn]] void raise(const StreamErrorPtr& error);

inline void raise_if_error(const Status& status) {
  if (!status.is_ok()) raise(status);
}
inline void raise_if_error(const StreamErrorPtr& error) {
  if (error) raise(error);
}

template <typename T>
T value_or_raise(Result<T> result) {
  if (!result.is_ok()) raise(result.status());
  return std::move(result).value();
}

}  // namespace neuron::bridge
