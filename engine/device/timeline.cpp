#include "engine/device/timeline.h"

#include "engine/base/check.h"
#include "engine/base/mutex.h"

namespace neuron {

namespace detail {
std::atomic<bool> timeline_on{false};
}

namespace {

struct Ring {
  Mutex mutex;
  std::vector<Span> spans GUARDED_BY(mutex);
  std::size_t capacity GUARDED_BY(mutex) = 0;
  std::uint64_t recorded GUARDED_BY(mutex) = 0;
};

// Leaked: streams' threads may still record while the process ends.
Ring& ring() {
  static Ring& instance = *new Ring();
  return instance;
}

}  // namespace

void start_timeline(std::size_t capacity) {
  NEURON_CHECK(capacity > 0, "a timeline needs room");
  Ring& r = ring();
  MutexLock lock(r.mutex);
  r.spans.clear();
  r.spans.reserve(capacity);
  r.capacity = capacity;
  r.recorded = 0;
  detail::timeline_on.store(true, std::memory_order_relaxed);
}

void stop_timeline() { detail::timeline_on.store(false, std::memory_order_relaxed); }

void record_span(const Span& span) {
  if (!timeline_on()) return;
  Ring& r = ring();
  MutexLock lock(r.mutex);
  if (r.spans.size() < r.capacity) {
    r.spans.push_back(span);
  } else {
    r.spans[r.recorded % r.capacity] = span;
  }
  ++r.recorded;
}

TimelineReading read_timeline() {
  Ring& r = ring();
  MutexLock lock(r.mutex);
  TimelineReading out;
  out.dropped = r.recorded - r.spans.size();
  out.spans.reserve(r.spans.size());
  for (std::uint64_t i = out.dropped; i < r.recorded; ++i) out.spans.push_back(r.spans[i % r.capacity]);
  return out;
}

}  // namespace neuron
