#include "bridge/distributed/staging.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "bridge/runtime/allocator.h"
#include "bridge/runtime/devices.h"

namespace neuron::bridge {

bool is_its_own_buffer(const at::Tensor& tensor, c10::DeviceIndex device) {
  return tensor.device().index() == device && tensor.is_contiguous() && !tensor.is_conj() &&
         !tensor.is_neg() && block_of(tensor) != nullptr;
}

at::Tensor contiguous_buffer(const at::Tensor& tensor, c10::DeviceIndex device) {
  return at::empty(tensor.sizes(), tensor.options().device(neuron_device(device)));
}

at::Tensor contiguous_copy(const at::Tensor& tensor, c10::DeviceIndex device) {
  at::Tensor buffer = contiguous_buffer(tensor, device);
  copy_back(buffer, tensor);
  return buffer;
}

void copy_back(const at::Tensor& tensor, const at::Tensor& buffer) {
  // Communication is not differentiated: copies must not be recorded by autograd.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  tensor.copy_(buffer);
}

void check_no_overlap(const at::Tensor& tensor, const char* call) {
  TORCH_CHECK_VALUE(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, call,
                    ": several elements of an output share one place in memory (expand()); clone() it first");
}

const void* Staging::input(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return nullptr;
  buffers_.push_back(is_its_own_buffer(tensor, device_) ? tensor : contiguous_copy(tensor, device_));
  return buffers_.back().const_data_ptr();
}

void* Staging::output(const at::Tensor& tensor, bool in_place, const char* call) {
  if (tensor.numel() == 0) return nullptr;
  if (is_its_own_buffer(tensor, device_)) {
    buffers_.push_back(tensor);
    return tensor.data_ptr();
  }
  check_no_overlap(tensor, call);
  buffers_.push_back(in_place ? contiguous_copy(tensor, device_) : contiguous_buffer(tensor, device_));
  back_.push_back({tensor, buffers_.back()});
  return buffers_.back().data_ptr();
}

void Staging::record_uses(Stream& stream, StreamPosition position) const {
  for (const at::Tensor& buffer : buffers_) record_use(buffer, stream, position);
}

bool Staging::copy_back() const {
  for (const Copy& copy : back_) bridge::copy_back(copy.tensor, copy.buffer);
  return !back_.empty();
}

}  // namespace neuron::bridge
