// Direct all-reduce: one step, on one machine.
//
//             rank 0      rank 1      rank 2
//   inputs   [a0 b0 c0]  [a1 b1 c1]  [a2 b2 c2]
//   lane 0    a = a0 op a1 op a2, written to all outputs        lane 1: b        lane 2: c
//   outputs  [a  b  c ]  [a  b  c ]  [a  b  c ]
//
// Memory traffic: n*S read, n*S written in all, which is the floor. No scratch. Any group size.
// Order of reduction: rank 0, 1, …, n-1, for each element.
#include "engine/collectives/algorithms/algorithm.h"
#include "engine/collectives/algorithms/slices.h"
#include "engine/collectives/communicator.h"

namespace neuron {

namespace {

std::size_t lane_elements(const Collective& c, std::size_t lane) {
  return slice_elements(c.parties[0].count, c.element_bytes, c.size, lane);
}

void run(const Collective& c, std::size_t lane, std::size_t begin, std::size_t end) {
  const std::size_t first = slice_begin(c.parties[0].count, c.element_bytes, c.size, lane) + begin;
  const std::size_t offset = first * c.element_bytes;
  const std::byte* inputs[Communicator::kMaxSize];
  std::byte* outputs[Communicator::kMaxSize];
  double factors[Communicator::kMaxSize];
  std::size_t output_count = 0;
  for (std::size_t rank = 0; rank < c.size; ++rank) {
    const Party& party = c.parties[rank];
    inputs[rank] = party.input + offset;
    factors[rank] = party.factor;
    if (party.output != nullptr) outputs[output_count++] = party.output + offset;
  }
  c.kernel({.inputs = inputs,
            .input_count = c.size,
            .outputs = outputs,
            .output_count = output_count,
            .count = end - begin,
            .factors = factors});
}

}  // namespace

const Algorithm kDirectAllReduce{"direct_all_reduce", lane_elements, run};

}  // namespace neuron
