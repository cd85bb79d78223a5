#include "bridge/distributed/work_neuron.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/stack.h>
#include <ATen/record_function.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "bridge/distributed/comms_record.h"
#include "bridge/distributed/outcome_watcher.h"
#include "bridge/distributed/staging.h"
#include "bridge/runtime/allocator.h"
#include "bridge/runtime/devices.h"
#include "bridge/runtime/errors.h"
#include "bridge/runtime/streams.h"

namespace neuron::bridge {

WorkNeuron::WorkNeuron(int rank, c10d::OpType type, const char* title,
                       const std::optional<std::vector<at::Tensor>>& inputs, HostWait host_wait,
                       c10::DeviceIndex device)
    : c10d::Work(rank, type, title, inputs), host_wait_(host_wait), device_(device) {}

void WorkNeuron::set_parts(WorkParts parts) {
  parts_ = std::move(parts);
  // The span that torch's profiler sees is the submission, as it is for other asynchronous devices.
  if (recordFunctionEndCallback_) recordFunctionEndCallback_();
}

bool WorkParts::on_streams() const {
  return std::all_of(works.begin(), works.end(), [](const auto& work) { return work->stream() != nullptr; });
}

bool WorkNeuron::future_is_stacked() const {
  const auto& outputs = parts_.outputs;
  return opType_ == c10d::OpType::ALLGATHER && !outputs.empty() &&
         std::all_of(outputs.begin(), outputs.end(),
                     [&](const at::Tensor& output) { return output.sizes() == outputs.front().sizes(); });
}

// Requires: the current stream comes after the works.
at::Tensor WorkNeuron::stacked_outputs() const {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor stacked = at::stack(parts_.outputs);
  Stream& stream = current_stream(device_);
  for (const at::Tensor& output : parts_.outputs) record_use(output, stream, stream.submitted());
  return stacked;
}

void WorkNeuron::complete_future() {
  static const auto tensor_list = c10::ListType::ofTensors();
  // With the limits lifted, tensors may lie on other cores of the process.
  std::vector<c10::Device> devices{neuron_device(device_)};
  for (const at::Tensor& output : parts_.outputs) devices.push_back(output.device());
  auto future = c10::make_intrusive<c10::ivalue::Future>(tensor_list, std::move(devices));
  const bool stacked = future_is_stacked();
  std::optional<c10::StreamGuard> on_another;
  // The Future's events are recorded on the current stream, which messages must not hold up.
  if (!parts_.on_streams()) on_another.emplace(pool_c10_stream(device_, 0));
  // The copy is made there, too: what the user does to the outputs from now on comes after it.
  if (stacked || on_another) order_after(current_stream(device_));
  std::vector<at::Tensor> value = parts_.outputs;
  if (stacked) value = {stacked_outputs()};
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages;
  storages.reserve(value.size());
  for (const at::Tensor& tensor : value) storages.emplace_back(tensor.storage().getWeakStorageImpl());
  future->markCompleted(c10::IValue(std::move(value)), std::move(storages));
  future_ = std::move(future);
}

bool WorkNeuron::completed() const {
  const std::lock_guard lock(parts_mutex_);
  const auto done = [](const std::shared_ptr<EngineWork>& work) { return work->is_completed(); };
  return std::all_of(parts_.works.begin(), parts_.works.end(), done) &&
         (parts_.copied_on == nullptr || parts_.copied_on->reached(parts_.copied_at));
}

Status WorkNeuron::outcome() const {
  for (const auto& work : parts_.works) {
    if (Status status = work->status(); !status.is_ok()) return status;
  }
  return Status::ok();
}

bool WorkNeuron::isCompleted() {
  const bool waited_for = parts_.waited_for != nullptr && parts_.waited_for->load();
  const bool ended = waited_for || completed() || !outcome().is_ok();
  if (ended) note_waited();
  return ended;
}

void WorkNeuron::note_waited() const {
  if (parts_.waited_for) parts_.waited_for->store(true);
}

bool WorkNeuron::isSuccess() const { return completed() && outcome().is_ok(); }

std::exception_ptr WorkNeuron::exception() const {
  try {
    raise_if_error(outcome());
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void WorkNeuron::synchronize() {
  note_waited();
  // Then torch keeps works until somebody waits for their tensors; that has been done now.
  if (c10d::allow_inflight_collective_as_graph_input()) {
    c10d::unregister_work(c10::intrusive_ptr<c10d::Work>::unsafe_reclaim_from_nonowning(this));
  }
  order_after(current_stream(device_));
}

// Requires: `stream` is the current one.
void WorkNeuron::order_after(Stream& stream) {
  for (const auto& work : parts_.works) {
    if (work->stream() != &stream) work->order(stream);
  }
  const std::lock_guard lock(parts_mutex_);
  if (!parts_.late_copies.empty()) {
    for (const LateCopy& copy : parts_.late_copies) copy_back(copy.tensor, copy.buffer);
    parts_.late_copies.clear();
    parts_.copied_on = &stream;
    parts_.copied_at = stream.submitted();
  } else if (parts_.copied_on != nullptr && parts_.copied_on != &stream) {
    stream.wait_for(*parts_.copied_on, parts_.copied_at);
  }
}

int WorkNeuron::sourceRank() const {
  raise_if_error(parts_.works.front()->wait());
  return parts_.works.front()->source();
}

bool WorkNeuron::wait(std::chrono::milliseconds timeout) {
  std::optional<CommsRecord> comms;
  if (parts_.profiled_group && at::hasCallbacks()) comms.emplace(*parts_.profiled_group, waiting());
  for (const auto& work : parts_.works) raise_failure(*work);
  synchronize();
  if (timeout != kNoTimeout) {
    wait_on_host(Deadline::after(timeout), timeout);
  } else if (host_wait_ == HostWait::kAlways) {
    wait_on_host(Deadline::never(), timeout);
  }
  return true;
}

// Whoever waits is told, and so the stream of the work has nothing left to tell: the next synchronizing call,
// or a call of another group on that stream, would raise the same once more.
void WorkNeuron::raise_failure(const EngineWork& work) {
  const Status status = work.status();
  if (status.is_ok()) return;
  Stream* const stream = work.stream();
  if (stream != nullptr && stream->wait_until(work.position()).is_ok()) {
    const StreamErrorPtr error = stream->error_at(work.position());
    // Not one from before the work, which made it fail: that one has not been told.
    if (error != nullptr && error->status.message() == status.message()) {
      error->raised.store(true, std::memory_order_release);
    }
  }
  raise_if_error(status);
}

CommsCall WorkNeuron::waiting() const {
  CommsCall call;
  call.name = "wait";
  call.rank = rank_;
  call.point_to_point = !parts_.on_streams();
  if (!call.point_to_point) call.sequence = static_cast<std::int64_t>(getSequencenumber());
  call.async = false;
  return call;
}

void WorkNeuron::wait_on_host(Deadline deadline, std::chrono::milliseconds timeout) const {
  bool in_time = true;
  for (const auto& work : parts_.works) {
    (void)work->wait(deadline);  // raise_failure() tells
    in_time = in_time && work->is_completed();
    if (work->is_completed()) raise_failure(*work);
  }
  if (in_time && parts_.copied_on != nullptr) {
    in_time = parts_.copied_on->wait_until(parts_.copied_at, deadline).is_ok();
  }
  if (in_time) return;
  const EngineWork& first = *parts_.works.front();
  C10_THROW_ERROR(
      DistBackendError,
      c10::str("wait(timeout=", timeout.count(), " ms) of ", first.summary().name, " #", first.sequence(),
               " in group '", first.group_name(), "' on rank ", rank_,
               " caught collective operation timeout: the work goes on until the group's own timeout"));
}

c10::intrusive_ptr<c10::ivalue::Future> WorkNeuron::getFuture() {
  const std::lock_guard lock(futures_mutex_);
  if (!future_) complete_future();
  return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> WorkNeuron::getFutureResult() {
  const std::lock_guard lock(futures_mutex_);
  if (!future_result_) {
    future_result_ = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    watch_outcome({parts_.works.begin(), parts_.works.end()}, future_result_);
  }
  return future_result_;
}

float WorkNeuron::getDuration() const {
  TORCH_CHECK(completed(), "getDuration(): the work has not completed yet");
  const std::int64_t start = parts_.works.front()->started_ns();
  const std::int64_t end = parts_.works.back()->ended_ns();
  constexpr float kNanosecondsPerMillisecond = 1e6F;
  return static_cast<float>(end - start) / kNanosecondsPerMillisecond;
}

std::uint64_t WorkNeuron::getSequencenumber() const { return parts_.works.front()->sequence(); }

}  // namespace neuron::bridge
