// Progress: moves the point-to-point messages of one rank. Internal to this folder; owned by the Communicator.
//
//   send      eager: copied into the mailbox of the receiver, done.
//             large: announced with its place in the heap, done when the receipt comes.
//   receive   matched by (sender, tag) when announced.
//             eager: copied from the message.
//             large: copied once, straight from the sender's heap into the receive's buffer, then a receipt.
//
// One thread, started by the first post(); it sleeps when there is nothing to do. A failure is the group's.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/collectives/group.h"
#include "engine/collectives/message_queue.h"

namespace neuron {

class Progress {
 public:
  // `on_end` is called on the thread, once for each operation, after its work is complete.
  Progress(Group& group, std::function<void()> on_end);
  // Ends the thread. What is still on its way ends in an error, the group's or an abort.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // In the order of the host's calls. kUnavailable: the system gives no thread.
  Status post(const std::vector<OperationPtr>& operations) EXCLUDES(mutex_);
  // After `ready` of some operation was set. Any thread.
  void wake() const;

 private:
  struct Transfer {
    OperationPtr receive;
    Message message;
    std::size_t done = 0;  // bytes
  };
  using Channel = std::pair<int, std::uint64_t>;  // peer, tag

  void run();
  void run_until_stopped();
  bool step();
  bool take_posted() EXCLUDES(mutex_);
  bool take_announcements();
  bool take_receipts();
  bool announce_sends();
  bool announce(const OperationPtr& send);
  bool advance_transfers();
  bool advance(Transfer& transfer);
  bool give_receipts();

  void start_transfer(OperationPtr receive, Message message);
  void complete(const OperationPtr& operation, Status status);
  bool idle() const;

  void look_for_failures();
  bool is_gone(int peer) const;
  void look_for_peers(const Operation& operation);
  std::string call_name(const Operation& operation) const;
  const Message* crossing(const Operation& operation) const;
  void warn_if_crossed(Operation& operation) const;
  void fail_timed_out(const Operation& operation);
  template <typename Body>
  void for_each_pending(const Body& body) const;
  void fail_all();

  Group& group_;
  const ControlBlock& control_;
  const std::function<void()> on_end_;
  Patience patience_;
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  std::vector<OperationPtr> posted_ GUARDED_BY(mutex_);
  std::thread thread_ GUARDED_BY(mutex_);

  // The thread's own.
  MessageQueue queue_;
  std::map<Channel, std::deque<OperationPtr>> sends_;                // not announced yet
  std::unordered_map<std::uint64_t, OperationPtr> announced_sends_;  // large, by id
  std::uint64_t next_id_ = 1;
  std::vector<Transfer> transfers_;
  std::deque<std::pair<int, std::uint64_t>> receipts_;  // to give: peer, id
};

template <typename Body>
void Progress::for_each_pending(const Body& body) const {
  for (const auto& [channel, waiting] : sends_) {
    for (const OperationPtr& send : waiting) body(send);
  }
  for (const auto& [id, send] : announced_sends_) body(send);
  for (const OperationPtr& receive : queue_.receives()) body(receive);
  for (const Transfer& transfer : transfers_) body(transfer.receive);
}

}  // namespace neuron
