#include "engine/device/stream_queue.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <csignal>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/fork.h"
#include "engine/device/core.h"
#include "engine/device/timeline.h"

namespace neuron {

namespace {

constexpr std::uint64_t kStop = std::numeric_limits<std::uint64_t>::max();

// The queue whose command runs on this thread; the inner one when a command runs another stream's inline.
thread_local const StreamQueue* tls_running = nullptr;
thread_local const std::int64_t tls_thread_id = syscall(SYS_gettid);

class RunningScope {
 public:
  explicit RunningScope(const StreamQueue* queue) : previous_(std::exchange(tls_running, queue)) {}
  ~RunningScope() { tls_running = previous_; }
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  const StreamQueue* const previous_;
};

StreamErrorPtr make_error(const Command& command, Status status, std::exception_ptr exception) {
  auto error = std::make_shared<StreamError>();
  error->op = command.name();
  error->origin = command.origin();
  error->status = std::move(status);
  error->exception = std::move(exception);
  return error;
}

// Requires: inside a handler.
StreamErrorPtr error_of_exception(const Command& command) {
  const std::exception_ptr exception = std::current_exception();
  std::string what = "unknown exception";
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& e) {
    what = e.what();
  } catch (...) {
  }
  return make_error(command, Status(StatusCode::kExecution, std::move(what)), exception);
}

}  // namespace

StreamQueue::StreamQueue(Stream& stream, const RunAheadLimits& limits)
    : stream_(stream),
      limits_(limits),
      ring_(std::bit_ceil(std::size_t{limits.commands})),
      mask_(ring_.size() - 1) {
  NEURON_CHECK(limits.commands >= 1, "a stream holds at least one command");
}

StreamQueue::~StreamQueue() {
  completed_.wait(submitted(), Deadline::never());
  if (!thread_.joinable()) return;
  queued_.publish(kStop);
  thread_.join();
}

bool StreamQueue::runs_here() const { return tls_running == this; }

bool StreamQueue::refuses() const { return closed_.load(std::memory_order_relaxed) || in_forked_child(); }

void StreamQueue::refuse(std::unique_ptr<Command> command) {
  // In a forked child nothing of the command may be touched: what it holds belongs to threads that are not
  // there.
  Command* refused = command.release();
  if (in_forked_child()) return;
  const auto error = make_error(
      *refused, Status(StatusCode::kUnavailable, "the Neuron runtime of this process has been shut down"),
      nullptr);
  refused->skip(stream_, *error);
  refused->retire();
}

StreamPosition StreamQueue::submit(std::unique_ptr<Command> command) {
  if (refuses()) [[unlikely]] {
    refuse(std::move(command));
    return submitted();
  }
  std::unique_lock lock(submission_);
  if (command->mode() == RunMode::kMayInline && inline_policy() == InlinePolicy::kAlways &&
      completed() == submitted_.load(std::memory_order_relaxed)) {
    const StreamPosition position = submitted_.load(std::memory_order_relaxed) + 1;
    submitted_.store(position, std::memory_order_release);
    lock.unlock();
    execute(command.release(), position);
    return position;
  }
  return enqueue(std::move(command));
}

StreamPosition StreamQueue::submit_locked(std::unique_ptr<Command> command) {
  if (refuses()) [[unlikely]] {
    refuse(std::move(command));
    return submitted();
  }
  return enqueue(std::move(command));
}

// Requires: the submission lock.
StreamPosition StreamQueue::enqueue(std::unique_ptr<Command> command) {
  const StreamPosition position = submitted_.load(std::memory_order_relaxed) + 1;
  const std::uint64_t held = command->held_bytes();
  wait_for_room(position, held);
  if (held != 0) held_bytes_.fetch_add(held, std::memory_order_relaxed);
  const std::uint64_t item = ++enqueued_;
  ring_[item & mask_] = {command.release(), position};
  submitted_.store(position, std::memory_order_release);
  queued_.publish(item);
  if (!thread_.joinable() && !start_thread()) [[unlikely]] {
    // No thread is to be had, so nobody else runs queued commands: do it here, after those that run inline.
    // The one place where a command runs under the submission lock.
    drain_up_to(item);
  }
  return position;
}

