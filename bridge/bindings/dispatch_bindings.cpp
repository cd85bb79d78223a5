// What ran, what drained, and the plans.
#include <torch/csrc/utils/pybind.h>

#include "bridge/bindings/bindings.h"
#include "bridge/dispatch/op_counters.h"
#include "bridge/dispatch/operators.h"
#include "bridge/runtime/inline_policy.h"
#include "engine/device/stream.h"

namespace py = pybind11;

namespace neuron::bridge {

void bind_dispatch(py::module_& module) {
  module.def("op_counts", &executed_counts);
  // {operator: calls}: ran on the CPU, on the caller, after a drain.
  module.def("fallback_counts", [] {
    std::map<std::string, std::uint64_t> sum;
    for (const auto& [key, count] : drained_counts()) sum[key.first] += count;
    return sum;
  });
  // [(operator, reason, calls)]
  module.def("drains", [] {
    std::vector<std::tuple<std::string, std::string, std::uint64_t>> rows;
    for (const auto& [key, count] : drained_counts()) rows.emplace_back(key.first, key.second, count);
    return rows;
  });
  module.def("reset_op_counts", &reset_counts);
  module.def("copied_results", &copied_result_counts);
  module.def("plan_cache_stats", [] {
    const PlanCacheStats stats = plan_cache_stats();
    py::dict out;
    out["hits"] = stats.hits;
    out["misses"] = stats.misses;
    out["evictions"] = stats.evictions;
    out["plans"] = stats.plans;
    return out;
  });
  module.def("clear_plan_caches", &clear_plan_caches);
  module.def("set_inline", &fix_inline_policy);
  module.def("runs_inline", [] { return inline_policy() == InlinePolicy::kAlways; });
}

}  // namespace neuron::bridge
