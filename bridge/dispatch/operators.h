// Operators: the dispatched operators of this process, each with its OpInfo and its plans.
#pragma once

#include <atomic>
#include <memory>

#include "bridge/dispatch/op_info.h"
#include "bridge/dispatch/plan_cache.h"

namespace neuron::bridge {

struct Operator {
  explicit Operator(const c10::OperatorHandle& handle) : info(handle) {}
  const OpInfo info;
  PlanCache plans;
};

// The operator, made at the first call. Lives for ever. Thread-safe.
Operator& operator_of(const c10::OperatorHandle& handle);

// operator_of() with its answer kept, so that a call finds its plans without a look-up. Thread-safe.
class LazyOperator {
 public:
  explicit LazyOperator(const c10::OperatorHandle& handle) : handle_(handle) {}
  Operator& get() {
    Operator* known = operator_.load(std::memory_order_acquire);
    if (known == nullptr) {
      known = &operator_of(handle_);
      operator_.store(known, std::memory_order_release);
    }
    return *known;
  }

 private:
  const c10::OperatorHandle handle_;
  std::atomic<Operator*> operator_{nullptr};
};

// Over all operators.
PlanCacheStats plan_cache_stats();
void clear_plan_caches();

}  // namespace neuron::bridge
