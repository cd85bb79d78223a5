#include "engine/collectives/message_queue.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace neuron {

namespace {
bool fits(const PointToPointRequest& receive, int source, std::uint64_t tag) {
  return receive.tag == tag && (receive.peer == source || receive.peer == PointToPointRequest::kAnyPeer);
}
}  // namespace

Message Message::of(int source, const Announcement& announcement) {
  Message message{.source = source,
                  .id = announcement.id,
                  .tag = announcement.tag,
                  .count = announcement.count,
                  .offset = announcement.offset,
                  .dtype = static_cast<DType>(announcement.dtype),
                  .eager = announcement.eager != 0,
                  .payload = {}};
  if (message.eager) {
    const std::size_t nbytes = message.count * dtype_size(message.dtype);
    message.payload.assign(announcement.payload, announcement.payload + nbytes);
  }
  return message;
}

std::string describe(const Message& message) {
  return detail::concatenate(dtype_name(message.dtype), "[", message.count, "] from rank ", message.source,
                             ", tag ", message.tag);
}

std::optional<Message> MessageQueue::post(OperationPtr receive) {
  const auto found = std::find_if(arrived_.begin(), arrived_.end(), [&](const Message& message) {
    return fits(receive->request, message.source, message.tag);
  });
  if (found == arrived_.end()) {
    receives_.push_back(std::move(receive));
    return std::nullopt;
  }
  Message message = std::move(*found);
  arrived_.erase(found);
  return message;
}

OperationPtr MessageQueue::match(int source, std::uint64_t tag) {
  const auto found = std::find_if(receives_.begin(), receives_.end(), [&](const OperationPtr& receive) {
    return fits(receive->request, source, tag);
  });
  if (found == receives_.end()) return nullptr;
  OperationPtr receive = std::move(*found);
  receives_.erase(found);
  return receive;
}

void MessageQueue::clear() {
  receives_.clear();
  arrived_.clear();
}

}  // namespace neuron
