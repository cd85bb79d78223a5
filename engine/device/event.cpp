#include "engine/device/event.h"

#include <string>
#include <utility>

#include "engine/base/clock.h"
#include "engine/device/stream.h"

namespace neuron {

namespace {

using TimeCell = std::shared_ptr<std::atomic<std::int64_t>>;

// Takes the time when the stream gets there; also on a poisoned stream, so that the event does complete.
class TimeCommand final : public Command {
 public:
  explicit TimeCommand(TimeCell time)
      : Command(CommandKind::kEvent, RunMode::kMayInline, "record_event"), time_(std::move(time)) {}

  Status run(Stream& /*stream*/) override {
    time_->store(steady_ns(), std::memory_order_release);
    return Status::ok();
  }
  void skip(Stream& stream, const StreamError& /*error*/) override { (void)run(stream); }

 private:
  TimeCell time_;
};

Status unusable(const char* which, const char* why) {
  return Status(StatusCode::kInvalidArgument, std::string("elapsed_time: the ") + which + " " + why);
}

// Ok with the time in `out`, or why there is none.
Status time_of(const Event& event, const char* which, std::int64_t& out) {
  if (!event.timing())
    return Status(StatusCode::kInvalidArgument, "Event was not created with timing enabled");
  const EventRecording recording = event.recording();
  if (recording.stream == nullptr) return unusable(which, "Event has not been recorded");
  out = recording.time_ns->load(std::memory_order_acquire);
  if (out == 0) return unusable(which, "Event is not completed");
  return Status::ok();
}

}  // namespace

bool EventRecording::done() const { return stream == nullptr || stream->reached(position); }

void Event::record(Stream& stream) {
  EventRecording recording;
  recording.stream = &stream;
  if (timing_) {
    recording.time_ns = std::make_shared<std::atomic<std::int64_t>>(0);
    recording.position = stream.submit(std::make_unique<TimeCommand>(recording.time_ns));
  } else {
    recording.position = stream.submitted();
  }
  const std::lock_guard lock(mutex_);
  recording_ = std::move(recording);
}

void Event::wait(Stream& stream) const {
  const EventRecording bound = recording();
  if (bound.stream != nullptr) stream.wait_for(*bound.stream, bound.position);
}

Status Event::synchronize(Deadline deadline) const {
  const EventRecording bound = recording();
  return bound.stream == nullptr ? Status::ok() : bound.stream->wait_until(bound.position, deadline);
}

EventRecording Event::recording() const {
  const std::lock_guard lock(mutex_);
  return recording_;
}

Result<double> elapsed_ms(const Event& start, const Event& end) {
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  if (Status status = time_of(start, "start", start_ns); !status.is_ok()) return status;
  if (Status status = time_of(end, "end", end_ns); !status.is_ok()) return status;
  return static_cast<double>(end_ns - start_ns) / 1e6;
}

}  // namespace neuron
