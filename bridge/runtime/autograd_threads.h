// autograd's threads and the end of the interpreter.
//
// At the first backward autograd starts a thread for every visible device and goes on at once; each of them asks for
// Python's global lock before anything else. A thread that gets no lock because the interpreter has ended takes the
// process down ("terminate called without an active exception"). With 64 devices that is not rare. The same happens to a
// thread that lets go of its graph, which it does after backward has returned. So the exit waits until all have begun and
// are at rest.
#pragma once

#include <chrono>

namespace neuron::bridge {

// By the device guard, when somebody asks for the number of devices: autograd does before it starts its threads.
void note_devices_counted() noexcept;

// Waits until autograd's threads are at rest, if it has started any; at most `limit`. Requires: the caller does not hold
// Python's global lock.
void wait_for_autograd_threads(std::chrono::milliseconds limit);

}  // namespace neuron::bridge
