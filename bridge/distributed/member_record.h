// MemberRecord: what one process tells the other members of a new group about itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bridge/rules/rules.h"

namespace neuron::bridge {

// Why a process cannot be a member. `error` is the Python exception.
struct Refusal {
  RuleError error = RuleError::kRuntime;
  std::string text;
};

struct MemberRecord {
  std::optional<Refusal> refusal;
  std::optional<int> local_rank;
  std::optional<int> local_world_size;
  std::string node;
  long pid = 0;
};

// Looks at this process: environment, visible cores, whether the runtime was started outside any group. Gives
// the rules' warnings. A process that `was_member` of a group keeps its core.
MemberRecord examine_process(bool was_member);

// All members' records as bytes, in rank order, and back.
std::string encode(const MemberRecord& record);
std::string join_table(const std::vector<std::string>& encoded_records);
std::vector<MemberRecord> split_table(const std::string& table);

}  // namespace neuron::bridge
