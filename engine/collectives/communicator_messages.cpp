// Submission of point-to-point messages.
#include <utility>

#include "engine/base/check.h"
#include "engine/base/fork.h"
#include "engine/collectives/communicator.h"
#include "engine/collectives/communicator_impl.h"
#include "engine/device/command.h"

namespace neuron {

namespace {

// Says that a stream has reached the place of some operations.
class ReadyCommand final : public Command {
 public:
  ReadyCommand(std::shared_ptr<Communicator> communicator, std::vector<OperationPtr> operations)
      : Command(CommandKind::kEvent, RunMode::kQueued, operations.front()->work->summary().name),
        communicator_(std::move(communicator)),
        operations_(std::move(operations)) {}

  Status run(Stream& /*stream*/) override {
    for (const OperationPtr& operation : operations_) operation->ready.store(true, std::memory_order_release);
    communicator_->wake_progress();
    return Status::ok();
  }

  void skip(Stream& /*stream*/, const StreamError& error) override {
    communicator_->fail(
        StatusCode::kAborted,
        detail::concatenate("rank ", communicator_->rank(), " failed in ", error.op,
                            " and cannot take part in ", describe(operations_.front()->request), ": ",
                            error.status.message()));
  }

  std::string origin() const override { return operations_.front()->work->summary().origin; }

 private:
  const std::shared_ptr<Communicator> communicator_;
  const std::vector<OperationPtr> operations_;
};

WorkSummary summarize(const PointToPointRequest& request) {
  const bool send = request.direction == PointToPointRequest::Direction::kSend;
  WorkSummary summary;
  summary.dtype = request.dtype;
  summary.count = request.count;
  summary.name = request.name != nullptr ? request.name : send ? "send" : "recv";
  summary.origin = request.origin;
  summary.point_to_point = true;
  summary.peer = request.peer;
  summary.tag = request.tag;
  return summary;
}

Status check_request(const PointToPointRequest& request, int size, const DeviceHeap& heap) {
  Status status = validate(request, size);
  if (!status.is_ok() || request.count == 0) return status;
  const std::size_t nbytes = request.count * dtype_size(request.dtype);
  if (heap.contains(request.buffer) && nbytes <= heap.limit() - heap.offset_of(request.buffer)) return status;
  return Status(StatusCode::kInvalidArgument,
                describe(request) + ": the buffer is not memory of this rank's core");
}

}  // namespace

Progress& Communicator::Impl::progress() {
  if (point_to_point == nullptr) point_to_point = std::make_unique<Progress>(*group, [this] { end(); });
  return *point_to_point;
}

// A stream's own command may call it while destroy() ends the thread: the event is the group's, and stays.
void Communicator::wake_progress() const { impl_->group->tell(rank()); }

Result<std::vector<std::shared_ptr<Work>>> Communicator::submit_messages(
    Stream& stream, std::vector<PointToPointRequest> requests) {
  if (in_forked_child())
    return Status(StatusCode::kUnavailable, "this process was forked from one that uses Neuron devices");
  NEURON_CHECK(!requests.empty(), "a call without requests");
  NEURON_CHECK(&stream.core() == &core(), "a stream of another core");
  for (const PointToPointRequest& request : requests) {
    Status status = check_request(request, size(), core().heap());
    if (!status.is_ok()) return status;
  }
  const std::lock_guard<std::mutex> order(impl_->order);
  Status status = impl_->begin(requests.size());
  if (!status.is_ok()) return status;
  const StreamPosition position = stream.submitted();
  const bool ready = stream.reached(position) && stream.error_at(position) == nullptr;
  std::vector<OperationPtr> operations;
  std::vector<std::shared_ptr<Work>> works;
  for (PointToPointRequest& request : requests) {
    request.timeout = request.timeout.count() > 0 ? Impl::bounded(request.timeout) : Impl::bounded(timeout());
    works.push_back(
        std::make_shared<Work>(group_name(), impl_->next_point_to_point++, 1, summarize(request)));
    operations.push_back(std::make_shared<Operation>(std::move(request), works.back()));
    operations.back()->ready.store(ready, std::memory_order_relaxed);
  }
  status = impl_->progress().post(operations);
  if (!status.is_ok()) {
    impl_->end(operations.size());
    return status;
  }
  if (!ready) stream.submit(std::make_unique<ReadyCommand>(shared_from_this(), std::move(operations)));
  return works;
}

}  // namespace neuron
