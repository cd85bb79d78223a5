// Admission: may this process be a member of the new group, and on which core?
//
// Every member examines itself, and all members judge the same table of what they found: so all ranks fail
// together, with one message that names the rank at fault, before any core is started.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bridge/distributed/member_record.h"
#include "bridge/distributed/store_bootstrap.h"
#include "engine/base/deadline.h"

namespace neuron::bridge {

// The group that is being made.
struct GroupIdentity {
  std::string name;
  int rank = 0;
  int size = 1;
  std::vector<int> global_ranks;  // of the members, in rank order
};

// The same verdict on every member that judges the same records (one for each rank): a refusal, or nothing.
std::optional<Refusal> judge(const GroupIdentity& group, const std::vector<MemberRecord>& records);

// The core of `rank`: its LOCAL_RANK or, where that is missing (only with NEURON_EMU_LIMITS=extended), the
// first one that no other worker of its node has. Requires: judge() found nothing.
int local_rank_of(int rank, const std::vector<MemberRecord>& records);

// The whole of it: examines, exchanges through the Store (null for a group of one), judges, and binds the
// process to its core. Returns the device index; raises the group's refusal, or DistBackendError when
// somebody did not come.
int admit(const GroupIdentity& group, StoreBootstrap* bootstrap, bool was_member, Deadline deadline);

}  // namespace neuron::bridge
