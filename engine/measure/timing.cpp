#include "engine/measure/timing.h"

#include <cstdint>

#include "engine/base/clock.h"

namespace neuron {

namespace {
double microseconds(std::int64_t ns) { return static_cast<double>(ns) / 1000; }
}  // namespace

std::vector<double> time_each(const RankMember& member, int calls, const std::function<void()>& call) {
  std::vector<double> times(static_cast<std::size_t>(calls));
  member.barrier();
  std::int64_t start = steady_ns();
  for (double& time : times) {
    call();
    const std::int64_t end = steady_ns();
    time = microseconds(end - start);
    start = end;
  }
  member.largest(times);
  return times;
}

double time_batch(const RankMember& member, int calls, const std::function<void()>& call) {
  member.barrier();
  const std::int64_t start = steady_ns();
  for (int i = 0; i < calls; ++i) call();
  double mean = microseconds(steady_ns() - start) / calls;
  member.largest({&mean, 1});
  return mean;
}

}  // namespace neuron
