// StreamQueue: the run-ahead ring behind a Stream, and the thread that drains it. Internal to the device
// layer.
//
// Positions decide who runs a command; there is no role to take and give back:
// - Under the submission lock a command gets the next position. Either it goes into the ring with that position,
//   for the thread, or (stream idle, command may run inline) the submitter runs it after unlocking.
// - Whoever owns position p publishes completed = p. The thread runs p only after completed = p - 1, which may be
//   an inline command's. So one command runs at a time, in order, and nobody runs under a lock.
// - A slot of the ring is free again when its command has completed: the thread has read it by then.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/base/spin_wait.h"
#include "engine/device/command.h"
#include "engine/device/stream.h"
#include "engine/device/stream_errors.h"

namespace neuron {

class StreamQueue {
 public:
  StreamQueue(Stream& stream, const RunAheadLimits& limits);
  // Drains, then joins the thread.
  ~StreamQueue();
  StreamQueue(const StreamQueue&) = delete;
  StreamQueue& operator=(const StreamQueue&) = delete;

  StreamPosition submit(std::unique_ptr<Command> command);
  StreamPosition submit_locked(std::unique_ptr<Command> command);
  std::mutex& submission() { return submission_; }

  StreamPosition submitted() const { return submitted_.load(std::memory_order_acquire); }
  StreamPosition completed() const { return completed_.load(); }
  bool wait(StreamPosition position, Deadline deadline) { return completed_.wait(position, deadline); }

  bool runs_here() const;
  void close() { closed_.store(true, std::memory_order_seq_cst); }

  StreamErrors& errors() { return errors_; }
  // Requires: runs_here().
  void poison(StreamErrorPtr error) { errors_.add(running_, std::move(error)); }

 private:
  bool refuses() const;
  void refuse(std::unique_ptr<Command> command);
  StreamPosition enqueue(std::unique_ptr<Command> command);
  void wait_for_room(StreamPosition position, std::uint64_t held_bytes);
  bool start_thread();
  void drain();
  void drain_up_to(std::uint64_t last);
  void execute(Command* command, StreamPosition position);
  bool run(Command& command);

  Stream& stream_;
  const RunAheadLimits limits_;
  struct Slot {
    Command* command = nullptr;
    StreamPosition position = 0;
  };
  // A power of two slots; the n-th command for the thread, from 1, has slot n & mask_. Unused: position 0.
  std::vector<Slot> ring_;
  const std::uint64_t mask_;

  // The two sides write to cache lines of their own, so that a thread that keeps up does not slow the
  // submitter down. The submitter's side.
  alignas(64) std::mutex submission_;
  std::atomic<StreamPosition> submitted_{0};
  std::uint64_t enqueued_ = 0;          // under the submission lock: commands that were put into the ring
  StreamPosition known_completed_ = 0;  // under the submission lock: a past value of completed_
  std::atomic<bool> closed_{false};
  std::thread thread_;

  // What the thread waits for.
  alignas(64) WaitCounter queued_;  // how many commands are for the thread; kStop ends it

  // The side of whoever runs the present command.
  alignas(64) WaitCounter completed_;
  StreamPosition running_ = 0;
  std::uint64_t drained_ = 0;  // how many commands of the ring have run; the thread's
  std::atomic<std::uint64_t> held_bytes_{0};
  StreamErrors errors_;
};

// Of stream.h: what every thread of a stream runs first.
std::function<void()> stream_thread_initializer();

}  // namespace neuron
