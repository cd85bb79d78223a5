// Devices: the current device of each thread, and the cores behind the indices.
//
// Looking (count, current) never starts a core and never throws; core_of() starts one.
#pragma once

#include <c10/core/Device.h>

#include "engine/device/device.h"

namespace neuron::bridge {

c10::DeviceIndex device_count() noexcept;

// A new thread's current device is the process's own core: the bound one, else 0.
c10::DeviceIndex current_device() noexcept;
// No check: autograd's threads call it for every index. Negative indices change nothing.
void set_current_device(c10::DeviceIndex device) noexcept;
c10::DeviceIndex exchange_device(c10::DeviceIndex device) noexcept;

// -1 -> the current device.
c10::DeviceIndex resolve(c10::DeviceIndex device) noexcept;
inline c10::Device neuron_device(c10::DeviceIndex device) { return {c10::DeviceType::PrivateUse1, device}; }

// Starts the core at need. Raises when the environment is wrong, the index is out of range or bound
// elsewhere, or in a forked child.
Core& core_of(c10::DeviceIndex device);

}  // namespace neuron::bridge
