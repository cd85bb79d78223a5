#include "engine/collectives/algorithms/algorithm.h"

#include "engine/base/check.h"

namespace neuron {

namespace {
std::size_t no_elements(const Collective&, std::size_t) { return 0; }
void run_nothing(const Collective&, std::size_t, std::size_t, std::size_t) {}
}  // namespace

const Algorithm kNoData{"no_data", no_elements, run_nothing};

const Algorithm& select_algorithm(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return kDirectAllReduce;
    case CollectiveKind::kBroadcast:
      return kDirectBroadcast;
    case CollectiveKind::kReduce:
      return kDirectReduce;
    case CollectiveKind::kAllGather:
      return kDirectAllGather;
    case CollectiveKind::kGather:
      return kDirectGather;
    case CollectiveKind::kScatter:
      return kDirectScatter;
    case CollectiveKind::kReduceScatter:
      return kDirectReduceScatter;
    case CollectiveKind::kAllToAll:
      return kDirectAllToAll;
    case CollectiveKind::kBarrier:
      return kNoData;
  }
  NEURON_CHECK(false, "unknown collective ", static_cast<int>(kind));
}

}  // namespace neuron
