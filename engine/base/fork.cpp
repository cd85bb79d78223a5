#include "engine/base/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <mutex>

#include "engine/base/check.h"

namespace neuron {

namespace detail {
std::atomic<bool> forked_child{false};
}

namespace {

constexpr int kFree = -1;
// No lock: the child's handler must find it consistent at any moment of the parent.
using Slots = std::array<std::atomic<int>, 4096>;

Slots& slots() {
  static Slots& instance = *[] {
    auto* made = new Slots();
    for (auto& slot : *made) slot.store(kFree, std::memory_order_relaxed);
    return made;
  }();
  return instance;
}

void in_child() {
  detail::forked_child.store(true, std::memory_order_relaxed);
  for (auto& slot : slots()) {
    const int fd = slot.exchange(kFree, std::memory_order_relaxed);
    if (fd != kFree) close(fd);
  }
}

}  // namespace

void arm_fork_guard() {
  static std::once_flag once;
  std::call_once(once, [] {
    slots();
    NEURON_CHECK(pthread_atfork(nullptr, nullptr, &in_child) == 0, "pthread_atfork failed");
  });
}

void close_in_child(int fd) {
  for (auto& slot : slots()) {
    int expected = kFree;
    if (slot.compare_exchange_strong(expected, fd)) return;
  }
}

void forget_in_child(int fd) {
  for (auto& slot : slots()) {
    int expected = fd;
    if (slot.compare_exchange_strong(expected, kFree)) return;
  }
}

}  // namespace neuron
