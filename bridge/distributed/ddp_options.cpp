#include "bridge/distributed/ddp_options.h"

#include <c10/util/Logging.h>

#include <cstdint>
#include <string>

#include "bridge/rules/rules.h"

namespace neuron::bridge {

namespace {

constexpr std::int64_t kDefaultBucketBytes = std::int64_t{25} << 20;

std::int64_t value(const c10::DDPLoggingData& data, const char* name, std::int64_t otherwise) {
  const auto found = data.ints_map.find(name);
  return found == data.ints_map.end() ? otherwise : found->second;
}

// What c10d calls a backend of ours: "custom" alone, "undefined" in a group with one backend for each device.
bool is_ours(const c10::DDPLoggingData& data) {
  const auto backend = data.strs_map.find("backend_name");
  return backend != data.strs_map.end() && (backend->second == "custom" || backend->second == "undefined");
}

void check_options(const c10::DDPLoggingData& data) {
  if (!is_ours(data)) return;
  // Called again while training, for statistics. A static graph is noted only after the constructor's call.
  const std::int64_t iteration = value(data, "iteration", 0);
  if (iteration == 1 && value(data, "static_graph", 0) != 0) {
    check_rule(RuleId::kDdpStaticGraph, "static_graph=True");
  }
  if (iteration != 0) return;
  if (value(data, "find_unused_parameters", 0) != 0) {
    check_rule(RuleId::kDdpFindUnused, "find_unused_parameters=True");
  }
  const std::int64_t bytes = value(data, "bucket_cap_bytes", kDefaultBucketBytes);
  if (bytes != kDefaultBucketBytes) {
    check_rule(RuleId::kDdpBucketCap, "buckets of " + std::to_string(bytes) + " bytes");
  }
}

}  // namespace

// A backend is not told who uses it; the usage logger is the one place where torch says how a DDP was made.
void watch_ddp_options() { c10::SetPyTorchDDPUsageLogger(check_options); }

}  // namespace neuron::bridge
