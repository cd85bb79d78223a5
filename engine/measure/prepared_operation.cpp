#include "engine/measure/prepared_operation.h"

#include <cstring>

#include "engine/base/check.h"
#include "engine/measure/rank_failure.h"

namespace neuron {

PreparedOperation::PreparedOperation(const RankMember& member, const OperationSpec& spec, bool in_place,
                                     Submission submission)
    : member_(member),
      spec_(spec),
      submission_(submission),
      expected_(expected_output(spec, member.rank())),
      input_(member.allocate(in_place ? size_bytes(spec)
                                      : input_count(spec, member.rank()) * dtype_size(spec.dtype))),
      output_(in_place ? input_
                       : member.allocate(output_count(spec, member.rank()) * dtype_size(spec.dtype))) {
  NEURON_CHECK(!in_place || works_in_place(spec.operation), operation_name(spec.operation), " in place");
  if (collective_of(spec.operation)) {
    make_request();
  } else {
    make_messages();
  }
  fill();
}

PreparedOperation::~PreparedOperation() {
  if (output_ != input_) member_.free(output_);
  member_.free(input_);
}

void PreparedOperation::make_request() {
  request_.kind = *collective_of(spec_.operation);
  if (spec_.operation == Operation::kBarrier) return;
  request_.dtype = spec_.dtype;
  if (reduces(spec_.operation)) request_.op = spec_.op;
  if (is_rooted(request_.kind)) request_.root = spec_.root;
  request_.count = spec_.count;
  if (input_ == output_ || input_count(spec_, member_.rank()) != 0) request_.input = input_->data;
  if (input_ == output_ || output_count(spec_, member_.rank()) != 0) request_.output = output_->data;
}

void PreparedOperation::make_messages() {
  const int ranks = member_.ranks();
  PointToPointRequest message;
  message.dtype = spec_.dtype;
  message.count = spec_.count;
  message.direction = PointToPointRequest::Direction::kSend;
  message.peer = (member_.rank() + 1) % ranks;
  message.buffer = input_->data;
  messages_.push_back(message);
  message.direction = PointToPointRequest::Direction::kReceive;
  message.peer = (member_.rank() + ranks - 1) % ranks;
  message.buffer = output_->data;
  messages_.push_back(message);
}

void PreparedOperation::fill() {
  std::byte* at = output_->data;
  for (const ExpectedPart& part : expected_) {
    part.pattern.fill_wrong(at, part.first, part.count);
    at += part.count * dtype_size(spec_.dtype);
  }
  const std::size_t inputs = input_count(spec_, member_.rank());
  if (inputs != 0) input_pattern(spec_, member_.rank()).fill(input_->data, 0, inputs);
}

void PreparedOperation::clear_input() {
  std::memset(input_->data, 0, input_count(spec_, member_.rank()) * dtype_size(spec_.dtype));
}

void PreparedOperation::run() {
  if (!messages_.empty()) return run_messages();
  if (submission_ == Submission::kDirect) return or_fail(member_.communicator().run(request_));
  or_fail(or_fail(member_.communicator().submit(member_.core().default_stream(), request_))->wait());
}

void PreparedOperation::run_messages() {
  const auto works =
      or_fail(member_.communicator().submit_messages(member_.core().default_stream(), messages_));
  for (const auto& work : works) or_fail(work->wait());
}

std::uint64_t PreparedOperation::count_wrong() const { return neuron::count_wrong(expected_, output_->data); }

}  // namespace neuron
