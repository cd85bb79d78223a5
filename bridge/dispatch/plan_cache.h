// PlanCache: one operator's plans, found by CallKey. Bounded: the oldest plan goes when a new one has no
// place.
//
// Thread-safe; a hit takes this operator's lock for the look-up only and allocates nothing.
#pragma once

#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "bridge/dispatch/plan.h"

namespace neuron::bridge {

struct PlanCacheStats {
  std::uint64_t hits = 0, misses = 0, evictions = 0, plans = 0;
};

class PlanCache {
 public:
  static constexpr std::size_t kPlansPerOperator = 512;

  // Null: never seen.
  PlanPtr find(const CallKey& key);
  void insert(const CallKey& key, PlanPtr plan);
  PlanCacheStats stats() const;
  void clear();

 private:
  struct Entry {
    std::vector<std::uint64_t> words;
    PlanPtr plan;
  };

  mutable std::mutex mutex_;
  std::unordered_multimap<std::uint64_t, Entry> plans_;
  std::deque<std::uint64_t> order_;  // hashes, oldest first
  PlanCacheStats stats_;
};

}  // namespace neuron::bridge
