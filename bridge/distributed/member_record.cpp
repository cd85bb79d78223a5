#include "bridge/distributed/member_record.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <iterator>
#include <sstream>

#include "bridge/distributed/node_identity.h"
#include "bridge/distributed/path.h"
#include "bridge/runtime/inline_policy.h"
#include "engine/device/device.h"

namespace neuron::bridge {

namespace {

struct LocalVariables {
  std::optional<int> rank, world_size;
  std::optional<std::string> problem;
};

std::optional<int> read_number(const char* name, std::optional<std::string>& problem) {
  // Read now, not at start: custom launchers set them in the worker, after torch was imported.
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  int value = 0;
  const char* end = text + std::char_traits<char>::length(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < 0) {
    problem = std::string(name) + "=" + text + " is not valid: expected a number that is not negative";
    return std::nullopt;
  }
  return value;
}

LocalVariables read_local_variables() {
  LocalVariables out;
  out.rank = read_number("LOCAL_RANK", out.problem);
  out.world_size = read_number("LOCAL_WORLD_SIZE", out.problem);
  if (!out.problem && out.rank && out.world_size && *out.rank >= *out.world_size) {
    out.problem = "LOCAL_RANK=" + std::to_string(*out.rank) +
                  " is not below LOCAL_WORLD_SIZE=" + std::to_string(*out.world_size) +
                  ": set both consistently on each node";
  }
  return out;
}

std::string missing_variables(const LocalVariables& local) {
  if (!local.rank && !local.world_size) return "LOCAL_RANK and LOCAL_WORLD_SIZE are not set";
  return local.rank ? "LOCAL_WORLD_SIZE is not set" : "LOCAL_RANK is not set";
}

// Where the allocation comes from, for messages.
std::string visible_cores_text(const CoreAllocation& allocation) {
  for (const char* name : {"NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return std::string(name) + "=" + value;
  }
  return "the instance's " + std::to_string(allocation.visible.size()) +
         " logical cores (NEURON_RT_VISIBLE_CORES is not set)";
}

std::optional<Refusal> refusal_of_process(const LocalVariables& local, bool was_member) {
  const auto& runtime = DeviceRuntime::get();
  if (const Status status = runtime.status(); !status.is_ok())
    return Refusal{RuleError::kValue, status.message()};
  if (auto broken = host_cc_violation()) return Refusal{broken->first, broken->second};
  if (local.problem) return Refusal{RuleError::kValue, *local.problem};
  if (!local.rank || !local.world_size) {
    if (auto text = rule_violation(RuleId::kLocalVariables, missing_variables(local))) {
      return Refusal{rule(RuleId::kLocalVariables).error, *text};
    }
  }
  const CoreAllocation& allocation = runtime.allocation();
  if (local.world_size && static_cast<std::size_t>(*local.world_size) > allocation.visible.size()) {
    return Refusal{RuleError::kValue, "LOCAL_WORLD_SIZE=" + std::to_string(*local.world_size) +
                                          " workers need as many logical cores, but " +
                                          std::to_string(allocation.visible.size()) +
                                          " are visible: " + visible_cores_text(allocation)};
  }
  if (runtime.started() && !was_member) {
    if (auto text = rule_violation(RuleId::kRuntimeBeforeGroup))
      return Refusal{rule(RuleId::kRuntimeBeforeGroup).error, *text};
  }
  return std::nullopt;
}

std::string number_or_none(const std::optional<int>& value) { return value ? std::to_string(*value) : "-"; }

std::optional<int> parse_number(const std::string& text) {
  return text == "-" ? std::nullopt : std::optional<int>(std::stoi(text));
}

// Five lines, then the refusal's text, which may have lines of its own.
MemberRecord decode(const std::string& bytes) {
  std::istringstream in(bytes);
  std::string error, local_rank, local_world_size, node, pid;
  std::getline(in, error);
  std::getline(in, local_rank);
  std::getline(in, local_world_size);
  std::getline(in, node);
  std::getline(in, pid);
  MemberRecord record;
  record.local_rank = parse_number(local_rank);
  record.local_world_size = parse_number(local_world_size);
  record.node = node;
  record.pid = std::stol(pid);
  if (error != "-1") {
    record.refusal = Refusal{static_cast<RuleError>(std::stoi(error)),
                             std::string(std::istreambuf_iterator<char>(in), {})};
  }
  return record;
}

}  // namespace

std::string encode(const MemberRecord& record) {
  std::ostringstream out;
  out << (record.refusal ? static_cast<int>(record.refusal->error) : -1) << '\n'
      << number_or_none(record.local_rank) << '\n'
      << number_or_none(record.local_world_size) << '\n'
      << record.node << '\n'
      << record.pid << '\n'
      << (record.refusal ? record.refusal->text : "");
  return out.str();
}

std::string join_table(const std::vector<std::string>& records) {
  std::string table;
  for (const std::string& record : records) table += std::to_string(record.size()) + ":" + record;
  return table;
}

std::vector<MemberRecord> split_table(const std::string& table) {
  std::vector<MemberRecord> records;
  for (std::size_t at = 0; at < table.size();) {
    const std::size_t colon = table.find(':', at);
    const std::size_t length = std::stoul(table.substr(at, colon - at));
    records.push_back(decode(table.substr(colon + 1, length)));
    at = colon + 1 + length;
  }
  return records;
}

MemberRecord examine_process(bool was_member) {
  MemberRecord record;
  record.node = node_identity();
  record.pid = ::getpid();
  // Custom launchers set variables inside the program.
  DeviceRuntime::get().reload_environment();
  choose_inline_policy();
  const LocalVariables local = read_local_variables();
  record.local_rank = local.rank;
  record.local_world_size = local.world_size;
  if (const auto bound = DeviceRuntime::get().bound_index(); was_member && bound) {
    record.local_rank = bound;
    return record;
  }
  record.refusal = refusal_of_process(local, was_member);
  return record;
}

}  // namespace neuron::bridge
