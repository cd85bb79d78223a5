// Waiting that costs no more than it must: spin, then yield, then sleep in the kernel; wake only who sleeps.
//
// Both classes hold no pointers and are valid when zero-filled, so that they may lie in memory that several
// processes map (the Shared… types). All members may be called from any thread.
//
// No wake-up is lost because each side writes its own word before it reads the other's, all sequentially
// consistent: the publisher stores the state and then looks for sleepers, the sleeper announces itself and
// then looks at the state.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/base/deadline.h"

namespace neuron {

// Who may wait on a word: threads of this process, or of every process that maps it.
enum class WaitScope : std::uint8_t { kProcess, kShared };

// How long a waiter keeps the processor before it sleeps.
struct SpinBudget {
  int pauses = 50;                  // with the pause instruction: a few microseconds
  std::int64_t yield_ns = 100'000;  // then with sched_yield
};

namespace detail {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
                  std::atomic<std::uint64_t>::is_always_lock_free,
              "words in shared memory need lock-free atomics");

inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Sleeps while `word` holds `expected`. May wake for no reason. False: the deadline has passed.
bool futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Deadline deadline, WaitScope scope);
void futex_wake_all(std::atomic<std::uint32_t>& word, WaitScope scope);

// The yielding part of a wait.
class YieldPhase {
 public:
  explicit YieldPhase(std::int64_t nanoseconds);
  // Gives the processor away once. False when the time is used up.
  bool yield();

 private:
  std::int64_t end_ns_;
};

// Spins and yields. True as soon as done() is.
template <typename Done>
bool wait_awake(Done&& done, Deadline deadline, const SpinBudget& budget) {
  if (done()) return true;
  for (int i = 0; i < budget.pauses; ++i) {
    cpu_pause();
    if (done()) return true;
  }
  if (budget.yield_ns <= 0) return false;
  YieldPhase phase(budget.yield_ns);
  while (phase.yield()) {
    if (done()) return true;
    if (deadline.passed()) return false;
  }
  return done();
}

}  // namespace detail

// A word to sleep on until a condition of the caller's holds.
//
// The state behind the condition is written with memory_order_seq_cst (a store, or a read-modify-write)
// before notify(), and done() reads it with memory_order_seq_cst.
template <WaitScope scope>
class BasicWakeWord {
 public:
  // True when done() held; false when the deadline passed first.
  template <typename Done>
  bool wait(Done&& done, Deadline deadline, const SpinBudget& budget = {}) {
    if (detail::wait_awake(done, deadline, budget)) return true;
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    bool held = false;
    for (;;) {
      const std::uint32_t epoch = epoch_.load(std::memory_order_seq_cst);
      held = done();
      if (held || !detail::futex_wait(epoch_, epoch, deadline, scope)) break;
    }
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    return held || done();
  }

  // After the state has changed. A system call only when somebody sleeps.
  void notify() {
    if (sleepers_.load(std::memory_order_seq_cst) == 0) [[likely]]
      return;
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    detail::futex_wake_all(epoch_, scope);
  }

 private:
  std::atomic<std::uint32_t> epoch_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

// A number that only grows, and that others wait for. Sleepers note the smallest number that one of them
// waits for, so that the publisher makes no system call before it is reached.
template <WaitScope scope>
class BasicWaitCounter {
 public:
  std::uint64_t load() const { return value_.load(std::memory_order_acquire); }

  // One publisher at a time; `value` is not below the last one.
  void publish(std::uint64_t value) {
    value_.store(value, std::memory_order_seq_cst);
    if (value >= ~sleeper_.load(std::memory_order_seq_cst)) [[unlikely]]
      wake();
  }

  // True when the number is at least `target`; false when the deadline passed first.
  bool wait(std::uint64_t target, Deadline deadline, const SpinBudget& budget = {}) {
    const auto reached = [&] { return value_.load(std::memory_order_seq_cst) >= target; };
    if (detail::wait_awake(reached, deadline, budget)) return true;
    for (;;) {
      const std::uint32_t epoch = epoch_.load(std::memory_order_seq_cst);
      announce(target);
      if (reached()) return true;
      if (!detail::futex_wait(epoch_, epoch, deadline, scope)) return reached();
    }
  }

 private:
  void announce(std::uint64_t target) {
    std::uint64_t present = sleeper_.load(std::memory_order_seq_cst);
    while (present < ~target &&
           !sleeper_.compare_exchange_weak(present, ~target, std::memory_order_seq_cst)) {
    }
  }

  // Everybody wakes; who still has to wait announces itself again. The epoch changes after the announcements
  // are taken away: an announcement that comes later than that finds the epoch changed before it can sleep.
  void wake() {
    sleeper_.exchange(0, std::memory_order_seq_cst);
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    detail::futex_wake_all(epoch_, scope);
  }

  std::atomic<std::uint64_t> value_{0};
  std::atomic<std::uint64_t> sleeper_{
      0};  // the complement of the smallest target slept for; 0: nobody sleeps
  std::atomic<std::uint32_t> epoch_{0};
};

using WakeWord = BasicWakeWord<WaitScope::kProcess>;
using SharedWakeWord = BasicWakeWord<WaitScope::kShared>;
using WaitCounter = BasicWaitCounter<WaitScope::kProcess>;
using SharedWaitCounter = BasicWaitCounter<WaitScope::kShared>;

}  // namespace neuron