void StreamQueue::wait_for_room(StreamPosition position, std::uint64_t held_bytes) {
  // The command that must have left the ring; at first a slot that was not used yet.
  const std::uint64_t oldest = enqueued_ + 1 - limits_.commands;
  const StreamPosition needed = ring_[oldest & mask_].position;
  if (needed > known_completed_) known_completed_ = completed();
  if (needed > known_completed_) [[unlikely]] {
    NEURON_CHECK(!runs_here(), "a command filled the stream that it runs on");
    // Sleep until there is some room, not just for one command: a wake-up costs more than most commands.
    completed_.wait(ring_[(oldest + limits_.commands / 8) & mask_].position, Deadline::never());
  }
  if (held_bytes == 0) return;
  while (held_bytes_.load(std::memory_order_acquire) + held_bytes > limits_.bytes) {
    const StreamPosition done = completed();
    if (done + 1 >= position) return;
    NEURON_CHECK(!runs_here(), "a command filled the stream that it runs on");
    completed_.wait(done + std::max<StreamPosition>(1, (position - done) / 4), Deadline::never());
  }
}

// False when the system gives no thread.
bool StreamQueue::start_thread() {
  // Signals are the program's; none may arrive on a thread of ours.
  sigset_t all;
  sigset_t previous;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  bool started = true;
  try {
    thread_ = std::thread([this] { drain(); });
  } catch (const std::system_error&) {
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  return started;
}

void StreamQueue::drain() {
  const std::string name = stream_.core().name() + "/" + std::to_string(stream_.id());
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  if (const auto initializer = stream_thread_initializer()) initializer();
  for (;;) {
    queued_.wait(drained_ + 1, Deadline::never());
    const std::uint64_t last = queued_.load();
    if (last == kStop) return;
    drain_up_to(last);
  }
}

void StreamQueue::drain_up_to(std::uint64_t last) {
  while (drained_ < last) {
    const Slot slot = ring_[++drained_ & mask_];
    completed_.wait(slot.position - 1, Deadline::never());
    execute(slot.command, slot.position);
  }
}

void StreamQueue::execute(Command* command, StreamPosition position) {
  running_ = position;
  const bool traced = timeline_on();
  Span span;
  if (traced) [[unlikely]] {
    span.name = command->name();
    span.kind = command->kind();
    span.core = stream_.core().index();
    span.stream = stream_.id();
    span.position = position;
    span.bytes = command->traffic_bytes();
    span.thread = tls_thread_id;
    span.start_ns = steady_ns();
    span.cpu_ns = thread_cpu_ns();
  }
  const std::uint64_t held = command->held_bytes();
  {
    const RunningScope scope(this);
    span.skipped = !run(*command);
    if (traced) [[unlikely]] {
      span.cpu_ns = thread_cpu_ns() - span.cpu_ns;
      span.end_ns = steady_ns();
    }
    // Before completion is published: who has seen it may count on what the command held being free.
    command->retire();
  }
  if (held != 0) held_bytes_.fetch_sub(held, std::memory_order_release);
  if (traced) [[unlikely]]
    record_span(span);
  completed_.publish(position);
}

// Runs or skips; false: skipped. Whatever the command throws stays here.
bool StreamQueue::run(Command& command) {
  const StreamErrorPtr error = errors_.active();
  try {
    if (error != nullptr) [[unlikely]] {
      command.skip(stream_, *error);
      return false;
    }
    Status status = command.run(stream_);
    if (!status.is_ok()) [[unlikely]]
      poison(make_error(command, std::move(status), nullptr));
  } catch (...) {
    poison(error_of_exception(command));
  }
  return error == nullptr;
}

}  // namespace neuron
