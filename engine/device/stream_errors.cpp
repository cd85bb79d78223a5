#include "engine/device/stream_errors.h"

#include <algorithm>
#include <utility>

namespace neuron {

void StreamErrors::add(StreamPosition position, StreamErrorPtr error) {
  if (error == nullptr || !error->active()) return;
  MutexLock lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.error == error) return;
  }
  entries_.push_back({position, std::move(error)});
  any_.store(true, std::memory_order_release);
}

StreamErrorPtr StreamErrors::active() {
  if (!any()) return nullptr;
  MutexLock lock(mutex_);
  forget_raised();
  return entries_.empty() ? nullptr : entries_.front().error;
}

StreamErrorPtr StreamErrors::at(StreamPosition position) const {
  if (!any()) return nullptr;
  MutexLock lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.position <= position && entry.error->active()) return entry.error;
  }
  return nullptr;
}

StreamErrorPtr StreamErrors::take() {
  if (!any()) return nullptr;
  MutexLock lock(mutex_);
  StreamErrorPtr taken;
  for (const Entry& entry : entries_) {
    // Another stream that it has reached may raise it at the same moment: the exchange decides.
    if (entry.error->permanent || !entry.error->raised.exchange(true, std::memory_order_acq_rel)) {
      taken = entry.error;
      break;
    }
  }
  forget_raised();
  return taken;
}

void StreamErrors::forget_raised() {
  std::erase_if(entries_, [](const Entry& entry) { return !entry.error->active(); });
  if (entries_.empty()) any_.store(false, std::memory_order_release);
}

}  // namespace neuron
