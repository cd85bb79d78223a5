// Algorithm: how the work of a collective is cut, and how one cut is done. Open this header first.
//
// All buffers of all ranks are mapped here, so any rank can do any part. The work consists of one lane for
// each rank, of lane_elements() elements; a rank claims segments of its own lane first, then of the others'
// (execution.h). Which rank does a segment never shows in the result.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/collectives/algorithms/block_copy.h"
#include "engine/collectives/collective.h"
#include "engine/collectives/reduce/reduce.h"

namespace neuron {

struct Part {
  std::byte* data = nullptr;
  std::size_t count = 0;
};

// One rank's buffers. A null output is not written: the rank has none, or writes it itself.
struct Party {
  std::byte* input;
  std::byte* output;
  const Part* input_parts;   // one for each rank; null: `input` in equal parts of `count`
  const Part* output_parts;  // likewise
  std::size_t count;
  double factor;
};

struct Collective {
  CollectiveKind kind;
  std::size_t size;  // ranks
  std::size_t root;
  std::size_t element_bytes;
  ReduceKernel kernel;   // reductions only
  const Party* parties;  // by rank
  CopyTarget copies = CopyTarget::kCached;

  Part input_part(std::size_t rank, std::size_t part) const {
    const Party& party = parties[rank];
    if (party.input_parts != nullptr) return party.input_parts[part];
    if (party.input == nullptr) return {};
    return {party.input + part * party.count * element_bytes, party.count};
  }
  Part output_part(std::size_t rank, std::size_t part) const {
    const Party& party = parties[rank];
    if (party.output_parts != nullptr) return party.output_parts[part];
    if (party.output == nullptr) return {};
    return {party.output + part * party.count * element_bytes, party.count};
  }
};

struct Algorithm {
  const char* name;
  std::size_t (*lane_elements)(const Collective& collective, std::size_t lane);
  // Elements [begin, end) of the lane.
  void (*run)(const Collective& collective, std::size_t lane, std::size_t begin, std::size_t end);
};

extern const Algorithm kDirectAllReduce;
extern const Algorithm kDirectReduce;
extern const Algorithm kDirectReduceScatter;
extern const Algorithm kDirectBroadcast;
extern const Algorithm kDirectAllGather;
extern const Algorithm kDirectGather;
extern const Algorithm kDirectScatter;
extern const Algorithm kDirectAllToAll;
extern const Algorithm kNoData;  // barrier

// The algorithm of a kind on one machine.
const Algorithm& select_algorithm(CollectiveKind kind);

}  // namespace neuron
