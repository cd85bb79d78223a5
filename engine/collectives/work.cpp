#include "engine/collectives/work.h"

#include <utility>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/device/stream.h"

namespace neuron {

namespace {

// Blocks its stream until a point-to-point work is complete, and takes over its error.
class WaitForWork final : public Command {
 public:
  explicit WaitForWork(std::shared_ptr<const Work> work)
      : Command(CommandKind::kWait, RunMode::kQueued, work->summary().name), work_(std::move(work)) {}
  Status run(Stream& /*stream*/) override { return work_->wait(); }
  // A poisoned stream still waits: when its error is raised meanwhile, the commands behind this one do run.
  void skip(Stream& /*stream*/, const StreamError& /*error*/) override { (void)work_->wait().is_ok(); }
  std::string origin() const override { return work_->summary().origin; }

 private:
  const std::shared_ptr<const Work> work_;
};

}  // namespace

Work::Work(std::string group_name, std::uint64_t sequence, std::size_t requests, WorkSummary summary)
    : group_name_(std::move(group_name)),
      sequence_(sequence),
      requests_(requests),
      summary_(std::move(summary)),
      submitted_ns_(steady_ns()) {}

void Work::place(Stream& stream, StreamPosition position) {
  stream_ = &stream;
  position_ = position;
}

void Work::order(Stream& stream) const {
  if (stream_ != nullptr) return stream.wait_for(*stream_, position_);
  if (is_completed() && status().is_ok()) return;
  stream.submit(std::make_unique<WaitForWork>(shared_from_this()));
}

Status Work::wait(Deadline deadline) const {
  if (is_completed()) return status();
  if (stream_ == nullptr) {
    const auto done = [this] { return done_.load(std::memory_order_seq_cst); };
    return completed_.wait(done, deadline) ? status() : timed_out();
  }
  const Status waited = stream_->wait_until(position_, deadline);
  if (waited.is_ok()) return status();
  return waited.code() == StatusCode::kTimeout ? timed_out() : waited;
}

Status Work::timed_out() const {
  return Status(StatusCode::kTimeout,
                detail::concatenate(summary_.name, " #", sequence_, " of group '", group_name_,
                                    "' was not complete in the time given to wait()"));
}

Status Work::status() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return status_;
}

void Work::start() { started_ns_.store(steady_ns(), std::memory_order_relaxed); }

void Work::finish(Status status) {
  ended_ns_.store(steady_ns(), std::memory_order_relaxed);
  if (!status.is_ok()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    status_ = std::move(status);
  }
  done_.store(true, std::memory_order_seq_cst);
  completed_.notify();
}

}  // namespace neuron
