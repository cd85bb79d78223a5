// MessagesInFlight: keeps the memory of point-to-point messages until they are done.
//
// A message runs on no stream, so that no stream's position says when its memory is free. Storages are held
// here instead (not tensors: autograd would take them for used), and dropped by later calls of the same
// group: never on a thread of the engine, which must not need Python's global lock. Thread-safe.
#pragma once

#include <c10/core/Storage.h>

#include <memory>
#include <mutex>
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
    Direction direction;
    int peer;
    bool batched;
  };

  void add(Message message);
  // Drops the messages that are done.
  void sweep();
  // An unbatched message in the other direction is still under way to or from `peer`.
  bool faces(Direction direction, int peer) const;

 private:
  mutable std::mutex mutex_;
  std::vector<Message> messages_;
};

}  // namespace neuron::bridge
