#include "bridge/runtime/streams.h"

#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <utility>

#include "bridge/runtime/devices.h"
#include "bridge/runtime/errors.h"
#include "bridge/runtime/python_unlocked.h"
#include "engine/base/env.h"

namespace neuron::bridge {

namespace {

// Current stream ids by device; a device beyond the end has its default stream.
thread_local c10::SmallVector<c10::StreamId, 8> tls_streams;

c10::StreamId current_id(c10::DeviceIndex device) {
  const auto index = static_cast<std::size_t>(device);
  return index < tls_streams.size() ? tls_streams[index] : 0;
}

Stream& stream_by_id(Core& core, c10::StreamId id) {
  if (id == 0) return core.default_stream();
  Stream* stream = core.stream(static_cast<std::uint32_t>(id));
  TORCH_CHECK(stream != nullptr, "neuron: there is no stream with id ", id, " on ", core.name(),
              "; make one with torch.neuron.Stream()");
  return *stream;
}

}  // namespace

Stream& current_stream(c10::DeviceIndex device) {
  device = resolve(device);
  return stream_by_id(core_of(device), current_id(device));
}

Stream& default_stream(c10::DeviceIndex device) { return core_of(device).default_stream(); }

c10::Stream current_c10_stream(c10::DeviceIndex device) {
  device = resolve(device);
  return c10::Stream(c10::Stream::UNSAFE, neuron_device(device), current_id(device));
}

c10::Stream default_c10_stream(c10::DeviceIndex device) {
  return c10::Stream(c10::Stream::UNSAFE, neuron_device(resolve(device)), 0);
}

c10::Stream pool_c10_stream(c10::DeviceIndex device, int priority) {
  if (!env().enable_streams) return default_c10_stream(device);
  return to_c10_stream(core_of(device).acquire_stream(priority));
}

c10::Stream exchange_current_stream(c10::Stream stream) {
  const auto device = resolve(stream.device_index());
  const auto index = static_cast<std::size_t>(device);
  const c10::Stream previous = current_c10_stream(device);
  if (index >= tls_streams.size()) tls_streams.resize(index + 1, 0);
  tls_streams[index] = stream.id();
  return previous;
}

Stream& engine_stream(const c10::Stream& stream) {
  TORCH_CHECK(stream.device_type() == c10::DeviceType::PrivateUse1, "Expected a neuron stream, got one of ",
              stream.device_type());
  return stream_by_id(core_of(stream.device_index()), stream.id());
}

c10::Stream to_c10_stream(const Stream& stream) {
  return c10::Stream(c10::Stream::UNSAFE, neuron_device(static_cast<c10::DeviceIndex>(stream.core().index())),
                     static_cast<c10::StreamId>(stream.id()));
}

StreamPosition submit(Stream& stream, std::unique_ptr<Command> command) {
  const PythonUnlocked unlocked;
  return stream.submit(std::move(command));
}

void synchronize(Stream& stream) {
  const PythonUnlocked unlocked;
  raise_if_error(stream.synchronize());
}

void synchronize_device(c10::DeviceIndex device) {
  device = resolve(device);
  if (!DeviceRuntime::get().core_started(device)) return;
  const PythonUnlocked unlocked;
  raise_if_error(core_of(device).synchronize());
}

}  // namespace neuron::bridge
