#include "bridge/dispatch/plan_cache.h"

#include <algorithm>

namespace neuron::bridge {

PlanPtr PlanCache::find(const CallKey& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [begin, end] = plans_.equal_range(key.hash);
  for (auto it = begin; it != end; ++it) {
    if (std::equal(it->second.words.begin(), it->second.words.end(), key.words.begin(), key.words.end())) {
      ++stats_.hits;
      return it->second.plan;
    }
  }
  ++stats_.misses;
  return nullptr;
}

void PlanCache::insert(const CallKey& key, PlanPtr plan) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (plans_.size() >= kPlansPerOperator) {
    const auto oldest = plans_.find(order_.front());
    order_.pop_front();
    if (oldest != plans_.end()) {
      oldest->second.plan->commands.close();
      plans_.erase(oldest);
    }
    ++stats_.evictions;
  }
  plans_.emplace(key.hash, Entry{{key.words.begin(), key.words.end()}, std::move(plan)});
  order_.push_back(key.hash);
}

PlanCacheStats PlanCache::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  PlanCacheStats stats = stats_;
  stats.plans = plans_.size();
  return stats;
}

void PlanCache::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [hash, entry] : plans_) entry.plan->commands.close();
  plans_.clear();
  order_.clear();
}

}  // namespace neuron::bridge
