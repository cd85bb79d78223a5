#include "engine/device/stream_order.h"

#include <algorithm>
#include <cstddef>

namespace neuron {

namespace {
// FSDP2's prefetching has a block's events in flight on four streams, a few blocks ahead.
constexpr std::size_t kRemembered = 16;  // for each other stream
}  // namespace

void StreamOrder::note(const Stream& other, StreamPosition position, const StreamOrder& via,
                       StreamPosition at) {
  // Before the lock: no thread holds two of these.
  const std::vector<Wait> chained = via.known_at(position);
  const MutexLock lock(mutex_);
  remember({&other, position, at});
  for (const Wait& wait : chained) remember({wait.other, wait.position, at});
}

bool StreamOrder::after(const Stream& other, StreamPosition position) const {
  const MutexLock lock(mutex_);
  return std::any_of(waits_.begin(), waits_.end(),
                     [&](const Wait& wait) { return wait.other == &other && wait.position >= position; });
}

std::vector<StreamOrder::Wait> StreamOrder::known_at(StreamPosition at) const {
  std::vector<Wait> known;
  const MutexLock lock(mutex_);
  for (const Wait& wait : waits_) {
    if (wait.at > at) continue;
    const auto same = std::find_if(known.begin(), known.end(),
                                   [&](const Wait& earlier) { return earlier.other == wait.other; });
    if (same == known.end()) {
      known.push_back(wait);
    } else if (wait.position > same->position) {
      *same = wait;
    }
  }
  return known;
}

void StreamOrder::remember(const Wait& wait) {
  std::size_t count = 0;
  auto oldest = waits_.end();
  for (auto known = waits_.begin(); known != waits_.end(); ++known) {
    if (known->other != wait.other) continue;
    if (known->position >= wait.position && known->at <= wait.at) return;  // says more
    if (count++ == 0) oldest = known;
  }
  if (count == kRemembered) waits_.erase(oldest);
  waits_.push_back(wait);
}

}  // namespace neuron
