#include "bridge/runtime/inline_policy.h"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "engine/base/clock.h"
#include "engine/base/env.h"
#include "engine/device/device.h"

namespace neuron::bridge {

namespace {

constexpr unsigned kSubmissionsBetweenLooks = 128;
constexpr std::int64_t kNanosecondsBetweenLooks = 10'000'000;
// Weight of the newest look: about ten looks have to agree.
constexpr double kWeight = 0.1;

std::atomic<bool> fixed{false};
std::atomic<bool> follows_load{false};
std::atomic<std::int64_t> next_look_ns{0};
std::atomic<double> busy_others{0.0};

int usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

// Threads of the whole machine that run or want to run now: the fourth field of /proc/loadavg, "3/210".
int runnable_threads() {
  static const int file = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
  std::array<char, 128> text{};
  if (file < 0 || pread(file, text.data(), text.size() - 1, 0) <= 0) return 0;
  const char* field = text.data();
  for (int i = 0; i < 3; ++i) {
    field = std::strchr(field, ' ');
    if (field == nullptr) return 0;
    ++field;
  }
  return std::atoi(field);
}

void look() {
  // Ours: the submitter, and the stream's thread where it drains.
  const int ours = inline_policy() == InlinePolicy::kAlways ? 1 : 2;
  const double others = std::max(runnable_threads() - ours, 0);
  const double smoothed = busy_others.load(std::memory_order_relaxed) * (1.0 - kWeight) + others * kWeight;
  busy_others.store(smoothed, std::memory_order_relaxed);
  const double wanted = smoothed + at::get_num_threads() + 1;
  // Half a thread of slack on either side, so that the choice does not flap.
  const double room = usable_processors() + (inline_policy() == InlinePolicy::kAlways ? 0.25 : 0.5);
  set_inline_policy(wanted > room ? InlinePolicy::kAlways : InlinePolicy::kNever);
}

}  // namespace

void choose_inline_policy() {
  if (fixed.load()) return;
  const InlineChoice choice = env().inline_choice;
  const int workers = DeviceRuntime::get().allocation().local_world_size.value_or(1);
  const bool full = workers * at::get_num_threads() >= usable_processors();
  const bool always = choice == InlineChoice::kAlways || (choice == InlineChoice::kAuto && full);
  set_inline_policy(always ? InlinePolicy::kAlways : InlinePolicy::kNever);
  follows_load.store(choice == InlineChoice::kAuto && workers < usable_processors());
}

void fix_inline_policy(bool always) {
  fixed.store(true);
  follows_load.store(false);
  set_inline_policy(always ? InlinePolicy::kAlways : InlinePolicy::kNever);
}

void review_inline_policy() {
  thread_local unsigned submissions = 0;
  if (++submissions % kSubmissionsBetweenLooks != 0 || !follows_load.load(std::memory_order_relaxed)) return;
  std::int64_t due = next_look_ns.load(std::memory_order_relaxed);
  const std::int64_t now = steady_ns();
  if (now < due || !next_look_ns.compare_exchange_strong(due, now + kNanosecondsBetweenLooks)) return;
  look();
}

}  // namespace neuron::bridge
