#include "bridge/distributed/collective_call.h"

#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include "bridge/distributed/dtype_map.h"
#include "bridge/distributed/path.h"
#include "bridge/distributed/python_origin.h"
#include "bridge/runtime/errors.h"
#include "engine/base/env.h"

namespace neuron::bridge {

namespace {

std::size_t count_of(const at::Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }

// Adjacent parts of one buffer.
template <typename Pointer>
std::vector<BufferPart> slices(Pointer* data, std::size_t itemsize, const std::vector<std::size_t>& counts) {
  std::vector<BufferPart> parts;
  parts.reserve(counts.size());
  auto* at = static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(data)));
  for (const std::size_t count : counts) {
    parts.push_back({at, count});
    at += count * itemsize;
  }
  return parts;
}

}  // namespace

CollectiveCall::CollectiveCall(const CallContext& context, c10d::OpType type, const char* title,
                               std::chrono::milliseconds timeout, bool async)
    : context_(context),
      type_(type),
      title_(title),
      timeout_(timeout),
      async_(async),
      staging_(context.device) {}

CollectiveCall& CollectiveCall::request(CollectiveKind kind, c10::ScalarType dtype, std::size_t count) {
  CollectiveRequest& added = requests_.emplace_back();
  added.kind = kind;
  added.dtype = movable_dtype(dtype);
  added.count = count;
  added.name = context_.name;
  if (timeout_.count() > 0) added.timeout = timeout_;
  return *this;
}

CollectiveCall& CollectiveCall::root(std::int64_t rank) {
  current().root = static_cast<int>(rank);
  return *this;
}

CollectiveCall& CollectiveCall::reduce_with(const Reduction& reduction) {
  current().op = reduction.op;
  current().factor = reduction.factor;
  if (reduction.factor_tensor.defined()) current().factor_element = staging_.input(reduction.factor_tensor);
  return *this;
}

void CollectiveCall::show(const at::Tensor& tensor) {
  if (at::hasCallbacks()) profiled_.push_back(tensor);
}

CollectiveCall& CollectiveCall::input(const at::Tensor& tensor) {
  show(tensor);
  current().input = staging_.input(tensor);
  return *this;
}

CollectiveCall& CollectiveCall::input_parts(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    show(tensor);
    current().input_parts.push_back({const_cast<void*>(staging_.input(tensor)), count_of(tensor)});
  }
  return *this;
}

CollectiveCall& CollectiveCall::output(const at::Tensor& tensor) {
  current().output = staging_.output(tensor, /*in_place=*/false, context_.name);
  outputs_.push_back(tensor);
  return *this;
}

CollectiveCall& CollectiveCall::output_parts(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    current().output_parts.push_back(
        {staging_.output(tensor, /*in_place=*/false, context_.name), count_of(tensor)});
    outputs_.push_back(tensor);
  }
  return *this;
}

CollectiveCall& CollectiveCall::in_place(const at::Tensor& tensor) {
  show(tensor);
  current().output = staging_.output(tensor, /*in_place=*/true, context_.name);
  current().input = current().output;
  outputs_.push_back(tensor);
  return *this;
}

CollectiveCall& CollectiveCall::input_slices(const at::Tensor& tensor,
                                             const std::vector<std::size_t>& counts) {
  show(tensor);
  current().input_parts = slices(staging_.input(tensor), tensor.itemsize(), counts);
  return *this;
}

CollectiveCall& CollectiveCall::output_slices(const at::Tensor& tensor,
                                              const std::vector<std::size_t>& counts) {
  current().output_parts =
      slices(staging_.output(tensor, /*in_place=*/false, context_.name), tensor.itemsize(), counts);
  outputs_.push_back(tensor);
  return *this;
}

CollectiveCall& CollectiveCall::wait_on_host() {
  host_wait_ = WorkNeuron::HostWait::kAlways;
  return *this;
}

WorkParts CollectiveCall::submit(Communicator& communicator) {
  const Path path = choose_path(requests_.front().kind, context_.device, context_.name);
  requests_.front().origin = python_origin();
  const std::shared_ptr<Work> work = value_or_raise(
      requests_.size() > 1
          ? communicator.submit_coalesced(*path.submitting, *path.target, std::move(requests_))
      : path.submitting == path.target
          ? communicator.submit(*path.target, std::move(requests_.front()))
          : communicator.submit_routed(*path.submitting, *path.target, std::move(requests_.front())));
  staging_.record_uses(*work->stream(), work->position());
  WorkParts parts;
  parts.works.push_back(work);
  parts.outputs = std::move(outputs_);
  // The submitting stream comes after the collective, also when that was routed.
  if (staging_.copy_back()) {
    parts.copied_on = path.submitting;
    parts.copied_at = path.submitting->submitted();
  }
  if (env().launch_blocking) raise_if_error(work->wait());
  return parts;
}

c10::intrusive_ptr<WorkNeuron> CollectiveCall::make_work(WorkParts parts) const {
  const bool profiled = at::hasCallbacks();
  std::optional<std::vector<at::Tensor>> inputs;
  if (profiled) inputs = profiled_.empty() ? parts.outputs : profiled_;
  auto work = c10::make_intrusive<WorkNeuron>(context_.rank, type_, profiled ? title_ : nullptr, inputs,
                                              host_wait_, context_.device);
  work->set_parts(std::move(parts));
  // A call that is waited for at once gives its Future to nobody.
  if (async_) work->complete_future();
  return work;
}

}  // namespace neuron::bridge
