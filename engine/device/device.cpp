#include "engine/device/device.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "engine/base/env.h"
#include "engine/base/fork.h"
#include "engine/base/mutex.h"

namespace neuron {

namespace {

constexpr int kNone = -1;
// Callers count devices in a signed byte; the largest instances have more cores than that.
constexpr std::size_t kMostDevices = 127;

// What the environment says. Replaced as a whole by reload_environment().
struct Setup {
  Status status;
  const InstanceType* instance = nullptr;
  CoreAllocation allocation;
};

AllocationRequest request_of(const Environment& environment) {
  AllocationRequest request;
  request.visible_cores = environment.visible_cores;
  request.num_cores = environment.num_cores;
  request.lnc = environment.logical_nc_config ? environment.logical_nc_config : environment.virtual_core_size;
  request.local_rank = environment.local_rank;
  request.local_world_size = environment.local_world_size;
  return request;
}

Setup make_setup() {
  Setup setup;
  setup.status = env_status();
  const auto instance = find_instance_type(env().instance.value_or(""));
  if (!instance.is_ok() && setup.status.is_ok()) setup.status = instance.status();
  setup.instance = instance.is_ok() ? instance.value() : find_instance_type("trn2.48xlarge").value();
  auto allocation = allocate_cores(*setup.instance, request_of(env()));
  if (allocation.is_ok() &&
      allocation.value().local_world_size.value_or(0) > static_cast<int>(kMostDevices)) {
    allocation = Status(StatusCode::kInvalidArgument,
                        "LOCAL_WORLD_SIZE=" + std::to_string(*allocation.value().local_world_size) +
                            ": at most " + std::to_string(kMostDevices) + " workers fit on one machine");
  }
  if (allocation.is_ok()) {
    setup.allocation = std::move(allocation).value();
  } else if (setup.status.is_ok()) {
    setup.status = allocation.status();
  }
  return setup;
}

int processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// With a rank for every processor nobody is left to run ahead on.
InlinePolicy choose_inline_policy(const CoreAllocation& allocation) {
  switch (env().inline_choice) {
    case InlineChoice::kAlways:
      return InlinePolicy::kAlways;
    case InlineChoice::kNever:
      return InlinePolicy::kNever;
    case InlineChoice::kAuto:
      break;
  }
  return allocation.local_world_size.value_or(1) >= processors() ? InlinePolicy::kAlways
                                                                 : InlinePolicy::kNever;
}

Status out_of_range(int index, int count) {
  return Status(StatusCode::kInvalidArgument, "Device index " + std::to_string(index) +
                                                  " is out of range [0, " + std::to_string(count) + ")");
}

Status bound_elsewhere(int index, int bound) {
  return Status(
      StatusCode::kInvalidArgument,
      "Attempted to have more than one device per process in distributed setup: this process has neuron:" +
          std::to_string(bound) + ", not neuron:" + std::to_string(index));
}

}  // namespace

class DeviceRuntime::Impl {
 public:
  Impl() { load(); }

  void load() {
    auto* fresh = new Setup(make_setup());
    setup.store(fresh, std::memory_order_release);
    bound.store(fresh->allocation.local_rank.value_or(kNone), std::memory_order_release);
    set_inline_policy(choose_inline_policy(fresh->allocation));
  }

  const Setup& current() const { return *setup.load(std::memory_order_acquire); }

  Status check_bound(int index) const {
    const int only = bound.load(std::memory_order_acquire);
    const bool may = only == kNone || only == index || env().limits == Limits::kExtended;
    return may ? Status::ok() : bound_elsewhere(index, only);
  }

  // A started core that is not `index`, or kNone.
  int other_started(int index) const {
    for (std::size_t i = 0; i < kMostDevices; ++i) {
      if (static_cast<int>(i) != index && cores[i].load(std::memory_order_acquire) != nullptr) {
        return static_cast<int>(i);
      }
    }
    return kNone;
  }

  CoreOptions options_of(int index) const {
    const Setup& now = current();
    CoreOptions options;
    options.index = index;
    options.logical_core = now.allocation.visible[static_cast<std::size_t>(index)];
    const std::uint64_t given = env().hbm_bytes.value_or(0);
    options.memory_limit = given != 0 ? given : memory_per_logical_core(*now.instance, now.allocation.lnc);
    options.host_reserve = env().host_reserve;
    options.run_ahead.commands = static_cast<std::uint32_t>(env().max_commands_ahead);
    if (env().max_bytes_ahead) options.run_ahead.bytes = *env().max_bytes_ahead;
    return options;
  }

