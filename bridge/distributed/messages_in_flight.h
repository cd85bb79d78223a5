// MessagesInFlight: keeps the memory of point-to-point messages until they are done.
//
// A message runs on no stream, so that no stream's position says when its memory is free. Storages are held
// here instead (not tensors: autograd would take them for used), and dropped by later calls of the same
// group: never on a thread of the engine, which must not need Python's global lock. Thread-safe.
//
// What the user has waited for is kept apart from what is done, so that the rule about two-way exchanges does
// not depend on timing.
#pragma once

#include <c10/core/Storage.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/collectives/point_to_point.h"
#include "engine/collectives/work.h"

namespace neuron::bridge {

class MessagesInFlight {
 public:
  using Direction = PointToPointRequest::Direction;
  struct Message {
    std::shared_ptr<const Work> work;
    c10::Storage storage;
  };
  // Set when the user has waited for an unbatched message, or has seen it completed.
  using WaitedFor = std::shared_ptr<std::atomic<bool>>;

  void add(Message message);
  // Drops the messages that are done.
  void sweep();
  // An unbatched message was posted: its mark.
  WaitedFor note_unbatched(Direction direction, int peer);
  // An unbatched message in the other direction, to or from `peer`, was posted and not waited for.
  bool faces(Direction direction, int peer) const;

 private:
  mutable std::mutex mutex_;
  std::vector<Message> messages_;
  std::map<std::pair<Direction, int>, WaitedFor>
      unbatched_;  // the first that was not waited for, else the last
};

}  // namespace neuron::bridge
