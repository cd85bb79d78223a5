// FlightRecorder: the last calls of this process in all its groups. Open this header first, then
// flight_dump.h (what a dump holds), flight_dump_file.h (where it goes) and failure_watch.h (when one is
// written).
//
// TORCH_FR_BUFFER_SIZE says how many calls are kept; 0 turns it off, and then a call costs one load. A record
// is made once its call has its number, before it can fail; the state of a call is read from its Work when a
// dump is made, so nothing is done when a call ends.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bridge/distributed/flight_record.h"
#include "engine/base/mutex.h"

namespace neuron::bridge {

class FlightRecorder {
 public:
  // The process's own. Never destroyed. The size is read from the environment at the first call.
  static FlightRecorder& get();

  bool enabled() const { return capacity_ != 0; }
  StackDepth stack_depth() const { return enabled() ? StackDepth::kAll : StackDepth::kUsersLine; }

  // Numbers the group. At its first call: only then is the description that torch gives it known.
  void add_group(const std::shared_ptr<RecordedGroup>& group);
  // Fills in group, thread and operation number. Thread-safe; takes no lock but its own, for a move.
  void add(const std::shared_ptr<RecordedGroup>& group, FlightRecord record);

  struct Snapshot {
    std::uint64_t first = 0;  // number of the oldest record; they are consecutive
    std::vector<FlightRecord> records;
    std::vector<std::shared_ptr<const RecordedGroup>> groups;  // all that ever made a call, by id
  };
  Snapshot snapshot() const;

 private:
  explicit FlightRecorder(std::size_t capacity) : capacity_(capacity) {}

  const std::size_t capacity_;
  mutable Mutex mutex_;
  std::vector<FlightRecord> ring_ GUARDED_BY(mutex_);
  std::uint64_t recorded_ GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<const RecordedGroup>> groups_ GUARDED_BY(mutex_);
};

}  // namespace neuron::bridge