  std::atomic<const Setup*> setup{nullptr};  // earlier ones are kept: references to them are out
  std::atomic<int> bound{kNone};
  std::atomic<bool> started{false};
  std::atomic<bool> closed{false};
  Mutex start;                                           // one core is started at a time
  std::array<std::atomic<Core*>, kMostDevices> cores{};  // leaked
};

DeviceRuntime::DeviceRuntime() : impl_(new Impl()) {}

DeviceRuntime& DeviceRuntime::get() {
  static DeviceRuntime& instance = *new DeviceRuntime();
  return instance;
}

Status DeviceRuntime::status() const { return impl_->current().status; }
const InstanceType& DeviceRuntime::instance() const { return *impl_->current().instance; }
const CoreAllocation& DeviceRuntime::allocation() const { return impl_->current().allocation; }

int DeviceRuntime::device_count() const {
  const Setup& setup = impl_->current();
  if (!setup.status.is_ok()) return 0;
  const auto cores = std::min(setup.allocation.visible.size(), kMostDevices);
  return setup.allocation.local_world_size.value_or(static_cast<int>(cores));
}

std::optional<int> DeviceRuntime::bound_index() const {
  const int bound = impl_->bound.load(std::memory_order_acquire);
  return bound == kNone ? std::nullopt : std::optional<int>(bound);
}

Status DeviceRuntime::bind(int index) {
  MutexLock lock(impl_->start);
  if (index < 0 || index >= device_count()) return out_of_range(index, device_count());
  const int other = impl_->other_started(index);
  if (other != kNone && env().limits != Limits::kExtended) return bound_elsewhere(index, other);
  impl_->bound.store(index, std::memory_order_release);
  return Status::ok();
}

void DeviceRuntime::unbind() {
  impl_->bound.store(allocation().local_rank.value_or(kNone), std::memory_order_release);
}

bool DeviceRuntime::started() const { return impl_->started.load(std::memory_order_acquire); }

bool DeviceRuntime::core_started(int index) const {
  return index >= 0 && static_cast<std::size_t>(index) < kMostDevices &&
         impl_->cores[static_cast<std::size_t>(index)].load(std::memory_order_acquire) != nullptr;
}

Result<Core*> DeviceRuntime::core(int index) {
  if (in_bad_fork()) {
    return Status(
        StatusCode::kUnavailable,
        "Cannot re-initialize neuron in forked subprocess: the parent has started its devices. Use the "
        "'spawn' or 'forkserver' start method, or fork before the first use of a neuron device");
  }
  if (Status wrong = status(); !wrong.is_ok()) return wrong;
  if (index < 0 || index >= device_count()) return out_of_range(index, device_count());
  auto& slot = impl_->cores[static_cast<std::size_t>(index)];
  if (Status wrong = impl_->check_bound(index); !wrong.is_ok()) return wrong;
  if (Core* present = slot.load(std::memory_order_acquire)) return present;
  MutexLock lock(impl_->start);
  // Another thread may have started it, or bound the process, meanwhile.
  if (Status wrong = impl_->check_bound(index); !wrong.is_ok()) return wrong;
  if (Core* present = slot.load(std::memory_order_acquire)) return present;
  if (impl_->closed.load(std::memory_order_acquire)) {
    return Status(StatusCode::kUnavailable, "the Neuron runtime of this process has been shut down");
  }
  auto made = Core::create(impl_->options_of(index));
  if (!made.is_ok()) return made.status();
  Core* core = std::move(made).value().release();
  impl_->started.store(true, std::memory_order_release);
  slot.store(core, std::memory_order_release);
  return core;
}

void DeviceRuntime::reload_environment() {
  if (in_bad_fork()) return;
  MutexLock lock(impl_->start);
  if (started()) return;
  reload_env();
  impl_->load();
}

bool DeviceRuntime::in_bad_fork() const { return in_forked_child(); }

void DeviceRuntime::shutdown(std::chrono::milliseconds limit) {
  if (in_bad_fork()) return;
  impl_->closed.store(true, std::memory_order_release);
  const Deadline deadline = Deadline::after(limit);
  std::vector<Core*> cores;
  for (const auto& slot : impl_->cores) {
    if (Core* core = slot.load(std::memory_order_acquire)) cores.push_back(core);
  }
  for (Core* core : cores) {
    for (Stream* stream : core->streams()) (void)stream->wait_until(stream->submitted(), deadline);
  }
  for (Core* core : cores) core->close();
}

}  // namespace neuron
