#include "bridge/distributed/live_groups.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "bridge/distributed/failure_watch.h"
#include "engine/device/device.h"

namespace neuron::bridge {

namespace {

struct State {
  std::mutex mutex;
  std::vector<std::weak_ptr<Communicator>> groups;
  bool was_member = false;
  int default_world_size = 0;
};

// Leaked: the exit hook may run late.
State& state() {
  static auto* state = new State();
  return *state;
}

}  // namespace

bool was_member() {
  const std::lock_guard lock(state().mutex);
  return state().was_member;
}

void note_joined(const std::shared_ptr<Communicator>& communicator) {
  const std::lock_guard lock(state().mutex);
  state().groups.push_back(communicator);
  state().was_member = true;
}

void note_left(const Communicator& communicator) {
  const std::lock_guard lock(state().mutex);
  auto& groups = state().groups;
  const auto gone = [&communicator](const std::weak_ptr<Communicator>& entry) {
    const auto group = entry.lock();
    return !group || group.get() == &communicator;
  };
  groups.erase(std::remove_if(groups.begin(), groups.end(), gone), groups.end());
  if (groups.empty()) DeviceRuntime::get().unbind();
}

void leave_all_groups(std::chrono::milliseconds limit) {
  std::vector<std::weak_ptr<Communicator>> groups;
  {
    const std::lock_guard lock(state().mutex);
    groups = std::exchange(state().groups, {});
  }
  const auto end = std::chrono::steady_clock::now() + limit;
  for (const auto& entry : groups) {
    const auto group = entry.lock();
    if (!group) continue;
    const auto left =
        std::max(end - std::chrono::steady_clock::now(), std::chrono::steady_clock::duration::zero());
    // The process ends: there is nobody to tell.
    (void)group->destroy(std::chrono::duration_cast<std::chrono::nanoseconds>(left));
  }
  look_for_failures();
}

int default_world_size() {
  const std::lock_guard lock(state().mutex);
  if (state().default_world_size != 0) return state().default_world_size;
  const char* text = std::getenv("WORLD_SIZE");
  return text == nullptr ? 0 : std::max(0, std::atoi(text));
}

void set_default_world_size(int size) {
  const std::lock_guard lock(state().mutex);
  state().default_world_size = size;
}

}  // namespace neuron::bridge
