// ProcessGroupNeuron's messages: send, receive, and batches of them.
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <optional>
#include <utility>

#include "bridge/distributed/comms_record.h"
#include "bridge/distributed/dtype_map.h"
#include "bridge/distributed/process_group_neuron.h"
#include "bridge/runtime/errors.h"
#include "bridge/runtime/python_stack.h"
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
  message.stack = python_stack(FlightRecorder::get().stack_depth());
  request.origin = users_line(message.stack);
  return message;
}

std::string profiler_title(const CallContext& call, Direction direction, int peer) {
  if (peer == PointToPointRequest::kAnyPeer) return std::string("neuron:") + call.name + " anySource";
  const int from = direction == Direction::kSend ? call.rank : peer;
  const int to = direction == Direction::kSend ? peer : call.rank;
  return std::string("neuron:") + call.name + " " + std::to_string(from) + "->" + std::to_string(to);
}

CommsCall profiled_call(OpType type, const at::Tensor& tensor, int peer) {
  CommsCall call;
  call.name = comms_name(type);
  call.rank = peer;
  call.point_to_point = true;
  call.inputs = {tensor};
  call.outputs = {tensor};
  return call;
}

// "send 0->1", "recv 1<-0"; a source that is not known is -1.
std::string record_name(int rank, Direction direction, int peer) {
  const bool send = direction == Direction::kSend;
  return (send ? "send " : "recv ") + std::to_string(rank) + (send ? "->" : "<-") + std::to_string(peer);
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
  std::optional<CommsRecord> comms;
  if (at::hasCallbacks()) comms.emplace(*recorded(), profiled_call(type, tensor, peer));
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
  post_messages(std::move(alone), /*batched=*/false, parts);
  parts.waited_for = in_flight_.note_unbatched(direction, peer);
  std::string title;
  std::optional<Tensors> inputs;
  if (at::hasCallbacks()) {
    title = profiler_title(call, direction, peer);
    inputs = Tensors{tensor};
    parts.profiled_group = recorded();
  }
  auto work = c10::make_intrusive<WorkNeuron>(getRank(), type, title.empty() ? nullptr : title.c_str(),
                                              inputs, WorkNeuron::HostWait::kOnRequest, device_);
  work->set_parts(std::move(parts));
  return work;
}

void ProcessGroupNeuron::post_messages(std::vector<PendingMessage> messages, bool batched, WorkParts& parts) {
  in_flight_.sweep();
  std::vector<PointToPointRequest> requests;
  for (const PendingMessage& message : messages) requests.push_back(message.request);
  const auto works =
      value_or_raise(communicator_->submit_messages(current_stream(device_), std::move(requests)));
  if (FlightRecorder::get().enabled()) record_messages(messages, works, batched);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const PendingMessage& message = messages[i];
    const PointToPointRequest& request = message.request;
    in_flight_.add({works[i], message.buffer.storage()});
    parts.works.push_back(works[i]);
    if (request.direction == Direction::kSend) continue;
    parts.outputs.push_back(message.tensor);
    if (!message.buffer.is_same(message.tensor))
      parts.late_copies.push_back({message.tensor, message.buffer});
  }
}

// As PyTorch records a batch: its messages under one number, then an entry for its end.
void ProcessGroupNeuron::record_messages(std::vector<PendingMessage>& messages,
                                         const std::vector<std::shared_ptr<Work>>& works, bool batched) {
  FlightRecord common;
  common.point_to_point = true;
  common.collective = communicator_->next_sequence() - 1;
  common.message = works.front()->sequence();
  FlightRecord end = common;
  end.name = "coalesced";
  end.stack = messages.back().stack;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const PointToPointRequest& request = messages[i].request;
    FlightRecord made = common;
    made.works.push_back(works[i]);
    made.name = record_name(getRank(), request.direction, request.peer);
    made.inputs.add(messages[i].tensor);
    made.outputs = made.inputs;
    made.stack = std::move(messages[i].stack);
    made.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(request.timeout);
    FlightRecorder::get().add(recorded(), std::move(made));
    end.works.push_back(works[i]);
  }
  if (batched) FlightRecorder::get().add(recorded(), std::move(end));
}

}  // namespace neuron::bridge
