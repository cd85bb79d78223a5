// Copies between host and device, and within the device.
//
// On one device: a command. Device to host: waits for the current stream, unless the target is pinned and the
// call non_blocking. Host to device: a command on a snapshot when the source is small, on the source itself
// when it is pinned and the call non_blocking; else waits, as the caller may change its memory as soon as we
// return.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <cstring>

#include "bridge/dispatch/kernel_scope.h"
#include "bridge/dispatch/tensors_in.h"
#include "bridge/runtime/alias.h"
#include "bridge/runtime/allocator.h"
#include "bridge/runtime/devices.h"
#include "bridge/runtime/host_allocator.h"
#include "bridge/runtime/streams.h"
#include "engine/base/env.h"

namespace neuron::bridge {

namespace {

// Sources up to this size are snapshot, so that the host need not wait for the stream.
constexpr std::size_t kSnapshotBytes = std::size_t{1} << 20;

void copy_now(const at::Tensor& destination, const at::Tensor& source, int threads) {
  const KernelScope scope(threads);
  if (destination.scalar_type() == source.scalar_type() && destination.is_contiguous() &&
      source.is_contiguous() && destination.is_neg() == source.is_neg() &&
      destination.is_conj() == source.is_conj()) {
    if (destination.numel() > 0)
      std::memmove(destination.data_ptr(), source.const_data_ptr(), source.nbytes());
    return;
  }
  destination.copy_(source);
}

class CopyCommand final : public Command {
 public:
  // Both on the CPU (aliases, or memory that the command or the pinned pool owns).
  CopyCommand(at::Tensor destination, at::Tensor source)
      : Command(CommandKind::kCopy, RunMode::kMayInline, "aten::copy_"),
        destination_(std::move(destination)),
        source_(std::move(source)),
        threads_(intra_op_threads()) {
    set_traffic_bytes(destination_.nbytes() + source_.nbytes());
  }
  Status run(Stream& /*stream*/) override {
    copy_now(destination_, source_, threads_);
    return Status::ok();
  }

 private:
  at::Tensor destination_, source_;
  int threads_;
};

StreamPosition enqueue(Stream& stream, at::Tensor destination, at::Tensor source,
                       std::size_t held_bytes = 0) {
  auto command = std::make_unique<CopyCommand>(std::move(destination), std::move(source));
  command->set_held_bytes(held_bytes);
  const StreamPosition position = submit(stream, std::move(command));
  if (env().launch_blocking) synchronize(stream);
  return position;
}

void copy_within_device(const at::Tensor& destination, const at::Tensor& source) {
  Stream& stream = current_stream(destination.device().index());
  const StreamPosition position = enqueue(stream, make_alias(destination), make_alias(source));
  record_use(destination, stream, position);
  record_use(source, stream, position);
}

// Peer copy: on the source's stream order first, then on the destination's; the source waits for the copy's
// end before it may be overwritten, as CUDA's peer copies do.
void copy_across_devices(const at::Tensor& destination, const at::Tensor& source) {
  Stream& to = current_stream(destination.device().index());
  Stream& from = current_stream(source.device().index());
  to.wait_for(from, from.submitted());
  const StreamPosition position = enqueue(to, make_alias(destination), make_alias(source));
  record_use(destination, to, position);
  record_use(source, to, position);
  from.wait_for(to, position);
}

void copy_to_device(const at::Tensor& destination, const at::Tensor& source, bool non_blocking) {
  Stream& stream = current_stream(destination.device().index());
  if (non_blocking && source.is_contiguous() && source.numel() > 0 && is_pinned(source.const_data_ptr())) {
    const StreamPosition position = enqueue(stream, make_alias(destination), make_alias(source));
    record_host_use(source.const_data_ptr(), stream, position);
    record_use(destination, stream, position);
    return;
  }
  if (source.nbytes() <= kSnapshotBytes && !stream.query()) {
    const KernelScope scope(0);
    at::Tensor snapshot = at::empty_like(source, source.options().pinned_memory(false).requires_grad(false));
    copy_now(snapshot, source, 0);
    const std::size_t held = snapshot.nbytes();
    record_use(destination, stream, enqueue(stream, make_alias(destination), std::move(snapshot), held));
    return;
  }
  synchronize(stream);
  copy_now(make_alias(destination), source, 0);
}

void copy_to_host(const at::Tensor& destination, const at::Tensor& source, bool non_blocking) {
  Stream& stream = current_stream(source.device().index());
  if (non_blocking && destination.numel() > 0 && is_pinned(destination.const_data_ptr())) {
    const StreamPosition position = enqueue(stream, make_alias(destination), make_alias(source));
    record_host_use(destination.const_data_ptr(), stream, position);
    record_use(source, stream, position);
    return;
  }
  synchronize(stream);
  copy_now(destination, make_alias(source), 0);
}

void copy_between(const at::Tensor& destination, const at::Tensor& source, bool non_blocking) {
  if (destination.numel() == 0) return;
  if (on_device(destination) && on_device(source)) {
    if (destination.device() == source.device()) return copy_within_device(destination, source);
    return copy_across_devices(destination, source);
  }
  if (on_device(destination)) {
    TORCH_CHECK(source.device().is_cpu(), "neuron: cannot copy from ", source.device());
    return copy_to_device(destination, source, non_blocking);
  }
  TORCH_CHECK(destination.device().is_cpu(), "neuron: cannot copy to ", destination.device());
  copy_to_host(destination, source, non_blocking);
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.is_same(source)) return self;
  TORCH_CHECK(self.layout() == at::kStrided && source.layout() == at::kStrided,
              "neuron: copy_ takes strided tensors, got ", self.layout(), " and ", source.layout());
  at::assert_no_internal_overlap(self);
  at::assert_no_partial_overlap(self, source);
  copy_between(self, *at::expand_inplace(self, source, "copy_"), non_blocking);
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& destination, bool non_blocking) {
  copy_between(destination, *at::expand_inplace(destination, self, "_copy_from"), non_blocking);
  return destination;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& destination) {
  if (destination.sizes() != self.sizes()) destination.resize_(self.sizes());
  copy_between(destination, self, false);
  return destination;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("copy_", &copy_);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
}

}  // namespace

}  // namespace neuron::bridge
