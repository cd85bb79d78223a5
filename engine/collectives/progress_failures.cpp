// Reasons to give up on a message that does not move.
#include <chrono>
#include <string>

#include "engine/base/check.h"
#include "engine/base/log.h"
#include "engine/collectives/call_record.h"
#include "engine/collectives/progress.h"

namespace neuron {

namespace {
constexpr std::chrono::seconds kWarnAfter{1};
constexpr char kCrossed[] =
    "both ranks send and neither receives: an exchange of large messages goes in one batch";
}  // namespace

void Progress::look_for_failures() {
  const Operation* late = nullptr;
  for_each_pending([&](const OperationPtr& operation) {
    if (!operation->is_ready()) return;
    if (!operation->deadline) {
      operation->deadline = Deadline::after(operation->request.timeout);
      operation->warning = Deadline::after(kWarnAfter);
    }
    if (operation->deadline->passed()) late = operation.get();
    if (operation->warning && operation->warning->passed()) warn_if_crossed(*operation);
  });
  for_each_pending([&](const OperationPtr& operation) {
    if (operation->is_ready()) look_for_peers(*operation);
  });
  if (late != nullptr) fail_timed_out(*late);
}

// Looked at after a step in which nothing moved: whatever a peer did before it went is here already, but for
// what it did in between, which the next step takes.
bool Progress::is_gone(int peer) const {
  if (peer == group_.rank()) return false;
  const bool left = control_.member(peer).state.load(std::memory_order_acquire) == MemberState::kLeft;
  if (!left && !group_.watch().is_dead(peer)) return false;
  return control_.mailbox(peer, group_.rank()).next_announced() == nullptr;
}

// A receive from anybody needs one that is still there.
void Progress::look_for_peers(const Operation& operation) {
  int gone = operation.request.peer;
  if (gone == PointToPointRequest::kAnyPeer) {
    for (int peer = 0; peer < group_.size(); ++peer) {
      if (peer == group_.rank()) continue;
      if (!is_gone(peer)) return;
      gone = peer;
    }
  }
  if (gone == PointToPointRequest::kAnyPeer || !is_gone(gone)) return;
  const bool dead = group_.watch().is_dead(gone);
  const std::string why = dead ? group_.death_of(gone) : group_.rank_name(gone) + " has left the group";
  group_.fail(dead ? StatusCode::kPeerDied : StatusCode::kAborted,
              detail::concatenate(call_name(operation), ": ", why));
}

std::string Progress::call_name(const Operation& operation) const {
  return detail::concatenate(describe(operation.request), " #", operation.work->sequence(), " of ",
                             group_.rank_name(group_.rank()));
}

// Of a send that the peer does not receive: the large message of the peer that this rank does not receive
// either.
const Message* Progress::crossing(const Operation& operation) const {
  if (operation.request.direction != PointToPointRequest::Direction::kSend) return nullptr;
  const auto crosses = [&](const Message& message) {
    return message.source == operation.request.peer && message.source != group_.rank() && !message.eager;
  };
  for (const Message& message : queue_.arrived()) {
    if (crosses(message)) return &message;
  }
  for (const Transfer& transfer : transfers_) {
    if (!transfer.receive->is_ready() && crosses(transfer.message)) return &transfer.message;
  }
  return nullptr;
}

// Long before the timeout, and not sure: the rank may only be late.
void Progress::warn_if_crossed(Operation& operation) const {
  const Message* message = crossing(operation);
  if (message == nullptr) return;
  operation.warning.reset();
  log_line(
      LogLevel::kWarn, "collectives",
      detail::concatenate(group_.title(), ": ", call_name(operation),
                          " waits for more than a second, and so does ", describe(*message), "; ", kCrossed));
}

void Progress::fail_timed_out(const Operation& operation) {
  const bool send = operation.request.direction == PointToPointRequest::Direction::kSend;
  std::string text = detail::concatenate(call_name(operation), ": ", send ? "not received" : "nothing came",
                                         " within the timeout of ", in_seconds(operation.request.timeout));
  if (crossing(operation) != nullptr) text += detail::concatenate("; ", kCrossed);
  for (const Message& message : queue_.arrived())
    text += detail::concatenate("\n  ", describe(message), ", has come, and no receive was posted for it");
  for (const Transfer& transfer : transfers_) {
    if (transfer.receive->is_ready()) continue;
    text += detail::concatenate("\n  ", describe(transfer.message),
                                ", has come, and its receive waits behind other work");
  }
  group_.fail(StatusCode::kTimeout, text);
}

}  // namespace neuron
