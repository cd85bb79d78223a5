#include "engine/device/stream.h"

#include <utility>

#include "engine/base/check.h"
#include "engine/base/fork.h"
#include "engine/device/stream_order.h"
#include "engine/device/stream_queue.h"

namespace neuron {

namespace {

std::atomic<InlinePolicy> policy{InlinePolicy::kNever};

struct Initializer {
  Mutex mutex;
  std::function<void()> function GUARDED_BY(mutex);
};
// Leaked: threads of leaked streams may start while the process ends.
Initializer& thread_initializer() {
  static Initializer& instance = *new Initializer();
  return instance;
}

// Blocks its stream until another one has reached a position, and takes over what poisons that one there.
class WaitCommand final : public Command {
 public:
  WaitCommand(Stream& other, StreamPosition position)
      : Command(CommandKind::kWait, RunMode::kQueued, "wait_stream"), other_(other), position_(position) {}

  Status run(Stream& stream) override {
    Status status = other_.wait_until(position_);
    if (status.is_ok()) stream.poison(other_.error_at(position_));
    return status;
  }

  // A poisoned stream still waits: when its error is raised meanwhile, the commands behind this one do run.
  void skip(Stream& stream, const StreamError& /*error*/) override { (void)run(stream); }

 private:
  Stream& other_;
  const StreamPosition position_;
};

}  // namespace

class Stream::Impl {
 public:
  Impl(Stream& self, Core& in_core, std::uint32_t stream_id, int stream_priority,
       const RunAheadLimits& limits)
      : core(in_core), id(stream_id), priority(stream_priority), queue(self, limits) {}

  Core& core;
  const std::uint32_t id;
  const int priority;
  StreamQueue queue;
  StreamOrder order;
};

Stream::Stream(Core& core, std::uint32_t id, int priority, const RunAheadLimits& limits)
    : impl_(std::make_unique<Impl>(*this, core, id, priority, limits)) {}

Stream::~Stream() = default;

Core& Stream::core() const { return impl_->core; }
std::uint32_t Stream::id() const { return impl_->id; }
int Stream::priority() const { return impl_->priority; }

StreamPosition Stream::submit(std::unique_ptr<Command> command) {
  return impl_->queue.submit(std::move(command));
}

std::unique_lock<std::mutex> Stream::lock_submission() {
  return in_forked_child() ? std::unique_lock<std::mutex>() : std::unique_lock(impl_->queue.submission());
}

StreamPosition Stream::submit_locked(std::unique_ptr<Command> command, std::unique_lock<std::mutex>& lock) {
  NEURON_CHECK(in_forked_child() || (lock.owns_lock() && lock.mutex() == &impl_->queue.submission()),
               "submit_locked() needs the lock of this stream");
  return impl_->queue.submit_locked(std::move(command));
}

StreamPosition Stream::submitted() const { return impl_->queue.submitted(); }
StreamPosition Stream::completed() const { return impl_->queue.completed(); }

Status Stream::wait_until(StreamPosition position, Deadline deadline) {
  if (reached(position)) return Status::ok();
  if (in_forked_child()) {
    return Status(StatusCode::kUnavailable, "this process was forked from one that uses Neuron devices");
  }
  NEURON_CHECK(!runs_here(), "a command waits for the stream that it runs on");
  if (impl_->queue.wait(position, deadline)) return Status::ok();
  return Status(StatusCode::kTimeout,
                "the stream did not reach position " + std::to_string(position) + " in time");
}

void Stream::wait_for(Stream& other, StreamPosition position) {
  if (&other == this) return;
  NEURON_CHECK(position <= other.submitted(), "a wait for a command that was not submitted yet");
  // Completion is published after the error, so this order of questions misses none.
  if (other.reached(position) && other.error_at(position) == nullptr) return;
  const StreamPosition at = submit(std::make_unique<WaitCommand>(other, position));
  // Streams of one core end together; another core's could end first, and its address mean another stream.
  if (&other.core() == &core()) impl_->order.note(other, position, other.impl_->order, at);
}

bool Stream::runs_after(const Stream& other, StreamPosition position) const {
  return &other == this || other.reached(position) || impl_->order.after(other, position);
}

StreamErrorPtr Stream::synchronize() {
  if (!wait_until(submitted()).is_ok()) return nullptr;
  return take_error();
}

StreamErrorPtr Stream::error_at(StreamPosition position) const { return impl_->queue.errors().at(position); }
StreamErrorPtr Stream::take_error() { return impl_->queue.errors().take(); }

void Stream::poison(StreamErrorPtr error) {
  NEURON_CHECK(runs_here(), "poison() belongs to the thread that runs the stream's command");
  impl_->queue.poison(std::move(error));
}

bool Stream::runs_here() const { return impl_->queue.runs_here(); }
void Stream::close() { impl_->queue.close(); }

void set_stream_thread_initializer(std::function<void()> initializer) {
  Initializer& instance = thread_initializer();
  MutexLock lock(instance.mutex);
  instance.function = std::move(initializer);
}

std::function<void()> stream_thread_initializer() {
  Initializer& instance = thread_initializer();
  MutexLock lock(instance.mutex);
  return instance.function;
}

void set_inline_policy(InlinePolicy value) { policy.store(value, std::memory_order_relaxed); }
InlinePolicy inline_policy() { return policy.load(std::memory_order_relaxed); }

}  // namespace neuron
