#include "engine/measure/rank_member.h"

#include <cstring>

#include "engine/device/device.h"
#include "engine/measure/rank_failure.h"

namespace neuron {

RankMember::RankMember(const MemberOptions& options, int rank, Bootstrap& bootstrap)
    : core_(or_fail(DeviceRuntime::get().core(rank))) {
  CommunicatorOptions group;
  group.group_name = "measure";
  group.rank = rank;
  group.size = options.ranks;
  group.timeout = options.timeout;
  group.core = core_;
  group.tuning = options.tuning;
  communicator_ = or_fail(Communicator::create(group, bootstrap));
}

RankMember::~RankMember() {
  // A failure has been told by whoever met it; here it would only hide that.
  (void)communicator_->destroy().is_ok();
}

Block* RankMember::allocate(std::size_t nbytes) const {
  return or_fail(core_->pool().allocate(nbytes, core_->default_stream()));
}

void RankMember::free(Block* block) const { core_->pool().free(block); }

void RankMember::barrier() const { or_fail(communicator_->run(CollectiveRequest{})); }

void RankMember::reduce(std::span<std::byte> values, DType dtype, ReduceOp op) const {
  Block* block = allocate(values.size());
  std::memcpy(block->data, values.data(), values.size());
  CollectiveRequest request;
  request.kind = CollectiveKind::kAllReduce;
  request.dtype = dtype;
  request.op = op;
  request.count = values.size() / dtype_size(dtype);
  request.input = request.output = block->data;
  or_fail(communicator_->run(request));
  std::memcpy(values.data(), block->data, values.size());
  free(block);
}

void RankMember::largest(std::span<double> values) const {
  reduce(std::as_writable_bytes(values), DType::kFloat64, ReduceOp::kMax);
}

std::uint64_t RankMember::total(std::uint64_t value) const {
  reduce(std::as_writable_bytes(std::span(&value, 1)), DType::kUint64, ReduceOp::kSum);
  return value;
}

}  // namespace neuron
