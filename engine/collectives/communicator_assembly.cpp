// Communicator::assemble(): the members wait for each other without a call that has a number.
#include "engine/collectives/communicator_impl.h"

namespace neuron {

namespace {

class Assembly {
 public:
  explicit Assembly(Group& group)
      : group_(group), turn_(group.own().assemblies.fetch_add(1, std::memory_order_seq_cst) + 1) {
    group_.wake_members();
  }

  Status wait(Deadline deadline, const std::function<Status()>& look) {
    const auto complete = [this] { return first_missing() == group_.size(); };
    return group_.wait(complete, [&] { give_up_if_hopeless(deadline, look); });
  }

 private:
  bool is_missing(int rank) const {
    return group_.control().member(rank).assemblies.load(std::memory_order_seq_cst) < turn_;
  }

  int first_missing() const {
    int rank = 0;
    while (rank < group_.size() && !is_missing(rank)) ++rank;
    return rank;
  }

  void give_up_if_hopeless(Deadline deadline, const std::function<Status()>& look) {
    for (const int rank : group_.watch().dead()) {
      if (!is_missing(rank)) continue;
      return group_.fail(StatusCode::kPeerDied, group_.death_of(rank));
    }
    if (const Status found = look(); !found.is_ok()) return group_.fail(found.code(), found.message());
    if (!deadline.passed()) return;
    std::string missing;
    for (int rank = first_missing(); rank < group_.size(); ++rank) {
      if (is_missing(rank)) missing += (missing.empty() ? "" : ", ") + group_.rank_name(rank);
    }
    group_.fail(StatusCode::kTimeout, missing + " did not come in time");
  }

  Group& group_;
  const std::uint64_t turn_;
};

}  // namespace

Status Communicator::assemble(Deadline deadline, const std::function<Status()>& look) {
  return Assembly(*impl_->group).wait(deadline, look);
}

}  // namespace neuron
