#include "engine/collectives/collective_command.h"

#include <utility>

#include "engine/base/check.h"
#include "engine/collectives/communicator_impl.h"
#include "engine/collectives/execution.h"
#include "engine/collectives/quarantine.h"

namespace neuron {

CollectiveCommand::CollectiveCommand(std::shared_ptr<Communicator> communicator, std::shared_ptr<Work> work,
                                     std::vector<CollectiveRequest> requests)
    : Command(CommandKind::kCollective, RunMode::kQueued, work->summary().name),
      communicator_(std::move(communicator)),
      work_(std::move(work)),
      requests_(std::move(requests)) {
  std::uint64_t bytes = 0;
  for (const CollectiveRequest& request : requests_) bytes += request.count * dtype_size(request.dtype);
  set_traffic_bytes(bytes);
}

Status CollectiveCommand::run(Stream& /*stream*/) {
  work_->start();
  Communicator::Impl& impl = *communicator_->impl_;
  Status status;
  std::uint64_t sequence = work_->sequence();
  for (CollectiveRequest& request : requests_) {
    ExecutionOutcome outcome = execute_collective(*impl.group, sequence++, request, impl.timeout_of(request));
    if (outcome.status.is_ok()) continue;
    if (outcome.buffers_in_use) {
      quarantine(std::move(request.holds),
                 [communicator = communicator_] { return communicator->impl_->group->copies_have_ended(); });
    }
    status = std::move(outcome.status);
    break;
  }
  finish(status);
  return status;
}

void CollectiveCommand::skip(Stream& /*stream*/, const StreamError& error) {
  Group& group = *communicator_->impl_->group;
  group.fail(
      StatusCode::kAborted,
      detail::concatenate(group.rank_name(group.rank()), " failed in ", error.op,
                          error.origin.empty() ? "" : " at ", error.origin, " and cannot take part in ",
                          work_->summary().name, " #", work_->sequence(), ": ", error.status.message()));
  finish(group.error());
}

void CollectiveCommand::finish(Status status) {
  work_->finish(std::move(status));
  communicator_->impl_->end();
}

}  // namespace neuron
