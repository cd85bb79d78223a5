// Waits of a rank in one group, told to the members of its other groups: so that ranks which wait for each
// other in different groups can find out. Internal to this folder.
//
// A rank that waits for long (Group::kTick) writes into its own Member of every other group of its core:
// where it waits, for which members of that group, and whether a call of that group is queued behind the
// wait. One notice a group: of several waits at once the last to write is seen.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/collectives/control_block.h"

namespace neuron {

class Group;

// What rank `rank` of a group says about a wait elsewhere; a consistent copy.
struct WaitElsewhere {
  std::string group;                // where it waits
  std::uint64_t sequence = 0;       // of the call there
  std::uint64_t queued_behind = 0;  // first call of this group that is queued behind it; 0: none is known
  std::vector<int> missing;         // members of this group that it waits for
};
std::optional<WaitElsewhere> read_wait_elsewhere(const Member& member, int size);

// Groups of this process, for those who wait to find their other groups. A group is listed from the end of
// its joining to its destruction.
void list_group(Group& group);
void unlist_group(Group& group);

// The wait of one call: tells the other groups while it lives. On the waiting thread.
class WaitNotice {
 public:
  WaitNotice(const Group& group, std::uint64_t sequence) : group_(group), sequence_(sequence) {}
  // Takes back what was told.
  ~WaitNotice();
  WaitNotice(const WaitNotice&) = delete;
  WaitNotice& operator=(const WaitNotice&) = delete;

  void update(const std::vector<int>& missing);

  struct Cycle {
    std::string text;  // "rank 0 waits here for rank 1, which …"
    bool certain =
        false;  // no rank can get out of it: the calls that are waited for are queued behind the waits
  };
  // A chain of waits from one of the missing ranks back to this one.
  std::optional<Cycle> find_cycle(const std::vector<int>& missing) const;

 private:
  const Group& group_;
  const std::uint64_t sequence_;
  bool told_ = false;
};

}  // namespace neuron
