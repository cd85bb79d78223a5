#include "bridge/dispatch/operators.h"

#include <mutex>
#include <unordered_map>

namespace neuron::bridge {

namespace {

struct Registry {
  std::mutex mutex;
  std::unordered_map<c10::OperatorName, std::unique_ptr<Operator>> operators;
};

Registry& registry() {
  static auto* instance = new Registry();
  return *instance;
}

}  // namespace

Operator& operator_of(const c10::OperatorHandle& handle) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::unique_ptr<Operator>& entry = all.operators[handle.operator_name()];
  if (!entry) entry = std::make_unique<Operator>(handle);
  return *entry;
}

PlanCacheStats plan_cache_stats() {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  PlanCacheStats sum;
  for (const auto& [name, op] : all.operators) {
    const PlanCacheStats stats = op->plans.stats();
    sum.hits += stats.hits;
    sum.misses += stats.misses;
    sum.evictions += stats.evictions;
    sum.plans += stats.plans;
  }
  return sum;
}

void clear_plan_caches() {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (const auto& [name, op] : all.operators) op->plans.clear();
}

}  // namespace neuron::bridge
