#include "engine/measure/operation.h"

namespace neuron {

const char* operation_name(Operation operation) {
  const std::optional<CollectiveKind> kind = collective_of(operation);
  return kind ? collective_name(*kind) : "send_receive";
}

std::optional<CollectiveKind> collective_of(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
      return CollectiveKind::kAllReduce;
    case Operation::kBroadcast:
      return CollectiveKind::kBroadcast;
    case Operation::kReduce:
      return CollectiveKind::kReduce;
    case Operation::kAllGather:
      return CollectiveKind::kAllGather;
    case Operation::kGather:
      return CollectiveKind::kGather;
    case Operation::kScatter:
      return CollectiveKind::kScatter;
    case Operation::kReduceScatter:
      return CollectiveKind::kReduceScatter;
    case Operation::kAllToAll:
      return CollectiveKind::kAllToAll;
    case Operation::kBarrier:
      return CollectiveKind::kBarrier;
    case Operation::kSendReceive:
      return std::nullopt;
  }
  return std::nullopt;
}

bool reduces(Operation operation) {
  const std::optional<CollectiveKind> kind = collective_of(operation);
  return kind && reduces(*kind);
}

bool works_in_place(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduce ||
         operation == Operation::kBroadcast;
}

double bus_factor(Operation operation, int ranks) {
  const double n = ranks;
  switch (operation) {
    case Operation::kAllReduce:
      return 2 * (n - 1) / n;
    case Operation::kAllGather:
    case Operation::kReduceScatter:
    case Operation::kAllToAll:
    case Operation::kGather:
    case Operation::kScatter:
      return (n - 1) / n;
    case Operation::kBroadcast:
    case Operation::kReduce:
    case Operation::kSendReceive:
      return 1;
    case Operation::kBarrier:
      return 0;
  }
  return 0;
}

std::size_t part_count(Operation operation, int ranks) {
  switch (operation) {
    case Operation::kAllGather:
    case Operation::kReduceScatter:
    case Operation::kAllToAll:
    case Operation::kGather:
    case Operation::kScatter:
      return static_cast<std::size_t>(ranks);
    default:
      return 1;
  }
}

}  // namespace neuron
