#include "bridge/runtime/inline_policy.h"

#include <ATen/Parallel.h>
#include <sched.h>

#include <string>

#include "engine/base/env.h"
#include "engine/device/device.h"

namespace neuron::bridge {

namespace {

int usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

void choose_inline_policy() {
  bool always = env().inline_choice == InlineChoice::kAlways;
  if (env().inline_choice == InlineChoice::kAuto) {
    const int workers = DeviceRuntime::get().allocation().local_world_size.value_or(1);
    always = workers * at::get_num_threads() >= usable_processors();
  }
  set_inline_policy(always ? InlinePolicy::kAlways : InlinePolicy::kNever);
}

}  // namespace neuron::bridge
