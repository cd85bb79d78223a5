// MessageQueue: receives that were posted and messages that have arrived, until they find each other.
// Internal to this folder; used by one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/deadline.h"
#include "engine/collectives/mailbox.h"
#include "engine/collectives/point_to_point.h"
#include "engine/collectives/work.h"

namespace neuron {

// A request on its way. The progress thread's, but for `ready`.
struct Operation {
  Operation(PointToPointRequest given, std::shared_ptr<Work> its_work)
      : request(std::move(given)), work(std::move(its_work)) {}

  bool is_ready() const { return ready.load(std::memory_order_acquire); }
  std::size_t nbytes() const { return request.count * dtype_size(request.dtype); }

  const PointToPointRequest request;
  const std::shared_ptr<Work> work;
  std::atomic<bool> ready{false};    // its stream has reached its place
  std::optional<Deadline> deadline;  // both from the first look at it
  std::optional<Deadline> warning;
};
using OperationPtr = std::shared_ptr<Operation>;

struct Message {
  int source = 0;
  std::uint64_t id = 0, tag = 0, count = 0, offset = 0;
  DType dtype = DType::kUint8;
  bool eager = false;
  std::vector<std::byte> payload;  // of an eager one

  static Message of(int source, const Announcement& announcement);
};

// "float32[16] from rank 1, tag 0"
std::string describe(const Message& message);

class MessageQueue {
 public:
  // The oldest message that fits, which is then the receive's; nothing: the receive waits here.
  std::optional<Message> post(OperationPtr receive);
  // The oldest receive that waits for such a message; null: the caller keeps the message here.
  OperationPtr match(int source, std::uint64_t tag);
  void keep(Message message) { arrived_.push_back(std::move(message)); }

  const std::list<OperationPtr>& receives() const { return receives_; }
  const std::deque<Message>& arrived() const { return arrived_; }
  void clear();

 private:
  std::list<OperationPtr> receives_;  // in the order of posting
  std::deque<Message> arrived_;       // in the order of arrival
};

}  // namespace neuron
