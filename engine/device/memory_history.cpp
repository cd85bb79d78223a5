#include "engine/device/memory_history.h"

#include <atomic>
#include <deque>
#include <map>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/mutex.h"

namespace neuron {

namespace {

std::atomic<CallSiteRecorder> call_site_recorder{nullptr};

struct History {
  Mutex mutex;
  MemoryHistoryOptions options GUARDED_BY(mutex);
  std::map<int, std::deque<MemoryEvent>> events GUARDED_BY(mutex);  // by core
};

// Leaked: blocks are freed until the very end of the process.
History& history() {
  static auto* history = new History();
  return *history;
}

}  // namespace

namespace detail {

std::atomic<bool> memory_history_on{false};
std::atomic<SitesKept> sites_kept{SitesKept::kNone};

CallSite call_site() {
  const CallSiteRecorder recorder = call_site_recorder;
  return recorder == nullptr ? nullptr : recorder();
}

}  // namespace detail

void set_call_site_recorder(CallSiteRecorder recorder) { call_site_recorder = recorder; }

void start_memory_history(const MemoryHistoryOptions& options) {
  MutexLock lock(history().mutex);
  history().options = options;
  detail::sites_kept = options.sites;
  detail::memory_history_on = options.max_events > 0;
}

void stop_memory_history() {
  MutexLock lock(history().mutex);
  detail::memory_history_on = false;
  detail::sites_kept = SitesKept::kNone;
  history().events.clear();
}

void clear_memory_history() {
  MutexLock lock(history().mutex);
  history().events.clear();
}

void record_memory_event(MemoryEvent event) {
  event.time_ns = wall_ns();
  MutexLock lock(history().mutex);
  if (!memory_history_on()) return;  // it may have been stopped a moment ago
  const MemoryHistoryOptions& options = history().options;
  if (options.skipped[static_cast<std::size_t>(event.action)]) return;
  if (options.sites < SitesKept::kOfAllocations) event.site = nullptr;
  auto& events = history().events[event.core];
  events.push_back(std::move(event));
  while (events.size() > options.max_events) events.pop_front();
}

std::vector<MemoryEvent> memory_events(int core) {
  MutexLock lock(history().mutex);
  const auto found = history().events.find(core);
  if (found == history().events.end()) return {};
  return {found->second.begin(), found->second.end()};
}

}  // namespace neuron
