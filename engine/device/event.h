// Event: a mark in a stream that others can wait for.
//
// A wait binds to the recording that the event has at the time of the call; recording again does not move it.
// A recording is a position of a stream, so that neither record nor wait needs a command of its own, unless
// the event takes the time.
#pragma once

#include <memory>
#include <mutex>

#include "engine/base/deadline.h"
#include "engine/base/result.h"
#include "engine/device/command.h"

namespace neuron {

// Copyable; valid for the life of the core.
struct EventRecording {
  Stream* stream = nullptr;  // null: never recorded
  StreamPosition position = 0;
  std::shared_ptr<std::atomic<std::int64_t>> time_ns;  // steady clock, 0 until taken; null without timing

  bool done() const;  // true when never recorded
};

class Event {
 public:
  explicit Event(bool timing) : timing_(timing) {}

  bool timing() const { return timing_; }
  void record(Stream& stream);
  // Orders `stream` after the present recording. No effect when never recorded.
  void wait(Stream& stream) const;
  bool query() const { return recording().done(); }
  // Blocks the host until the present recording is reached. Errors are left to the caller (Stream::error_at).
  Status synchronize(Deadline deadline = Deadline::never()) const;
  EventRecording recording() const;

 private:
  const bool timing_;
  mutable std::mutex mutex_;
  EventRecording recording_;
};

// Milliseconds from `start` to `end`, never negative when end was recorded later on the same stream.
// kInvalidArgument: one has no timing, was never recorded, or is not done yet. The messages are PyTorch
// users' own: "Event was not created with timing enabled", "… has not been recorded", "… is not completed".
Result<double> elapsed_ms(const Event& start, const Event& end);

}  // namespace neuron
