// Operation: what the measuring programs can run, by the names and factors of nccl-tests. Open first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/collectives/collective.h"

namespace neuron {

enum class Operation : std::uint8_t {
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kBarrier,
  kSendReceive,  // every rank sends to the next one and receives from the one before, around the ring
};

inline constexpr std::array kAllOperations{
    Operation::kAllReduce, Operation::kBroadcast,  Operation::kReduce,        Operation::kAllGather,
    Operation::kGather,    Operation::kScatter,    Operation::kReduceScatter, Operation::kAllToAll,
    Operation::kBarrier,   Operation::kSendReceive};

const char* operation_name(Operation operation);  // "all_reduce"
// Nothing for kSendReceive, which is two messages.
std::optional<CollectiveKind> collective_of(Operation operation);
bool reduces(Operation operation);
// One buffer can be a rank's input and output.
bool works_in_place(Operation operation);

// What the payload's bandwidth (algbw) is multiplied by to compare operations with each other and with the
// hardware's (busbw): 2 (n-1)/n for all-reduce; (n-1)/n for all-gather, reduce-scatter, all-to-all, gather,
// scatter; 1 for broadcast, reduce and send-receive; 0 for barrier.
double bus_factor(Operation operation, int ranks);

// Parts of equal size that the "size" of an operation consists of: n where one side of a rank has a part for
// each rank, otherwise 1. The size is that of the larger of one rank's input and output.
std::size_t part_count(Operation operation, int ranks);

}  // namespace neuron
