#include "engine/collectives/point_to_point.h"

#include "engine/base/check.h"

namespace neuron {

std::string describe(const PointToPointRequest& request) {
  const bool send = request.direction == PointToPointRequest::Direction::kSend;
  std::string out = request.name != nullptr ? request.name : send ? "send" : "recv";
  out += detail::concatenate("(", dtype_name(request.dtype), "[", request.count, "] ", send ? "to" : "from");
  if (request.peer == PointToPointRequest::kAnyPeer) {
    out += " any rank";
  } else {
    out += detail::concatenate(" rank ", request.peer);
  }
  out += detail::concatenate(", tag ", request.tag, ")");
  return request.origin.empty() ? out : detail::concatenate(out, " at ", request.origin);
}

Status validate(const PointToPointRequest& request, int size) {
  const auto invalid = [&](const auto&... parts) {
    return Status(StatusCode::kInvalidArgument, detail::concatenate(describe(request), ": ", parts...));
  };
  const bool any = request.direction == PointToPointRequest::Direction::kReceive &&
                   request.peer == PointToPointRequest::kAnyPeer;
  if (!any && (request.peer < 0 || request.peer >= size))
    return invalid("rank ", request.peer, " is not a rank of a group of ", size);
  if (request.count != 0 && request.buffer == nullptr) return invalid("the buffer is null");
  if (request.count > (std::size_t{1} << 62) / dtype_size(request.dtype)) return invalid("too many elements");
  return Status::ok();
}

}  // namespace neuron
