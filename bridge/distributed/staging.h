// Staging: the buffers that a collective works on, for tensors as the user has them.
//
// A contiguous tensor in device memory is its own buffer. One that is strided, conjugated, or lies outside
// the heap (on another device, where NEURON_EMU_LIMITS=extended allows that) is copied to a contiguous buffer
// in logical order before the collective, and back after it: the "preparation step" that the specification
// allows. All copies are enqueued on the current stream.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "engine/device/stream.h"

namespace neuron::bridge {

// Contiguous, plain, and in the device's memory: the engine may work on it as it is.
bool is_its_own_buffer(const at::Tensor& tensor, c10::DeviceIndex device);
// A new buffer of the tensor's shape on the device; with its values, in logical order, copied on the current
// stream.
at::Tensor contiguous_buffer(const at::Tensor& tensor, c10::DeviceIndex device);
at::Tensor contiguous_copy(const at::Tensor& tensor, c10::DeviceIndex device);
// Enqueues the copy of a buffer to the user's tensor on the current stream. Not differentiated.
void copy_back(const at::Tensor& tensor, const at::Tensor& buffer);
// Raises ValueError when elements of an output share memory (expand()).
void check_no_overlap(const at::Tensor& tensor, const char* call);

class Staging {
 public:
  // Of a group on this device.
  explicit Staging(c10::DeviceIndex device) : device_(device) {}

  // The values of `tensor` as a contiguous buffer to read from. Valid until the collective has run (given
  // record_uses()). Null when it has no elements.
  const void* input(const at::Tensor& tensor);
  // A contiguous buffer whose contents the tensor gets by copy_back(). With `in_place` it holds the tensor's
  // values. Checks for overlap.
  void* output(const at::Tensor& tensor, bool in_place, const char* call);

  // After submission: every buffer is kept from reuse until `stream` has completed `position`.
  void record_uses(Stream& stream, StreamPosition position) const;
  // Enqueues the copies to the user's tensors on the current stream, which must be ordered after the
  // collective. Returns false when there are none.
  bool copy_back() const;

 private:
  struct Copy {
    at::Tensor tensor;
    at::Tensor buffer;
  };
  c10::DeviceIndex device_;
  c10::SmallVector<at::Tensor, 4> buffers_;
  c10::SmallVector<Copy, 1> back_;
};

}  // namespace neuron::bridge
