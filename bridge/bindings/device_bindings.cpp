// Devices, random generators.
#include <c10/core/DeviceType.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/pybind.h>

#include "bridge/bindings/bindings.h"
#include "bridge/rules/rules.h"
#include "bridge/runtime/autograd_threads.h"
#include "bridge/runtime/devices.h"
#include "bridge/runtime/errors.h"
#include "bridge/runtime/generator.h"
#include "bridge/runtime/streams.h"
#include "engine/base/env.h"

namespace py = pybind11;

namespace neuron::bridge {

namespace {

void check_index(int device) {
  raise_if_error(DeviceRuntime::get().status());
  TORCH_CHECK(device >= 0 && device < device_count(), "Device index ", device, " is out of range: there are ",
              static_cast<int>(device_count()), " neuron devices");
  const auto bound = DeviceRuntime::get().bound_index();
  TORCH_CHECK(!bound || *bound == device || limits_lifted(),
              "Attempted to have more than one device per process in distributed setup: this process's "
              "device is neuron:",
              bound.value_or(-1), ", not neuron:", device, " (NEURON_EMU_LIMITS=extended allows several)");
}

py::dict device_properties(int device) {
  auto& runtime = DeviceRuntime::get();
  if (device < 0) device = current_device();
  check_index(device);
  const InstanceType& type = runtime.instance();
  py::dict out;
  out["name"] = "neuron:" + std::to_string(device);
  out["total_memory"] = env().hbm_bytes.value_or(0) > 0
                            ? *env().hbm_bytes
                            : memory_per_logical_core(type, runtime.allocation().lnc);
  out["instance"] = std::string(type.name);
  out["chip"] = std::string(type.chip);
  out["logical_core"] = runtime.allocation().visible.at(static_cast<std::size_t>(device));
  out["lnc"] = runtime.allocation().lnc;
  out["emulated"] = true;
  return out;
}

}  // namespace

void bind_device(py::module_& module) {
  module.def("device_count", [] { return static_cast<int>(device_count()); });
  module.def("current_device", [] { return static_cast<int>(current_device()); });
  module.def("set_device", [](int device) {
    check_index(device);
    set_current_device(static_cast<c10::DeviceIndex>(device));
  });
  module.def("exchange_device", [](int device) {
    return static_cast<int>(exchange_device(static_cast<c10::DeviceIndex>(device)));
  });
  module.def("maybe_exchange_device", [](int device) {
    return static_cast<int>(exchange_device(static_cast<c10::DeviceIndex>(device)));
  });
  module.def("is_started", [] { return DeviceRuntime::get().started(); });
  module.def("runtime_status", []() -> std::optional<std::string> {
    const Status status = DeviceRuntime::get().status();
    return status.is_ok() ? std::nullopt : std::optional<std::string>(status.message());
  });
  module.def("bound_index", [] { return DeviceRuntime::get().bound_index(); });
  module.def("in_bad_fork", [] { return DeviceRuntime::get().in_bad_fork(); });
  module.def("lazy_init", [] { core_of(-1); }, py::call_guard<py::gil_scoped_release>());
  module.def(
      "synchronize", [](int device) { synchronize_device(static_cast<c10::DeviceIndex>(device)); },
      py::arg("device") = -1, py::call_guard<py::gil_scoped_release>());
  module.def("device_properties", &device_properties);
  module.def("can_access_peer", [](int, int) { return true; });
  module.def(
      "wait_for_autograd_threads",
      [](int limit_ms) { wait_for_autograd_threads(std::chrono::milliseconds(limit_ms)); },
      py::call_guard<py::gil_scoped_release>());
  module.def(
      "shutdown", [](int limit_ms) { DeviceRuntime::get().shutdown(std::chrono::milliseconds(limit_ms)); },
      py::call_guard<py::gil_scoped_release>());
  module.def("default_generator", [](int device) {
    return py::reinterpret_steal<py::object>(
        THPGenerator_initDefaultGenerator(default_generator(static_cast<c10::DeviceIndex>(device))));
  });
}

}  // namespace neuron::bridge
