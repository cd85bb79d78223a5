#include "bridge/distributed/path.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "bridge/rules/rules.h"
#include "bridge/runtime/streams.h"
#include "engine/base/env.h"

namespace neuron::bridge {

namespace {

bool host_cc_carries(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kAllGather ||
         kind == CollectiveKind::kReduceScatter;
}

bool is_false(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text == "0" || text == "false" || text == "off" || text == "no";
}

}  // namespace

Path choose_path(CollectiveKind kind, c10::DeviceIndex device, const char* call) {
  Stream& current = current_stream(device);
  Stream& compiled = default_stream(device);
  if (&current == &compiled) return {&current, &current};
  if (env().enable_host_cc) {
    if (host_cc_carries(kind)) return {&current, &current};
    if (kind == CollectiveKind::kAllToAll) {
      check_rule(RuleId::kHostCcAllToAll, std::string(call) + " on a non-default stream");
      return {&current, &current};
    }
    if (kind != CollectiveKind::kBarrier) check_rule(RuleId::kHostCcOther, call);
  }
  return {&current, &compiled};
}

std::optional<std::pair<RuleError, std::string>> host_cc_violation() {
  if (!env().enable_host_cc) return std::nullopt;
  if (!env().enable_streams) {
    if (auto text = rule_violation(RuleId::kHostCcNeedsStreams)) {
      return std::pair{rule(RuleId::kHostCcNeedsStreams).error, *text};
    }
  }
  if (is_false(env().dma_transpose_as_pe.value_or(""))) {
    const std::string given = "NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE=" + *env().dma_transpose_as_pe;
    if (auto text = rule_violation(RuleId::kHostCcPeTranspose, given)) {
      return std::pair{rule(RuleId::kHostCcPeTranspose).error, *text};
    }
  }
  return std::nullopt;
}

}  // namespace neuron::bridge
