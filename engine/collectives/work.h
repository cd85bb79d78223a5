// Work: one submission of this rank in its group, from the call to its outcome.
//
// Shared by the caller and by the command that runs it. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "engine/base/deadline.h"
#include "engine/base/spin_wait.h"
#include "engine/base/status.h"
#include "engine/collectives/collective.h"
#include "engine/device/command.h"

namespace neuron {

class Stream;

// What the request was, without its buffers.
struct WorkSummary {
  CollectiveKind kind = CollectiveKind::kBarrier;
  DType dtype = DType::kUint8;
  ReduceOp op = ReduceOp::kNone;
  int root = 0;
  std::size_t count = 0;
  const char* name = "";
  std::string origin{};
  // Of a point-to-point request; `kind`, `op` and `root` then mean nothing.
  bool point_to_point = false;
  int peer = 0;
  std::uint64_t tag = 0;
};

class Work : public std::enable_shared_from_this<Work> {
 public:
  Work(std::string group_name, std::uint64_t sequence, std::size_t requests, WorkSummary summary);

  const std::string& group_name() const { return group_name_; }
  // Number of the (first) request in its group, from 1. A coalesced unit has requests() consecutive numbers.
  std::uint64_t sequence() const { return sequence_; }
  std::size_t requests() const { return requests_; }
  const WorkSummary& summary() const { return summary_; }  // of the first request

  // Orders `stream` after the work: returns at once. An error of the work poisons the stream from here on.
  void order(Stream& stream) const;
  // The stream whose position() is reached when the outcome is known; for a routed work this is the target.
  // Null for point-to-point, which runs on no stream.
  Stream* stream() const { return stream_; }
  StreamPosition position() const { return position_; }

  // The rank that a completed receive got its message from; otherwise -1.
  int source() const { return source_.load(std::memory_order_relaxed); }

  bool is_completed() const { return done_.load(std::memory_order_acquire); }
  // Blocks the host until completed. kTimeout when the deadline passes first; otherwise status().
  Status wait(Deadline deadline = Deadline::never()) const;
  // Ok before completion. Afterwards the outcome; an error is permanent for the group.
  Status status() const;

  // Steady clock, ns: submission; start and end at the head of the stream. 0 until known.
  std::int64_t submitted_ns() const { return submitted_ns_; }
  std::int64_t started_ns() const { return started_ns_.load(std::memory_order_relaxed); }
  std::int64_t ended_ns() const { return ended_ns_.load(std::memory_order_relaxed); }

 private:
  friend class Communicator;
  friend class CollectiveCommand;
  friend class Progress;

  void place(Stream& stream, StreamPosition position);  // once, before anybody else sees the work
  void start();
  void finish(Status status);
  void set_source(int rank) { source_.store(rank, std::memory_order_relaxed); }
  Status timed_out() const;

  const std::string group_name_;
  const std::uint64_t sequence_;
  const std::size_t requests_;
  const WorkSummary summary_;
  const std::int64_t submitted_ns_;
  Stream* stream_ = nullptr;
  StreamPosition position_ = 0;
  std::atomic<std::int64_t> started_ns_{0}, ended_ns_{0};
  std::atomic<int> source_{-1};
  std::atomic<bool> done_{false};
  mutable WakeWord completed_;  // point-to-point only
  mutable std::mutex mutex_;
  Status status_;
};

}  // namespace neuron
