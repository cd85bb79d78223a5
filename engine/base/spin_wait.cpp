#include "engine/base/spin_wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <ctime>

#include "engine/base/clock.h"

namespace neuron::detail {

namespace {

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout,
           WaitScope scope, std::uint32_t mask) {
  const int flags = scope == WaitScope::kProcess ? FUTEX_PRIVATE_FLAG : 0;
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation | flags, value, timeout,
                 nullptr, mask);
}

}  // namespace

bool futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Deadline deadline,
                WaitScope scope) {
  // FUTEX_WAIT_BITSET takes an absolute time of the clock behind std::chrono::steady_clock.
  timespec when{};
  if (!deadline.is_never()) {
    if (deadline.passed()) return false;
    const auto ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.when().time_since_epoch()).count();
    when.tv_sec = static_cast<std::time_t>(ns / kNanosecondsPerSecond);
    when.tv_nsec = static_cast<long>(ns % kNanosecondsPerSecond);
  }
  const timespec* timeout = deadline.is_never() ? nullptr : &when;
  if (futex(word, FUTEX_WAIT_BITSET, expected, timeout, scope, FUTEX_BITSET_MATCH_ANY) == 0) return true;
  return errno != ETIMEDOUT;
}

void futex_wake_all(std::atomic<std::uint32_t>& word, WaitScope scope) {
  futex(word, FUTEX_WAKE, INT_MAX, nullptr, scope, 0);
}

YieldPhase::YieldPhase(std::int64_t nanoseconds) : end_ns_(steady_ns() + nanoseconds) {}

bool YieldPhase::yield() {
  if (steady_ns() >= end_ns_) return false;
  sched_yield();
  return true;
}

}  // namespace neuron::detail
