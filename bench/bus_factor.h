// Bus factors: what the payload's bandwidth (algbw) is multiplied by to compare collectives with each other
// and with the hardware's (busbw), as nccl-tests derives them.
#pragma once

#include "engine/collectives/collective.h"

namespace neuron {

// 2 (n-1)/n for all-reduce; (n-1)/n for all-gather, reduce-scatter, all-to-all, gather, scatter; 1 for
// broadcast and reduce; 0 for barrier.
double bus_factor(CollectiveKind kind, int ranks);

// The bytes that nccl-tests calls "size" of a collective whose rank parts have `part_bytes`: the larger of
// one rank's input and output.
std::size_t payload_bytes(CollectiveKind kind, int ranks, std::size_t part_bytes);

}  // namespace neuron
