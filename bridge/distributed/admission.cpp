#include "bridge/distributed/admission.h"

#include <c10/util/Exception.h>

#include <map>
#include <set>

#include "bridge/runtime/errors.h"
#include "engine/device/device.h"

namespace neuron::bridge {

namespace {

constexpr const char* kTableKey = "members";

std::string record_key(int rank) { return "member" + std::to_string(rank); }

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

// "rank 1", or for a subgroup "rank 1 (global rank 5)".
std::string member_text(const GroupIdentity& group, int rank) {
  const int global = group.global_ranks[static_cast<std::size_t>(rank)];
  std::string text = "rank " + std::to_string(rank);
  return global == rank ? text : text + " (global rank " + std::to_string(global) + ")";
}

std::string worker_text(const GroupIdentity& group, int rank, const MemberRecord& record) {
  return member_text(group, rank) + " (pid " + std::to_string(record.pid) + ")";
}

std::optional<Refusal> judge_refusals(const GroupIdentity& group, const std::vector<MemberRecord>& records) {
  const Refusal* first = nullptr;
  std::map<std::string, std::vector<int>> ranks_by_text;
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    if (!records[rank].refusal) continue;
    if (first == nullptr) first = &*records[rank].refusal;
    ranks_by_text[records[rank].refusal->text].push_back(static_cast<int>(rank));
  }
  if (first == nullptr) return std::nullopt;
  // The first rank's words lead, so that the product's own text stands at the beginning.
  std::string text = first->text + "\n  found by " + ranks_text(ranks_by_text[first->text]) + " of " +
                     std::to_string(group.size) + " in group '" + group.name + "'; all ranks were refused";
  ranks_by_text.erase(first->text);
  for (const auto& [other, ranks] : ranks_by_text) text += "\n  " + ranks_text(ranks) + ": " + other;
  return Refusal{first->error, text};
}

// Workers of one node need different LOCAL_RANKs and the same LOCAL_WORLD_SIZE.
std::optional<Refusal> judge_nodes(const GroupIdentity& group, const std::vector<MemberRecord>& records) {
  std::map<std::pair<std::string, int>, int> owner;
  std::map<std::string, int> first_of_node;
  for (int rank = 0; rank < group.size; ++rank) {
    const MemberRecord& record = records[static_cast<std::size_t>(rank)];
    if (!record.local_rank || !record.local_world_size) continue;
    const auto [found, is_new] = owner.emplace(std::pair{record.node, *record.local_rank}, rank);
    if (!is_new) {
      return Refusal{RuleError::kValue,
                     "LOCAL_RANK=" + std::to_string(*record.local_rank) + " is set for " +
                         worker_text(group, found->second, records[static_cast<std::size_t>(found->second)]) +
                         " and for " + worker_text(group, rank, record) +
                         " of the same node: each worker of a node needs its own"};
    }
    const int first = first_of_node.emplace(record.node, rank).first->second;
    const auto& expected = records[static_cast<std::size_t>(first)].local_world_size;
    if (expected != record.local_world_size) {
      return Refusal{RuleError::kValue,
                     "LOCAL_WORLD_SIZE is " + std::to_string(*expected) + " for " +
                         worker_text(group, first, records[static_cast<std::size_t>(first)]) + " and " +
                         std::to_string(*record.local_world_size) + " for " +
                         worker_text(group, rank, record) + " of the same node: set it consistently"};
    }
  }
  return std::nullopt;
}

std::string exchange_failed(const GroupIdentity& group, const Status& status) {
  if (status.code() == StatusCode::kAborted) return status.message();
  return "group '" + group.name + "' could not be made on " + member_text(group, group.rank) + " of " +
         std::to_string(group.size) + ": " + status.message();
}

[[noreturn]] void give_up(const GroupIdentity& group, const Status& status) {
  C10_THROW_ERROR(DistBackendError, exchange_failed(group, status));
}

std::string not_come(const std::vector<int>& ranks) {
  return ranks_text(ranks) + " did not come within the group's timeout";
}

// Rank 0 gathers the records and hands out the table: O(n) traffic.
std::vector<MemberRecord> exchange(const GroupIdentity& group, StoreBootstrap& bootstrap,
                                   const MemberRecord& own, Deadline deadline) {
  if (group.rank != 0) {
    if (const Status status = bootstrap.set(record_key(group.rank), encode(own)); !status.is_ok()) {
      give_up(group, status);
    }
    Result<std::string> table = bootstrap.get(kTableKey, deadline);
    if (!table.is_ok()) {
      const bool late = table.status().code() == StatusCode::kTimeout;
      give_up(group, late ? Status(StatusCode::kTimeout, not_come({0})) : table.status());
    }
    return split_table(table.value());
  }
  std::vector<std::string> records{encode(own)};
  std::vector<int> missing;
  for (int rank = 1; rank < group.size; ++rank) {
    Result<std::string> record = bootstrap.get(record_key(rank), deadline);
    if (record.is_ok()) {
      records.push_back(std::move(record).value());
    } else if (record.status().code() == StatusCode::kTimeout) {
      missing.push_back(rank);
    } else {
      give_up(group, record.status());
    }
  }
  if (!missing.empty()) give_up(group, Status(StatusCode::kTimeout, not_come(missing)));
  const std::string table = join_table(records);
  if (const Status status = bootstrap.set(kTableKey, table); !status.is_ok()) give_up(group, status);
  return split_table(table);
}

}  // namespace

std::optional<Refusal> judge(const GroupIdentity& group, const std::vector<MemberRecord>& records) {
  if (auto refusal = judge_refusals(group, records)) return refusal;
  return judge_nodes(group, records);
}

int local_rank_of(int rank, const std::vector<MemberRecord>& records) {
  const MemberRecord& own = records[static_cast<std::size_t>(rank)];
  if (own.local_rank) return *own.local_rank;
  std::set<int> taken;
  int unnumbered_before = 0;
  for (std::size_t other = 0; other < records.size(); ++other) {
    if (records[other].node != own.node) continue;
    if (records[other].local_rank) taken.insert(*records[other].local_rank);
    if (!records[other].local_rank && static_cast<int>(other) < rank) ++unnumbered_before;
  }
  for (int candidate = 0;; ++candidate) {
    if (taken.contains(candidate)) continue;
    if (unnumbered_before-- == 0) return candidate;
  }
}

int admit(const GroupIdentity& group, StoreBootstrap* bootstrap, bool was_member, Deadline deadline) {
  const MemberRecord own = examine_process(was_member);
  const std::vector<MemberRecord> records =
      bootstrap == nullptr ? std::vector{own} : exchange(group, *bootstrap, own, deadline);
  if (auto refusal = judge(group, records)) raise_python(refusal->error, refusal->text);
  const int index = local_rank_of(group.rank, records);
  raise_if_error(DeviceRuntime::get().bind(index));
  return index;
}

}  // namespace neuron::bridge
