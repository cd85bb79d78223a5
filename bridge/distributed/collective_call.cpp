#include "bridge/distributed/collective_call.h"

#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <optional>
#include <utility>

#include "bridge/distributed/dtype_map.h"
#include "bridge/distributed/path.h"
#include "bridge/runtime/errors.h"
#include "bridge/runtime/python_stack.h"
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
      staging_(context.device),
      recorded_(FlightRecorder::get().enabled()) {}

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
  if (recorded_) input_shapes_.add(tensor);
  current().input = staging_.input(tensor);
  return *this;
}

CollectiveCall& CollectiveCall::input_parts(const std::vector<at::Tensor>& tensors) {
  if (recorded_) input_shapes_.add_parts(tensors, uneven_parts());
  for (const at::Tensor& tensor : tensors) {
    show(tensor);
    current().input_parts.push_back({const_cast<void*>(staging_.input(tensor)), count_of(tensor)});
  }
  return *this;
}

CollectiveCall& CollectiveCall::output(const at::Tensor& tensor) {
  if (recorded_) output_shapes_.add(tensor);
  current().output = staging_.output(tensor, /*in_place=*/false, context_.name);
  outputs_.push_back(tensor);
  return *this;
}

CollectiveCall& CollectiveCall::output_parts(const std::vector<at::Tensor>& tensors) {
  if (recorded_) output_shapes_.add_parts(tensors, uneven_parts());
  for (const at::Tensor& tensor : tensors) {
    current().output_parts.push_back(
        {staging_.output(tensor, /*in_place=*/false, context_.name), count_of(tensor)});
    outputs_.push_back(tensor);
  }
  return *this;
}

CollectiveCall& CollectiveCall::in_place(const at::Tensor& tensor) {
  show(tensor);
  if (recorded_) {
    input_shapes_.add(tensor);
    output_shapes_.add(tensor);
  }
  current().output = staging_.output(tensor, /*in_place=*/true, context_.name);
  current().input = current().output;
  outputs_.push_back(tensor);
  return *this;
}

CollectiveCall& CollectiveCall::input_slices(const at::Tensor& tensor,
                                             const std::vector<std::size_t>& counts) {
  show(tensor);
  if (recorded_) input_shapes_.add(tensor);
  current().input_parts = slices(staging_.input(tensor), tensor.itemsize(), counts);
  return *this;
}

CollectiveCall& CollectiveCall::output_slices(const at::Tensor& tensor,
                                              const std::vector<std::size_t>& counts) {
  if (recorded_) output_shapes_.add(tensor);
  current().output_parts =
      slices(staging_.output(tensor, /*in_place=*/false, context_.name), tensor.itemsize(), counts);
  outputs_.push_back(tensor);
  return *this;
}

CollectiveCall& CollectiveCall::splits(const std::vector<std::int64_t>& input,
                                       const std::vector<std::int64_t>& output) {
  if (at::hasCallbacks()) {
    input_splits_ = input;
    output_splits_ = output;
  }
  return *this;
}

CollectiveCall& CollectiveCall::wait_on_host() {
  host_wait_ = WorkNeuron::HostWait::kAlways;
  return *this;
}

// The sum over all ranks of what an all-to-all gives and gets must agree, the parts of the others one by one.
TensorShapes::Uneven CollectiveCall::uneven_parts() const {
  return requests_.back().kind == CollectiveKind::kAllToAll ? TensorShapes::Uneven::kOneRow
                                                            : TensorShapes::Uneven::kOneByOne;
}

void CollectiveCall::record(const std::shared_ptr<RecordedGroup>& group, const std::shared_ptr<Work>& work,
                            PythonStack stack) {
  const CollectiveKind kind = work->summary().kind;
  // In PyTorch's records these two work in place on every rank.
  if (kind == CollectiveKind::kBroadcast && input_shapes_.empty()) input_shapes_ = output_shapes_;
  if (kind == CollectiveKind::kReduce && output_shapes_.empty()) output_shapes_ = input_shapes_;
  FlightRecord made;
  made.works.push_back(work);
  made.name = std::strchr(title_, ':') + 1;
  made.collective = work->sequence();
  made.inputs = std::move(input_shapes_);
  made.outputs = std::move(output_shapes_);
  made.stack = std::move(stack);
  made.timeout = timeout_;
  FlightRecorder::get().add(group, std::move(made));
}

CommsCall CollectiveCall::profiled_call(std::uint64_t sequence) const {
  CommsCall call;
  call.name = comms_name(type_);
  call.rank = context_.rank;
  call.sequence = static_cast<std::int64_t>(sequence);
  call.async = async_;
  // Broadcast and reduce work in place on every rank, as profilers see it.
  call.inputs = profiled_.empty() ? outputs_ : profiled_;
  call.outputs = outputs_.empty() ? profiled_ : outputs_;
  call.input_splits = input_splits_;
  call.output_splits = output_splits_;
  return call;
}

WorkParts CollectiveCall::submit(Communicator& communicator, const std::shared_ptr<RecordedGroup>& group) {
  const bool profiled = at::hasCallbacks();
  std::optional<CommsRecord> comms;
  if (profiled) comms.emplace(*group, profiled_call(communicator.next_sequence()));
  const Path path = choose_path(requests_.front().kind, context_.device, context_.name);
  PythonStack stack = python_stack(FlightRecorder::get().stack_depth());
  requests_.front().origin = users_line(stack);
  const std::shared_ptr<Work> work = value_or_raise(
      requests_.size() > 1
          ? communicator.submit_coalesced(*path.submitting, *path.target, std::move(requests_))
      : path.submitting == path.target
          ? communicator.submit(*path.target, std::move(requests_.front()))
          : communicator.submit_routed(*path.submitting, *path.target, std::move(requests_.front())));
  if (recorded_) record(group, work, std::move(stack));
  staging_.record_uses(*work->stream(), work->position());
  WorkParts parts;
  parts.works.push_back(work);
  parts.outputs = std::move(outputs_);
  if (profiled) parts.profiled_group = group;
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
  if (async_ && !work->future_is_stacked()) work->complete_future();
  return work;
}

}  // namespace neuron::bridge
