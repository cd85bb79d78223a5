// ProcessGroupNeuron's messages: send, receive, and batches of them.
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <utility>

#include "bridge/distributed/dtype_map.h"
#include "bridge/distributed/process_group_neuron.h"
#include "bridge/distributed/python_origin.h"
#include "bridge/runtime/errors.h"
#include "bridge/runtime/streams.h"

namespace neuron::bridge {

using c10d::OpType;
using Direction = PointToPointRequest::Direction;

namespace {

PendingMessage make_message(const CallContext& call, Direction direction, const at::Tensor& tensor, int peer,
                            int tag) {
  TORCH_CHECK_VALUE(tag >= 0, call.name, ": negative tag ", tag);
  PendingMessage message;
  message.tensor = tensor;
  message.buffer = tensor;
  if (!tensor.is_contiguous()) {
    check_rule(RuleId::kP2pNonContiguous,
               c10::str(call.name, " of a tensor with strides ", tensor.strides()));
  }
  const bool empty = tensor.numel() == 0;
  if (direction == Direction::kReceive) check_no_overlap(tensor, call.name);
  if (!empty && !is_its_own_buffer(tensor, call.device)) {
    message.buffer = direction == Direction::kSend ? contiguous_copy(tensor, call.device)
                                                   : contiguous_buffer(tensor, call.device);
  }
  PointToPointRequest& request = message.request;
  request.direction = direction;
  request.peer = peer;
  request.tag = static_cast<std::uint64_t>(tag);
  request.dtype = movable_dtype(tensor.scalar_type());
  request.count = static_cast<std::size_t>(tensor.numel());
  request.buffer = empty ? nullptr : message.buffer.data_ptr();
  request.name = call.name;
  request.origin = python_origin();
  return message;
}

std::string profiler_title(const CallContext& call, Direction direction, int peer) {
  if (peer == PointToPointRequest::kAnyPeer) return std::string("neuron:") + call.name + " anySource";
  const int from = direction == Direction::kSend ? call.rank : peer;
  const int to = direction == Direction::kSend ? peer : call.rank;
  return std::string("neuron:") + call.name + " " + std::to_string(from) + "->" + std::to_string(to);
}

}  // namespace

WorkPtr ProcessGroupNeuron::send(Tensors& tensors, int peer, int tag) {
  const CallContext call = context("send");
  const at::Tensor& tensor = only_tensor(call, tensors, "tensor");
  check_peer(call, peer, "dst");
  return post(call, OpType::SEND, Direction::kSend, tensor, peer, tag);
}

WorkPtr ProcessGroupNeuron::recv(Tensors& tensors, int peer, int tag) {
  const CallContext call = context("recv");
  const at::Tensor& tensor = only_tensor(call, tensors, "tensor");
  check_peer(call, peer, "src");
  return post(call, OpType::RECV, Direction::kReceive, tensor, peer, tag);
}

WorkPtr ProcessGroupNeuron::recvAnysource(Tensors& tensors, int tag) {
  const CallContext call = context("recv");
  const at::Tensor& tensor = only_tensor(call, tensors, "tensor");
  check_rule(RuleId::kP2pAnySource, "recv without a source");
  return post(call, OpType::RECVANYSOURCE, Direction::kReceive, tensor, PointToPointRequest::kAnyPeer, tag);
}

WorkPtr ProcessGroupNeuron::post(const CallContext& call, OpType type, Direction direction,
                                 const at::Tensor& tensor, int peer, int tag) {
  PendingMessage message = make_message(call, direction, tensor, peer, tag);
  if (Batch* batch = open_batch()) {
    // Goes with the rest of the batch, whose Work stands for it.
    batch->messages.push_back(std::move(message));
    return nullptr;
  }
  if (in_flight_.faces(direction, peer)) {
    check_rule(RuleId::kP2pUnbatchedExchange,
               c10::str(call.name, " while a message of the other direction has not been waited for, rank ",
                        call.rank, " and rank ", peer));
  }
  std::vector<PendingMessage> alone;
  alone.push_back(std::move(message));
  WorkParts parts;
  post_messages(std::move(alone), parts);
  parts.waited_for = in_flight_.note_unbatched(direction, peer);
  std::string title;
  std::optional<Tensors> inputs;
  if (at::hasCallbacks()) {
    title = profiler_title(call, direction, peer);
    inputs = Tensors{tensor};
  }
  auto work = c10::make_intrusive<WorkNeuron>(getRank(), type, title.empty() ? nullptr : title.c_str(),
                                              inputs, WorkNeuron::HostWait::kOnRequest, device_);
  work->set_parts(std::move(parts));
  return work;
}

void ProcessGroupNeuron::post_messages(std::vector<PendingMessage> messages, WorkParts& parts) {
  in_flight_.sweep();
  std::vector<PointToPointRequest> requests;
  for (PendingMessage& message : messages) requests.push_back(std::move(message.request));
  const auto works = value_or_raise(communicator_->submit_messages(current_stream(device_), requests));
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const PendingMessage& message = messages[i];
    in_flight_.add({works[i], message.buffer.storage()});
    parts.works.push_back(works[i]);
    if (requests[i].direction == Direction::kSend) continue;
    parts.outputs.push_back(message.tensor);
    if (!message.buffer.is_same(message.tensor))
      parts.late_copies.push_back({message.tensor, message.buffer});
  }
}

}  // namespace neuron::bridge
