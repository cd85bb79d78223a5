// The memory history and snapshots, in the words and the shape of torch.cuda.memory's, which PyTorch's viewers
// read.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bridge/bindings/bindings.h"
#include "bridge/runtime/call_site.h"
#include "bridge/runtime/devices.h"
#include "engine/device/memory_history.h"

namespace py = pybind11;

namespace neuron::bridge {

namespace {

// By MemoryAction.
constexpr std::array<const char*, kMemoryActions> kActionNames = {
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "oom", "snapshot"};

constexpr const char* state_name(BlockState state) {
  switch (state) {
    case BlockState::kUsed:
      return "active_allocated";
    case BlockState::kKept:
      return "active_awaiting_free";
    case BlockState::kFree:
      break;
  }
  return "inactive";
}

// Lists of frames, one for each call site: most sites are in a snapshot many times.
class FrameLists {
 public:
  py::list of(const CallSite& site) {
    if (site == nullptr) return py::list();
    const auto [known, is_new] = lists_.try_emplace(site.get());
    if (is_new) {
      for (const PythonFrame& frame : stack_of(site)) {
        py::dict entry;
        entry["filename"] = frame.place->file;
        entry["line"] = frame.line;
        entry["name"] = frame.place->function;
        known->second.append(std::move(entry));
      }
    }
    return known->second;
  }

 private:
  std::unordered_map<const void*, py::list> lists_;
};

std::uintptr_t address(const std::byte* data) { return reinterpret_cast<std::uintptr_t>(data); }

py::dict block_entry(const BlockReading& block, FrameLists& frames) {
  py::dict out;
  out["address"] = address(block.data);
  out["size"] = block.nbytes;
  out["requested_size"] = block.requested;
  out["state"] = state_name(block.state);
  out["frames"] = frames.of(block.site);
  return out;
}

py::dict segment_entry(const SegmentReading& segment, c10::DeviceIndex device, FrameLists& frames) {
  std::size_t allocated = 0, active = 0, requested = 0;
  py::list blocks;
  for (const BlockReading& block : segment.blocks) {
    if (block.state == BlockState::kUsed) allocated += block.nbytes;
    if (block.state != BlockState::kFree) active += block.nbytes;
    requested += block.requested;
    blocks.append(block_entry(block, frames));
  }
  py::dict out;
  out["device"] = static_cast<int>(device);
  out["address"] = address(segment.data);
  out["total_size"] = segment.nbytes;
  out["allocated_size"] = allocated;
  out["active_size"] = active;
  out["requested_size"] = requested;
  out["stream"] = segment.stream;
  out["segment_type"] = segment.small ? "small" : "large";
  out["segment_pool_id"] = py::make_tuple(0, 0);
  out["is_expandable"] = false;
  out["frames"] = py::list();
  out["blocks"] = std::move(blocks);
  return out;
}

py::dict event_entry(const MemoryEvent& event, FrameLists& frames) {
  py::dict out;
  out["action"] = kActionNames[static_cast<std::size_t>(event.action)];
  if (event.action == MemoryAction::kOutOfMemory) {
    out["device_free"] = event.device_free;
  } else {
    out["addr"] = address(event.data);
  }
  out["size"] = event.nbytes;
  out["stream"] = event.stream;
  out["time_us"] = event.time_ns / 1000;
  out["frames"] = frames.of(event.site);
  return out;
}

// Of every device; one that has not started has neither segments nor events.
py::dict memory_snapshot() {
  FrameLists frames;
  py::list segments, traces;
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
    py::list trace;
    if (DeviceRuntime::get().core_started(device)) {
      MemoryEvent taken;
      taken.action = MemoryAction::kSnapshot;
      taken.core = device;
      record_memory_event(std::move(taken));
      for (const SegmentReading& segment : core_of(device).pool().read_segments()) {
        segments.append(segment_entry(segment, device, frames));
      }
      for (const MemoryEvent& event : memory_events(device)) trace.append(event_entry(event, frames));
    }
    traces.append(std::move(trace));
  }
  py::dict out;
  out["segments"] = std::move(segments);
  out["device_traces"] = std::move(traces);
  out["external_annotations"] = py::list();
  return out;
}

void start(int sites, std::size_t max_events, const std::vector<std::string>& skipped) {
  MemoryHistoryOptions options{static_cast<SitesKept>(sites), max_events, {}};
  for (std::size_t i = 0; i < kMemoryActions; ++i) {
    options.skipped[i] = std::find(skipped.begin(), skipped.end(), kActionNames[i]) != skipped.end();
  }
  start_memory_history(options);
}

}  // namespace

void bind_memory_history(py::module_& module) {
  set_call_site_recorder(&call_site);
  // `sites`: 0 none, 1 of live blocks, 2 also of allocations that were freed again, 3 also of frees.
  module.def("start_memory_history", &start);
  module.def("stop_memory_history", &stop_memory_history);
  module.def("clear_memory_history", &clear_memory_history);
  module.def("memory_snapshot", &memory_snapshot);
  module.def("memory_actions", [] { return kActionNames; });
}

}  // namespace neuron::bridge
