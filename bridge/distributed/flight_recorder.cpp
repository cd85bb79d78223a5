#include "bridge/distributed/flight_recorder.h"

#include <c10/util/thread_name.h>

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/env.h"

namespace neuron::bridge {

namespace {

std::size_t capacity() {
  const std::int64_t size = env().fr_buffer_size;
  return static_cast<std::size_t>(size >= 0 ? size : env().nccl_trace_buffer_size);
}

// Asking the system costs more than the rest of a record; a thread rarely gets another name.
const FlightRecord::ThreadName& thread_name() {
  thread_local const FlightRecord::ThreadName name = [] {
    FlightRecord::ThreadName out{};
    const std::string text = c10::getThreadName();
    std::copy_n(text.begin(), std::min(text.size(), out.size() - 1), out.begin());
    return out;
  }();
  return name;
}

}  // namespace

FlightRecorder& FlightRecorder::get() {
  static auto* recorder = new FlightRecorder(capacity());
  return *recorder;
}

void FlightRecorder::add_group(const std::shared_ptr<RecordedGroup>& group) {
  const MutexLock lock(mutex_);
  group->id = static_cast<std::int64_t>(groups_.size());
  groups_.push_back(group);
}

void FlightRecorder::add(const std::shared_ptr<RecordedGroup>& group, FlightRecord record) {
  record.group = group;
  record.operation = group->operations.fetch_add(1, std::memory_order_relaxed) + 1;
  record.thread = std::this_thread::get_id();
  record.thread_name = thread_name();
  const MutexLock lock(mutex_);
  const std::uint64_t number = recorded_++;
  if (ring_.size() < capacity_) {
    ring_.push_back(std::move(record));
  } else {
    // What was there goes with `record`, after the lock.
    std::swap(ring_[number % capacity_], record);
  }
}

FlightRecorder::Snapshot FlightRecorder::snapshot() const {
  Snapshot out;
  const MutexLock lock(mutex_);
  out.groups = groups_;
  out.first = recorded_ - ring_.size();
  out.records.reserve(ring_.size());
  for (std::uint64_t number = out.first; number < recorded_; ++number) {
    out.records.push_back(ring_[number % capacity_]);
  }
  return out;
}

}  // namespace neuron::bridge
