#include "bridge/runtime/devices.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <mutex>

#include "bridge/runtime/errors.h"

namespace neuron::bridge {

namespace {

constexpr c10::DeviceIndex kUnset = -1;
constexpr std::size_t kMaxDevices = 256;

thread_local c10::DeviceIndex tls_device = kUnset;

// Started cores, so that the hot path is one load. Cores are never taken away.
std::array<std::atomic<Core*>, kMaxDevices> started_cores{};

}  // namespace

c10::DeviceIndex device_count() noexcept {
  return static_cast<c10::DeviceIndex>(DeviceRuntime::get().device_count());
}

c10::DeviceIndex current_device() noexcept {
  if (tls_device != kUnset) return tls_device;
  return static_cast<c10::DeviceIndex>(DeviceRuntime::get().bound_index().value_or(0));
}

void set_current_device(c10::DeviceIndex device) noexcept {
  if (device >= 0) tls_device = device;
}

c10::DeviceIndex exchange_device(c10::DeviceIndex device) noexcept {
  const auto previous = current_device();
  set_current_device(device);
  return previous;
}

c10::DeviceIndex resolve(c10::DeviceIndex device) noexcept { return device >= 0 ? device : current_device(); }

Core& core_of(c10::DeviceIndex device) {
  device = resolve(device);
  auto& runtime = DeviceRuntime::get();
  if (static_cast<std::size_t>(device) < kMaxDevices) {
    Core* core = started_cores[static_cast<std::size_t>(device)].load(std::memory_order_acquire);
    if (core != nullptr && !runtime.in_bad_fork()) [[likely]]
      return *core;
  }
  raise_if_error(runtime.status());
  Core* core = value_or_raise(runtime.core(device));
  started_cores[static_cast<std::size_t>(device)].store(core, std::memory_order_release);
  return *core;
}

}  // namespace neuron::bridge
