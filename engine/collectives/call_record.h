// Call records: what a rank says about its call in a slot, how it is checked against the others', how it
// reads.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "engine/base/status.h"
#include "engine/collectives/collective.h"
#include "engine/collectives/group.h"

namespace neuron {

// The fields that must agree, and flags that need not, in one word.
struct PackedCall {
  static constexpr std::uint64_t kInline = std::uint64_t{1} << 56;      // the input is in the record
  static constexpr std::uint64_t kTiny = std::uint64_t{1} << 60;        // and there in its first line
  static constexpr std::uint64_t kInputParts = std::uint64_t{1} << 57;  // the list of parts is published
  static constexpr std::uint64_t kOutputParts = std::uint64_t{1} << 58;
  static constexpr std::uint64_t kHasText = std::uint64_t{1} << 59;  // name or origin is published
  static constexpr std::uint64_t kAgreement = (std::uint64_t{1} << 56) - 1;

  static std::uint64_t pack(const CollectiveRequest& request);
  static CollectiveKind kind(std::uint64_t call) { return static_cast<CollectiveKind>(call & 0xFF); }
  static DType dtype(std::uint64_t call) { return static_cast<DType>(call >> 8 & 0xFF); }
  static ReduceOp op(std::uint64_t call) { return static_cast<ReduceOp>(call >> 16 & 0xFF); }
  static int root(std::uint64_t call) { return static_cast<int>(call >> 24 & 0xFFFF); }
};

// "0.3 s", for messages.
std::string in_seconds(std::chrono::nanoseconds time);

// Bytes that the rank itself brings: what it would put into its payload.
std::size_t contribution_bytes(const CollectiveRequest& request, int rank, int size);

// Writes this rank's record of `sequence` and publishes it (the last store is the record's sequence number).
void publish_call(Group& group, std::uint64_t sequence, const CollectiveRequest& request);

// Requires: all records of `sequence` are there. kMismatch with a table of all calls when they do not fit
// together.
Status check_agreement(const Group& group, std::uint64_t sequence);

// "  rank 0: all_reduce(float32[16], sum) at train.py:12\n  rank 1: not here; its last call was #6, barrier
// …", for each rank. Ranks whose record is not there yet are told by what they did last.
std::string describe_calls(const Group& group, std::uint64_t sequence);

}  // namespace neuron
