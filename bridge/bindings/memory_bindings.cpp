// Memory statistics and the cache.
#include <torch/csrc/utils/pybind.h>

#include "bridge/bindings/bindings.h"
#include "bridge/runtime/allocator.h"
#include "bridge/runtime/devices.h"
#include "bridge/runtime/host_allocator.h"

namespace py = pybind11;

namespace neuron::bridge {

namespace {

py::dict counter(const MemoryCounter& value) {
  py::dict out;
  out["current"] = value.current;
  out["peak"] = value.peak;
  out["allocated"] = value.allocated;
  out["freed"] = value.freed;
  return out;
}

// Zeros for a device that was not started: looking starts nothing.
MemoryStats stats_of(c10::DeviceIndex device) {
  device = resolve(device);
  return DeviceRuntime::get().core_started(device) ? core_of(device).pool().stats() : MemoryStats{};
}

py::dict memory_stats(int device) {
  const MemoryStats stats = stats_of(static_cast<c10::DeviceIndex>(device));
  py::dict out;
  out["allocated_bytes"] = counter(stats.allocated_bytes);
  out["requested_bytes"] = counter(stats.requested_bytes);
  out["reserved_bytes"] = counter(stats.reserved_bytes);
  // The product's order is reserved >= allocated >= active: freed memory that another stream still uses is not active.
  out["active_bytes"] = counter(stats.allocated_bytes);
  out["kept_bytes"] = counter(stats.kept_bytes);
  out["segments"] = counter(stats.segments);
  out["blocks"] = counter(stats.blocks);
  out["num_alloc_retries"] = stats.alloc_retries;
  out["num_ooms"] = stats.ooms;
  out["num_tensor_frees"] = stats.frees;
  out["allocation_requests"] = stats.allocation_requests;
  out["limit"] = stats.limit;
  return out;
}

}  // namespace

void bind_memory(py::module_& module) {
  module.def("memory_stats", &memory_stats);
  module.def("reset_peak_memory_stats",
             [](int device) { device_allocator().resetPeakStats(static_cast<c10::DeviceIndex>(device)); });
  module.def("reset_accumulated_memory_stats", [](int device) {
    device_allocator().resetAccumulatedStats(static_cast<c10::DeviceIndex>(device));
  });
  module.def(
      "empty_cache", [] { device_allocator().emptyCache({0, 0}); }, py::call_guard<py::gil_scoped_release>());
  module.def("empty_host_cache", [] { host_allocator().empty_cache(); });
  // Bytes of host memory behind the device memory now; 0 when not started.
  module.def("committed_bytes", [](int device) -> std::size_t {
    const auto index = resolve(static_cast<c10::DeviceIndex>(device));
    return DeviceRuntime::get().core_started(index) ? core_of(index).heap().committed() : 0;
  });
}

}  // namespace neuron::bridge
