// Stream: commands in order, on one core.
//
// Contract (docs/streams_and_events, tested word by word):
// - Commands of one stream run one at a time, in the order of submission, whichever threads submitted them.
// - A stream has at most one thread of its own, started when the first command cannot run inline.
// - query() is false while a command runs or waits to run.
// - A failed command poisons the stream: later commands are skipped until the error has been raised by a
//   synchronizing call of any stream that the error has reached.
// - Submission blocks the caller while the stream is a full run-ahead ahead of the core.
// All members may be called from any thread, unless they say otherwise. A Stream lives as long as its Core.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "engine/base/deadline.h"
#include "engine/base/status.h"
#include "engine/device/command.h"

namespace neuron {

class Core;

// When does a kMayInline command run on the submitting thread (if the stream is idle)?
enum class InlinePolicy : std::uint8_t { kNever, kAlways };

// How far submission may run ahead of execution, for each stream.
struct RunAheadLimits {
  std::uint32_t commands = 1024;                  // at least 1
  std::uint64_t bytes = std::uint64_t{64} << 20;  // of Command::held_bytes(); one command may exceed it alone
};

class Stream {
 public:
  // `id` is unique in the core; 0 is the default stream. Priority: -1 high, 0, 1 low.
  Stream(Core& core, std::uint32_t id, int priority, const RunAheadLimits& limits = {});
  // Runs what was submitted, then ends the thread. Requires: nobody submits any more.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Core& core() const;
  std::uint32_t id() const;
  int priority() const;

  // Takes the command over and gives its position. Never fails: a failure while running becomes the stream's
  // error. A command that runs on this stream may submit to it only while there is room (a full stream would
  // wait for itself).
  StreamPosition submit(std::unique_ptr<Command> command);

  // Holds the submission order of this stream: while the lock lives no other thread can submit. The one
  // critical section of a collective (sequence number + enqueue) is built from it. submit_locked() needs the
  // lock held.
  [[nodiscard]] std::unique_lock<std::mutex> lock_submission();
  // Never runs the command inline.
  StreamPosition submit_locked(std::unique_ptr<Command> command, std::unique_lock<std::mutex>& lock);

  StreamPosition submitted() const;  // position of the last command handed over
  StreamPosition completed() const;  // every position up to this one has run or was skipped (acquire)
  bool reached(StreamPosition position) const { return completed() >= position; }
  bool query() const { return reached(submitted()); }

  // Blocks the host until completed() >= position: kOk, kTimeout, or kUnavailable in a forked child. Does not
  // look at errors.
  Status wait_until(StreamPosition position, Deadline deadline = Deadline::never());

  // Orders this stream after `position` of `other`: returns at once. What poisons `other` at or before that
  // position poisons this stream from here on.
  void wait_for(Stream& other, StreamPosition position);

  // Whether all that is submitted from now on runs after `position` of `other`, since it is reached or a wait for
  // it was submitted here, directly or by way of other streams. "No" when such a wait is long ago.
  bool runs_after(const Stream& other, StreamPosition position) const;

  // Waits for all that was submitted and takes the error that has reached this stream, if any.
  // Returns null when there is none. The caller raises what it takes.
  StreamErrorPtr synchronize();

  // The active error that holds at `position` (null: none). Does not clear it.
  StreamErrorPtr error_at(StreamPosition position) const;
  // Marks the error of this stream, if any and not permanent, as raised, and returns it.
  StreamErrorPtr take_error();
  // Poisons the stream from the command that now runs on. Called by the draining thread only.
  void poison(StreamErrorPtr error);

  // True on the thread that runs a command of this stream now: it must not wait for the stream.
  bool runs_here() const;

  // From now on commands are refused: skipped at once, with an error of kUnavailable, and without a position.
  // Commands that were submitted before still run. For the end of the process.
  void close();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Set by the layer above before the first command: runs on every thread that drains a stream, before its
// first command (the bridge sets its thread-local dispatch state there).
void set_stream_thread_initializer(std::function<void()> initializer);

// The process's rule for inline execution; may be changed at any time.
void set_inline_policy(InlinePolicy policy);
InlinePolicy inline_policy();

}  // namespace neuron
