// The c10 device guard: devices, streams and events as PyTorch's generic code asks for them.
// Registered for PrivateUse1 when the module is loaded; every method may be called from any thread.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "bridge/runtime/allocator.h"
#include "bridge/runtime/autograd_threads.h"
#include "bridge/runtime/devices.h"
#include "bridge/runtime/event.h"
#include "bridge/runtime/python_unlocked.h"
#include "bridge/runtime/streams.h"
#include "engine/base/env.h"

namespace neuron::bridge {

namespace {

class NeuronGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }

  c10::Device exchangeDevice(c10::Device device) const override {
    return neuron_device(exchange_device(device.index()));
  }
  c10::Device getDevice() const override { return neuron_device(current_device()); }
  void setDevice(c10::Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { set_current_device(device.index()); }
  c10::DeviceIndex deviceCount() const noexcept override {
    note_devices_counted();
    return device_count();
  }

  c10::Stream getStream(c10::Device device) const override { return current_c10_stream(device.index()); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return default_c10_stream(device.index());
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return pool_c10_stream(device.index(), high_priority ? -1 : 0);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return pool_c10_stream(device.index(), priority);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_current_stream(stream); }
  bool queryStream(const c10::Stream& stream) const override {
    if (!DeviceRuntime::get().core_started(stream.device_index())) return true;
    return engine_stream(stream).query();
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    if (!DeviceRuntime::get().core_started(stream.device_index())) return;
    synchronize(engine_stream(stream));
  }
  void synchronizeDevice(c10::DeviceIndex device) const override { synchronize_device(device); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    record_stream(data, stream);
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*device*/,
              c10::EventFlag flag) const override {
    if (*event == nullptr) {
      // Work's and FSDP's events are made without timing; torch.Event says which it wants.
      *event = new Event(flag == c10::EventFlag::BACKEND_DEFAULT);
    }
    const PythonUnlocked unlocked;
    engine_event(*event)->record(engine_stream(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    const PythonUnlocked unlocked;
    engine_event(event)->wait(engine_stream(stream));
  }
  bool queryEvent(void* event) const override { return event == nullptr || engine_event(event)->query(); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) synchronize_event(*engine_event(event));
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    delete engine_event(event);
  }
  double elapsedTime(void* start, void* end, c10::DeviceIndex /*device*/) const override {
    TORCH_CHECK(start != nullptr && end != nullptr,
                "neuron: both events must be recorded before elapsed_time() is asked");
    return elapsed_time(*engine_event(start), *engine_event(end));
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, NeuronGuard);

}  // namespace

}  // namespace neuron::bridge
