// Command: one unit of work in a stream's queue.
//
// A command is made by the thread that submits it, handed over to one Stream, run once on the thread that
// drains that stream (or on the submitting thread, see RunMode), and retired. It never holds anything whose
// destruction could need Python's global lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "engine/base/status.h"

namespace neuron {

class Stream;

// A stream's n-th command has position n; position 0 is before the first.
using StreamPosition = std::uint64_t;

enum class CommandKind : std::uint8_t { kCompute, kCopy, kCollective, kEvent, kWait, kHost };

// May the submitting thread run the command itself when the stream is idle?
enum class RunMode : std::uint8_t {
  kQueued,     // always on the stream's own thread: it may block on other streams or other processes
  kMayInline,  // pure compute; ends by itself
};

// Why a stream is poisoned. Shared by every stream and event that it has reached; cleared for all of them
// when one synchronizing call has raised it. A permanent error (of a group) is never cleared.
struct StreamError {
  std::string op;      // name of the command that failed
  std::string origin;  // "file.py:12", or empty
  Status status;
  std::exception_ptr exception;  // what the command threw, or null
  bool permanent = false;
  std::atomic<bool> raised{false};

  bool active() const { return permanent || !raised.load(std::memory_order_acquire); }
};
using StreamErrorPtr = std::shared_ptr<StreamError>;

class Command {
 public:
  Command(CommandKind kind, RunMode mode, const char* name) : name_(name), kind_(kind), mode_(mode) {}
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  virtual ~Command() = default;

  // Does the work. A thrown exception is caught by the stream and kept as a StreamError, like a bad Status.
  virtual Status run(Stream& stream) = 0;

  // Called in place of run() when the stream is poisoned by `error`. Commands that owe something to others (a
  // collective to its peers) override it.
  virtual void skip(Stream& stream, const StreamError& error) {
    (void)stream;
    (void)error;
  }

  // Called once after run() or skip(), on the same thread. The default deletes; recycled commands override
  // it.
  virtual void retire() noexcept { delete this; }

  // The Python line that submitted the command ("file.py:12"), or empty where it was not recorded.
  virtual std::string origin() const { return {}; }

  // Valid as long as the command lives; a literal, or a name interned for the life of the process.
  const char* name() const { return name_; }
  CommandKind kind() const { return kind_; }
  RunMode mode() const { return mode_; }
  // Bytes that stay taken until the command has run beyond what synchronous execution would need (snapshots
  // of host memory, blocks that other streams keep). Counted against the stream's run-ahead limit.
  std::uint64_t held_bytes() const { return held_bytes_; }
  void set_held_bytes(std::uint64_t bytes) { held_bytes_ = bytes; }
  // Bytes of device memory that the command reads and writes: for the timeline.
  std::uint64_t traffic_bytes() const { return traffic_bytes_; }
  void set_traffic_bytes(std::uint64_t bytes) { traffic_bytes_ = bytes; }

 private:
  const char* name_;
  CommandKind kind_;
  RunMode mode_;
  std::uint64_t held_bytes_ = 0;
  std::uint64_t traffic_bytes_ = 0;
};

// A callable as a command, for tests and rare work. The hot path derives from Command.
template <typename Function>
class FunctionCommand final : public Command {
 public:
  FunctionCommand(CommandKind kind, RunMode mode, const char* name, Function function)
      : Command(kind, mode, name), function_(std::move(function)) {}
  Status run(Stream& stream) override { return function_(stream); }

 private:
  Function function_;
};

}  // namespace neuron
