#include "engine/collectives/quarantine.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"

namespace neuron {

namespace {

struct Entry {
  std::shared_ptr<const void> holds;
  std::function<bool()> safe;
};

struct Ward {
  Mutex mutex;
  std::vector<Entry> entries GUARDED_BY(mutex);
};
// Leaked: at exit a peer may still be writing.
Ward& ward() {
  static Ward& instance = *new Ward();
  return instance;
}

}  // namespace

void quarantine(std::shared_ptr<const void> holds, std::function<bool()> safe) {
  const MutexLock lock(ward().mutex);
  ward().entries.push_back({std::move(holds), std::move(safe)});
}

std::size_t sweep_quarantine() {
  std::vector<Entry> released;  // destroyed without the lock
  const MutexLock lock(ward().mutex);
  std::vector<Entry>& entries = ward().entries;
  const auto kept =
      std::partition(entries.begin(), entries.end(), [](const Entry& entry) { return !entry.safe(); });
  std::move(kept, entries.end(), std::back_inserter(released));
  entries.erase(kept, entries.end());
  return entries.size();
}

}  // namespace neuron
