#include "bridge/runtime/event.h"

#include <c10/util/Exception.h>

#include "bridge/runtime/errors.h"
#include "bridge/runtime/python_unlocked.h"
#include "engine/device/stream.h"

namespace neuron::bridge {

void synchronize_event(const Event& event) {
  const EventRecording recording = event.recording();
  if (recording.stream == nullptr) return;
  const PythonUnlocked unlocked;
  raise_if_error(recording.stream->wait_until(recording.position));
  StreamErrorPtr error = recording.stream->error_at(recording.position);
  if (!error) return;
  error->raised.store(true, std::memory_order_release);
  raise(error);
}

double elapsed_time(const Event& start, const Event& end) {
  Result<double> elapsed = elapsed_ms(start, end);
  // The product raises RuntimeError for all of these, as CUDA does.
  TORCH_CHECK(elapsed.is_ok(), elapsed.status().message());
  return elapsed.value();
}

}  // namespace neuron::bridge
