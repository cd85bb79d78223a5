#include "engine/measure/operation_spec.h"

#include <algorithm>

#include "engine/collectives/communicator.h"
#include "engine/testing/exact_values.h"

namespace neuron {

namespace {

std::size_t all_parts(const OperationSpec& spec) { return spec.count * static_cast<std::size_t>(spec.ranks); }

ValuePattern reduced_pattern(const OperationSpec& spec) {
  std::vector<std::vector<std::byte>> inputs;
  for (int rank = 0; rank < spec.ranks; ++rank) inputs.push_back(input_pattern(spec, rank).values());
  return {spec.dtype, plain_reduce(spec.dtype, spec.op, inputs)};
}

// The part of each rank, in the order of ranks; each from element `first` of that rank's input.
std::vector<ExpectedPart> gathered(const OperationSpec& spec, std::size_t first) {
  std::vector<ExpectedPart> parts;
  for (int rank = 0; rank < spec.ranks; ++rank)
    parts.push_back({input_pattern(spec, rank), first, spec.count});
  return parts;
}

}  // namespace

std::size_t input_count(const OperationSpec& spec, int rank) {
  switch (spec.operation) {
    case Operation::kAllReduce:
    case Operation::kReduce:
    case Operation::kAllGather:
    case Operation::kGather:
    case Operation::kSendReceive:
      return spec.count;
    case Operation::kBroadcast:
      return rank == spec.root ? spec.count : 0;
    case Operation::kScatter:
      return rank == spec.root ? all_parts(spec) : 0;
    case Operation::kReduceScatter:
    case Operation::kAllToAll:
      return all_parts(spec);
    case Operation::kBarrier:
      return 0;
  }
  return 0;
}

std::size_t output_count(const OperationSpec& spec, int rank) {
  switch (spec.operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter:
    case Operation::kScatter:
    case Operation::kBroadcast:
    case Operation::kSendReceive:
      return spec.count;
    case Operation::kReduce:
      return rank == spec.root ? spec.count : 0;
    case Operation::kGather:
      return rank == spec.root ? all_parts(spec) : 0;
    case Operation::kAllGather:
    case Operation::kAllToAll:
      return all_parts(spec);
    case Operation::kBarrier:
      return 0;
  }
  return 0;
}

std::size_t size_bytes(const OperationSpec& spec) {
  return std::max(input_count(spec, spec.root), output_count(spec, spec.root)) * dtype_size(spec.dtype);
}

ValuePattern input_pattern(const OperationSpec& spec, int rank) {
  constexpr std::size_t kCount = ValuePattern::kPeriod;
  if (spec.values == InputValues::kOnes) return {spec.dtype, one_values(spec.dtype, kCount)};
  const std::uint64_t seed = spec.seed * Communicator::kMaxSize + static_cast<std::uint64_t>(rank);
  if (reduces(spec.operation)) return {spec.dtype, exact_values(spec.dtype, spec.op, kCount, seed)};
  return {spec.dtype, any_bytes(spec.dtype, kCount, seed)};
}

std::vector<ExpectedPart> expected_output(const OperationSpec& spec, int rank) {
  const std::size_t own = static_cast<std::size_t>(rank) * spec.count;
  if (output_count(spec, rank) == 0) return {};
  switch (spec.operation) {
    case Operation::kAllReduce:
    case Operation::kReduce:
      return {{reduced_pattern(spec), 0, spec.count}};
    case Operation::kReduceScatter:
      return {{reduced_pattern(spec), own, spec.count}};
    case Operation::kBroadcast:
      return {{input_pattern(spec, spec.root), 0, spec.count}};
    case Operation::kScatter:
      return {{input_pattern(spec, spec.root), own, spec.count}};
    case Operation::kAllGather:
    case Operation::kGather:
      return gathered(spec, 0);
    case Operation::kAllToAll:
      return gathered(spec, own);
    case Operation::kSendReceive:
      return {{input_pattern(spec, (rank + spec.ranks - 1) % spec.ranks), 0, spec.count}};
    case Operation::kBarrier:
      break;
  }
  return {};
}

std::uint64_t count_wrong(const std::vector<ExpectedPart>& expected, const std::byte* output) {
  std::uint64_t wrong = 0;
  for (const ExpectedPart& part : expected) {
    wrong += part.pattern.count_wrong(output, part.first, part.count);
    output += part.count * dtype_size(part.pattern.dtype());
  }
  return wrong;
}

}  // namespace neuron
