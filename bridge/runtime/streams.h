// Streams: torch's stream ids, the engine's streams, and the current stream of each thread.
//
// A StreamId is the engine's stream id; 0 is the default stream of every core.
#pragma once

#include <c10/core/Stream.h>

#include <memory>

#include "engine/device/stream.h"

namespace neuron::bridge {

// The calling thread's current stream on a device (-1: the current device). Starts the core.
Stream& current_stream(c10::DeviceIndex device = -1);
Stream& default_stream(c10::DeviceIndex device = -1);

// The same as torch sees it; does not start the core.
c10::Stream current_c10_stream(c10::DeviceIndex device);
c10::Stream default_c10_stream(c10::DeviceIndex device);
// A stream of the pool; with streams disabled (TORCH_NEURONX_ENABLE_STREAMS=0) the default one. Starts the
// core.
c10::Stream pool_c10_stream(c10::DeviceIndex device, int priority);
// Makes `stream` current on its device for this thread; gives the previous one.
c10::Stream exchange_current_stream(c10::Stream stream);

Stream& engine_stream(const c10::Stream& stream);
c10::Stream to_c10_stream(const Stream& stream);

// All commands of the bridge go to their streams here: waits for room in the stream, without Python's lock.
StreamPosition submit(Stream& stream, std::unique_ptr<Command> command);
// Raises the error that has reached the stream, after waiting for it / for all streams of a device.
void synchronize(Stream& stream);
void synchronize_device(c10::DeviceIndex device);

}  // namespace neuron::bridge
