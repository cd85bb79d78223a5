// Clocks, in nanoseconds.
#pragma once

#include <cstdint>
#include <ctime>

namespace neuron {

inline constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;

namespace detail {
inline std::int64_t read_clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::int64_t>(now.tv_sec) * kNanosecondsPerSecond + now.tv_nsec;
}
}  // namespace detail

// Never goes back; the same for all processes of a machine; what std::chrono::steady_clock shows.
inline std::int64_t steady_ns() { return detail::read_clock(CLOCK_MONOTONIC); }
// Since 1970.
inline std::int64_t wall_ns() { return detail::read_clock(CLOCK_REALTIME); }
// Processor time of the calling thread. A system call: some 100 ns.
inline std::int64_t thread_cpu_ns() { return detail::read_clock(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace neuron
