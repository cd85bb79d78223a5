// Operators: the dispatched operators of this process, each with its OpInfo and its plans.
#pragma once

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

// Over all operators.
PlanCacheStats plan_cache_stats();
void clear_plan_caches();

}  // namespace neuron::bridge
