// The PrivateUse1 hooks: what ATen's generic code asks of an accelerator. Never throws where the interface
// forbids it.
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "bridge/runtime/allocator.h"
#include "bridge/runtime/devices.h"
#include "bridge/runtime/errors.h"
#include "bridge/runtime/generator.h"
#include "bridge/runtime/host_allocator.h"
#include "bridge/runtime/storage.h"

namespace neuron::bridge {

namespace {

class NeuronHooks final : public at::PrivateUse1HooksInterface {
 public:
  void init() const override { raise_if_error(DeviceRuntime::get().status()); }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    return DeviceRuntime::get().core_started(device);
  }

  c10::DeviceIndex deviceCount() const override { return device_count(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override { return exchange_device(device); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchange_device(device);
  }

  bool isPinnedPtr(const void* pointer) const override { return is_pinned(pointer); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &host_allocator(); }
  at::Device getDeviceFromPtr(void* pointer) const override {
    auto& runtime = DeviceRuntime::get();
    for (int device = 0; device < runtime.device_count(); ++device) {
      const auto index = static_cast<c10::DeviceIndex>(device);
      if (runtime.core_started(device) && core_of(index).heap().contains(pointer))
        return neuron_device(index);
    }
    TORCH_CHECK(false, "neuron: ", pointer, " is no address in the memory of a started device");
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override { return make_generator(device); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t nbytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), nbytes);
  }
};

const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new NeuronHooks());
  at::setHostAllocator(at::kPrivateUse1, &host_allocator());
  return true;
}();

}  // namespace

}  // namespace neuron::bridge
