#include "bridge/distributed/staging.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "bridge/runtime/allocator.h"

namespace neuron::bridge {

namespace {

bool is_its_own_buffer(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() && block_of(tensor) != nullptr;
}

at::Tensor contiguous_buffer(const at::Tensor& tensor) { return at::empty(tensor.sizes(), tensor.options()); }

}  // namespace

const void* Staging::input(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return nullptr;
  if (is_its_own_buffer(tensor)) {
    buffers_.push_back(tensor);
    return tensor.const_data_ptr();
  }
  // Communication is not differentiated: copies must not be recorded by autograd.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor buffer = contiguous_buffer(tensor);
  buffer.copy_(tensor);
  buffers_.push_back(buffer);
  return buffer.const_data_ptr();
}

void* Staging::output(const at::Tensor& tensor, bool in_place, const char* call) {
  if (tensor.numel() == 0) return nullptr;
  if (is_its_own_buffer(tensor)) {
    buffers_.push_back(tensor);
    return tensor.data_ptr();
  }
  TORCH_CHECK_VALUE(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, call,
                    ": several elements of an output share one place in memory (expand()); clone() it first");
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor buffer = contiguous_buffer(tensor);
  if (in_place) buffer.copy_(tensor);
  buffers_.push_back(buffer);
  back_.push_back({tensor, buffer});
  return buffer.data_ptr();
}

void Staging::record_uses(Stream& stream, StreamPosition position) const {
  for (const at::Tensor& buffer : buffers_) record_use(buffer, stream, position);
}

bool Staging::copy_back() const {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const Copy& copy : back_) copy.tensor.copy_(copy.buffer);
  return !back_.empty();
}

}  // namespace neuron::bridge
