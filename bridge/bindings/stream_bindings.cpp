// Streams by (stream_id, device_index, device_type), as torch.Stream carries them; and gates, with which
// tests hold a stream's commands back instead of sleeping.
#include <torch/csrc/utils/pybind.h>

#include "bridge/bindings/bindings.h"
#include "bridge/runtime/devices.h"
#include "bridge/runtime/event.h"
#include "bridge/runtime/streams.h"
#include "engine/testing/gate.h"

namespace py = pybind11;

namespace neuron::bridge {

namespace {

using StreamTriple = std::tuple<std::int64_t, int, int>;

StreamTriple triple(const c10::Stream& stream) {
  return {stream.id(), static_cast<int>(stream.device_index()), static_cast<int>(stream.device_type())};
}

c10::Stream stream_of(std::int64_t id, int device) {
  return c10::Stream(c10::Stream::UNSAFE, neuron_device(static_cast<c10::DeviceIndex>(device)), id);
}

// Holds the commands that are submitted to the stream after it, until open() is called.
std::shared_ptr<Gate> hold(std::int64_t id, int device) {
  auto gate = std::make_shared<Gate>();
  // The command keeps the gate alive, as Python may drop its reference first.
  auto pass = [gate](Stream&) {
    gate->pass();
    return Status::ok();
  };
  submit(engine_stream(stream_of(id, device)), std::make_unique<FunctionCommand<decltype(pass)>>(
                                                   CommandKind::kHost, RunMode::kQueued, "gate", pass));
  return gate;
}

}  // namespace

void bind_streams(py::module_& module) {
  module.def("current_stream",
             [](int device) { return triple(current_c10_stream(static_cast<c10::DeviceIndex>(device))); });
  module.def("default_stream",
             [](int device) { return triple(default_c10_stream(static_cast<c10::DeviceIndex>(device))); });
  module.def("set_stream", [](std::int64_t id, int device, int /*type*/) {
    set_current_device(static_cast<c10::DeviceIndex>(device));
    exchange_current_stream(stream_of(id, device));
  });
  module.def("get_stream_from_pool", [](int priority, int device) {
    return triple(pool_c10_stream(static_cast<c10::DeviceIndex>(device), priority));
  });
  module.def("stream_priority", [](std::int64_t id, int device) {
    return id == 0 ? 0 : engine_stream(stream_of(id, device)).priority();
  });
  module.def("stream_query", [](std::int64_t id, int device) {
    return !DeviceRuntime::get().core_started(device) || engine_stream(stream_of(id, device)).query();
  });
  module.def(
      "stream_synchronize",
      [](std::int64_t id, int device) {
        if (DeviceRuntime::get().core_started(device)) synchronize(engine_stream(stream_of(id, device)));
      },
      py::call_guard<py::gil_scoped_release>());
  // Commands handed over and commands done: (submitted, completed).
  module.def("stream_positions", [](std::int64_t id, int device) {
    const Stream& stream = engine_stream(stream_of(id, device));
    return std::make_pair(stream.submitted(), stream.completed());
  });
  // Milliseconds between two recorded events by their event_id; torch.Event.elapsed_time takes no subclass.
  module.def("event_elapsed_ms", [](std::uintptr_t start, std::uintptr_t end) {
    TORCH_CHECK(start != 0 && end != 0, "Event has not been recorded");
    return elapsed_time(*engine_event(reinterpret_cast<void*>(start)),
                        *engine_event(reinterpret_cast<void*>(end)));
  });
  py::class_<Gate, std::shared_ptr<Gate>>(module, "Gate")
      .def("open", &Gate::open)
      .def("wait_for_arrival", &Gate::wait_for_arrival, py::call_guard<py::gil_scoped_release>());
  module.def("hold_stream", &hold);
}

}  // namespace neuron::bridge
