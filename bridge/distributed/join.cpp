#include "bridge/distributed/join.h"

#include "bridge/distributed/exception_text.h"
#include "bridge/distributed/live_groups.h"
#include "bridge/runtime/devices.h"
#include "bridge/runtime/errors.h"
#include "engine/base/log.h"

namespace neuron::bridge {

namespace {

std::shared_ptr<Communicator> make_communicator(const GroupIdentity& group, int device,
                                                std::chrono::milliseconds timeout, Bootstrap& bootstrap) {
  CommunicatorOptions options;
  options.group_name = group.name;
  options.rank = group.rank;
  options.size = group.size;
  options.global_ranks = group.global_ranks;
  options.timeout = timeout;
  options.core = &core_of(static_cast<c10::DeviceIndex>(device));
  return value_or_raise(Communicator::create(options, bootstrap));
}

// Every member says on stderr why the group is not made, before any of them ends.
void tell_and_leave(const GroupIdentity& group, StoreBootstrap& bootstrap, const std::string& text) {
  constexpr std::chrono::seconds kLimit{2};
  bootstrap.announce_failure(text);
  log_line(LogLevel::kError, "distributed", "[rank " + std::to_string(group.rank) + "] " + text);
  bootstrap.leave_together(group.size, kLimit);
}

// The Store may live in the process of a member, who may end as soon as it has gone on: no member goes on
// before all of them are done with the Store.
void settle(Communicator& communicator, StoreBootstrap& bootstrap, Deadline deadline) {
  constexpr std::chrono::milliseconds kLookEvery{200};  // thousands of ranks may wait
  Deadline next_look = Deadline::after(kLookEvery);
  const auto look = [&] {
    if (!next_look.passed()) return Status::ok();
    next_look = Deadline::after(kLookEvery);
    return bootstrap.announced_failure();
  };
  raise_if_error(communicator.assemble(deadline, look));
  bootstrap.erase_own_keys();
  raise_if_error(communicator.assemble(deadline, look));
}

}  // namespace

std::shared_ptr<Communicator> join_group(const GroupIdentity& group,
                                         const c10::intrusive_ptr<c10d::Store>& store,
                                         std::chrono::milliseconds timeout) {
  if (group.size == 1) {
    const int device = admit(group, nullptr, was_member(), Deadline::never());
    LocalBootstrap alone;
    auto communicator = make_communicator(group, device, timeout, alone);
    note_joined(communicator);
    return communicator;
  }
  // Rank 0 is the one that says who did not come; the others leave it time to.
  constexpr std::chrono::seconds kGrace{5};
  const Deadline deadline = Deadline::after(group.rank == 0 ? timeout : timeout + kGrace);
  StoreBootstrap bootstrap(store, group.name, group.rank);
  std::shared_ptr<Communicator> communicator;
  try {
    const int device = admit(group, &bootstrap, was_member(), deadline);
    communicator = make_communicator(group, device, timeout, bootstrap);
    settle(*communicator, bootstrap, deadline);
  } catch (const std::exception& error) {
    tell_and_leave(group, bootstrap, exception_text(error));
    if (communicator) communicator->abort("the group could not be made");
    throw;
  }
  note_joined(communicator);
  return communicator;
}

}  // namespace neuron::bridge
