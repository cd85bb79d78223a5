#include "engine/collectives/work.h"

#include <utility>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/device/stream.h"

namespace neuron {

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

Status Work::wait(Deadline deadline) const {
  if (!is_completed()) {
    NEURON_CHECK(stream_ != nullptr, "wait() for a work that was never submitted");
    const Status waited = stream_->wait_until(position_, deadline);
    if (!waited.is_ok()) {
      if (waited.code() != StatusCode::kTimeout) return waited;
      return Status(StatusCode::kTimeout,
                    detail::concatenate(summary_.name, " #", sequence_, " of group '", group_name_,
                                        "' was not complete in the time given to wait()"));
    }
  }
  return status();
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
  done_.store(true, std::memory_order_release);
}

}  // namespace neuron
