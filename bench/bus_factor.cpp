#include "bench/bus_factor.h"

namespace neuron {

double bus_factor(CollectiveKind kind, int ranks) {
  const double n = ranks;
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return 2 * (n - 1) / n;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kGather:
    case CollectiveKind::kScatter:
      return (n - 1) / n;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
      return 1;
    case CollectiveKind::kBarrier:
      return 0;
  }
  return 0;
}

std::size_t payload_bytes(CollectiveKind kind, int ranks, std::size_t part_bytes) {
  switch (kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kGather:
    case CollectiveKind::kScatter:
      return part_bytes * static_cast<std::size_t>(ranks);
    default:
      return part_bytes;
  }
}

}  // namespace neuron
