// Patience: how long a waiting rank keeps the processor before it sleeps.
//
// Looking costs the least delay, but only where the rank that is waited for has a processor of its own;
// yielding lets it run where it has none. Yielding to others, who compute, costs a time slice of theirs
// (milliseconds) and comes before any message: where that happens, waiters sleep at once for a while, since
// who wakes up is served first. Any number of threads may wait with one Patience.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "engine/base/clock.h"
#include "engine/base/spin_wait.h"

namespace neuron {

class Patience {
 public:
  // `crowded`: the group has more ranks than there are processors, so that who spins keeps a member from
  // running.
  explicit Patience(bool crowded) : looks_(crowded ? 1 : 200), pauses_(crowded ? 0 : 50) {}

  // True as soon as done() is; false when it is time to sleep.
  template <typename Done>
  bool wait_awake(const Done& done) {
    // A pause takes longer than a message between two processors: so the first looks go without.
    for (int i = 0; i < looks_; ++i) {
      if (done()) return true;
    }
    for (int i = 0; i < pauses_; ++i) {
      detail::cpu_pause();
      if (done()) return true;
    }
    return yield_until(done);
  }

 private:
  static constexpr std::int64_t kYieldNs = 100'000;   // in all
  static constexpr std::int64_t kCostlyNs = 300'000;  // a single one; rank for rank it is a few microseconds
  static constexpr int kRestWaits = 200;

  template <typename Done>
  bool yield_until(const Done& done) {
    if (int rest = rest_.load(std::memory_order_relaxed); rest > 0) {
      rest_.store(rest - 1, std::memory_order_relaxed);
      return false;
    }
    const std::int64_t start = steady_ns();
    for (std::int64_t before = start; before - start < kYieldNs;) {
      sched_yield();
      if (done()) return true;
      const std::int64_t after = steady_ns();
      if (after - before > kCostlyNs) {
        rest_.store(kRestWaits, std::memory_order_relaxed);
        return false;
      }
      before = after;
    }
    return false;
  }

  const int looks_;
  const int pauses_;
  std::atomic<int> rest_{0};  // waits that do not yield
};

}  // namespace neuron
