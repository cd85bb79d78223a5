#include "engine/testing/gate.h"

#include <condition_variable>
#include <mutex>

namespace neuron {

struct Gate::State {
  void pass() {
    std::unique_lock lock(mutex);
    arrived = true;
    changed.notify_all();
    changed.wait(lock, [this] { return is_open; });
  }

  std::mutex mutex;
  std::condition_variable changed;
  bool is_open = false;
  bool arrived = false;
};

Gate::Gate() : state_(std::make_shared<State>()) {}

void Gate::open() {
  const std::lock_guard lock(state_->mutex);
  state_->is_open = true;
  state_->changed.notify_all();
}

void Gate::pass() { state_->pass(); }

void Gate::wait_for_arrival() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->arrived; });
}

std::unique_ptr<Command> Gate::command(RunMode mode) {
  auto pass_gate = [state = state_](Stream& /*stream*/) {
    state->pass();
    return Status::ok();
  };
  return std::make_unique<FunctionCommand<decltype(pass_gate)>>(CommandKind::kHost, mode, "gate",
                                                                std::move(pass_gate));
}

}  // namespace neuron
