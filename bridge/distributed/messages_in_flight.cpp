#include "bridge/distributed/messages_in_flight.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace neuron::bridge {

void MessagesInFlight::add(Message message) {
  const std::lock_guard lock(mutex_);
  messages_.push_back(std::move(message));
}

void MessagesInFlight::sweep() {
  // Declared before the lock: memory is freed without it.
  std::vector<Message> done;
  const std::lock_guard lock(mutex_);
  const auto first_done = std::partition(messages_.begin(), messages_.end(), [](const Message& message) {
    return !message.work->is_completed();
  });
  done.assign(std::make_move_iterator(first_done), std::make_move_iterator(messages_.end()));
  messages_.erase(first_done, messages_.end());
}

MessagesInFlight::WaitedFor MessagesInFlight::note_unbatched(Direction direction, int peer) {
  auto mark = std::make_shared<std::atomic<bool>>(false);
  const std::lock_guard lock(mutex_);
  WaitedFor& first = unbatched_[{direction, peer}];
  if (first == nullptr || first->load()) first = mark;
  return mark;
}

bool MessagesInFlight::faces(Direction direction, int peer) const {
  const Direction other = direction == Direction::kSend ? Direction::kReceive : Direction::kSend;
  const std::lock_guard lock(mutex_);
  const auto found = unbatched_.find({other, peer});
  return found != unbatched_.end() && !found->second->load();
}

}  // namespace neuron::bridge
