#include "engine/device/core_allocation.h"

#include <numeric>
#include <string_view>

#include "engine/base/env.h"

namespace neuron {

namespace {

Status wrong(const char* variable, const std::string& value, const std::string& why) {
  return Status(StatusCode::kInvalidArgument, std::string(variable) + "=" + value + ": " + why);
}

// A number from 0, in digits only; nothing otherwise.
std::optional<int> parse_index(std::string_view text) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  const auto value = parse_integer(text);
  constexpr std::int64_t kMost = 1'000'000;
  if (!value || *value > kMost) return std::nullopt;
  return static_cast<int>(*value);
}

// "4" or "4-5", appended to `out`. False: malformed, or downward.
bool parse_item(std::string_view item, std::vector<int>& out) {
  const auto dash = item.find('-');
  const auto first = parse_index(item.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : parse_index(item.substr(dash + 1));
  if (!first || !last || *last < *first) return false;
  for (int core = *first; core <= *last; ++core) out.push_back(core);
  return true;
}

Status parse_visible(const std::string& text, int total, std::vector<int>& out) {
  constexpr const char* kName = "NEURON_RT_VISIBLE_CORES";
  std::string_view rest = text;
  for (;;) {
    const auto comma = rest.find(',');
    if (!parse_item(rest.substr(0, comma), out)) {
      return wrong(kName, text, "not a core range; write 4-5, or 4,5, with the lower core first");
    }
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  for (std::size_t i = 1; i < out.size(); ++i) {
    if (out[i] != out[i - 1] + 1) return wrong(kName, text, "the cores must increase without gaps");
  }
  if (out.back() >= total) {
    return wrong(kName, text,
                 "core " + std::to_string(out.back()) + " does not exist; the instance has cores 0-" +
                     std::to_string(total - 1));
  }
  return Status::ok();
}

Status parse_lnc(const std::optional<std::string>& text, int& out) {
  if (!text) return Status::ok();
  if (*text != "1" && *text != "2") {
    return wrong("NEURON_LOGICAL_NC_CONFIG (or NEURON_RT_VIRTUAL_CORE_SIZE)", *text,
                 "a logical core has 1 or 2 physical cores");
  }
  out = *text == "1" ? 1 : 2;
  return Status::ok();
}

Status parse_count(const std::string& text, int total, std::vector<int>& out) {
  const auto count = parse_index(text);
  if (!count || *count > total) {
    return wrong("NEURON_RT_NUM_CORES", text,
                 "allowed: 0 (all) to " + std::to_string(total) + ", the logical cores of the instance");
  }
  out.resize(static_cast<std::size_t>(*count == 0 ? total : *count));
  std::iota(out.begin(), out.end(), 0);
  return Status::ok();
}

// Requires: allocation.visible is final.
Status parse_local(const AllocationRequest& request, CoreAllocation& allocation) {
  if (!request.local_rank || !request.local_world_size) return Status::ok();
  const auto rank = parse_index(*request.local_rank);
  const auto size = parse_index(*request.local_world_size);
  if (!rank) return wrong("LOCAL_RANK", *request.local_rank, "not a worker index; allowed: 0, 1, …");
  if (!size || *size == 0) {
    return wrong("LOCAL_WORLD_SIZE", *request.local_world_size, "not a number of workers; allowed: 1, 2, …");
  }
  if (*rank >= *size) {
    return wrong("LOCAL_RANK", *request.local_rank,
                 "must be below LOCAL_WORLD_SIZE=" + *request.local_world_size);
  }
  const auto visible = static_cast<int>(allocation.visible.size());
  if (*size > visible) {
    std::string why = "NeuronCore(s) not available: " + std::to_string(*size) +
                      " local workers need one each, but " + std::to_string(visible) +
                      (visible == 1 ? " logical core is" : " logical cores are") + " visible";
    if (request.visible_cores) {
      why += " (NEURON_RT_VISIBLE_CORES=" + *request.visible_cores + "); widen the range";
    } else if (request.num_cores) {
      why += " (NEURON_RT_NUM_CORES=" + *request.num_cores + "); raise it";
    } else {
      why += "; choose a larger NEURON_EMU_INSTANCE, or NEURON_LOGICAL_NC_CONFIG=1,";
    }
    return wrong("LOCAL_WORLD_SIZE", *request.local_world_size, why + " or start fewer workers");
  }
  allocation.local_rank = rank;
  allocation.local_world_size = size;
  return Status::ok();
}

}  // namespace

Result<CoreAllocation> allocate_cores(const InstanceType& type, const AllocationRequest& request) {
  CoreAllocation allocation;
  allocation.lnc = type.default_lnc;
  if (Status status = parse_lnc(request.lnc, allocation.lnc); !status.is_ok()) return status;
  const int total = logical_cores(type, allocation.lnc);
  Status status = request.visible_cores
                      ? parse_visible(*request.visible_cores, total, allocation.visible)
                      : parse_count(request.num_cores.value_or("0"), total, allocation.visible);
  if (!status.is_ok()) return status;
  if (status = parse_local(request, allocation); !status.is_ok()) return status;
  return allocation;
}

}  // namespace neuron
