// Direct reduce-scatter: one step, on one machine.
//
//             rank 0      rank 1      rank 2
//   inputs   [a0 b0 c0]  [a1 b1 c1]  [a2 b2 c2]
//   lane r    part r of all inputs, reduced, to the output of rank r
//   outputs  [a0 op a1 op a2]  [b0 op b1 op b2]  [c0 op c1 op c2]
//
// Memory traffic: n*n*S read, n*S written in all (S elements for each output). No scratch. Any group size;
// parts may differ in size. Order of reduction: rank 0, 1, …, n-1, for each element.
#include "engine/collectives/algorithms/algorithm.h"
#include "engine/collectives/communicator.h"

namespace neuron {

namespace {

std::size_t lane_elements(const Collective& c, std::size_t lane) {
  return c.parties[lane].output != nullptr ? c.parties[lane].count : 0;
}

void run(const Collective& c, std::size_t lane, std::size_t begin, std::size_t end) {
  const std::size_t offset = begin * c.element_bytes;
  const std::byte* inputs[Communicator::kMaxSize];
  double factors[Communicator::kMaxSize];
  for (std::size_t rank = 0; rank < c.size; ++rank) {
    inputs[rank] = c.input_part(rank, lane).data + offset;
    factors[rank] = c.parties[rank].factor;
  }
  std::byte* output = c.parties[lane].output + offset;
  c.kernel({.inputs = inputs,
            .input_count = c.size,
            .outputs = &output,
            .output_count = 1,
            .count = end - begin,
            .factors = factors});
}

}  // namespace

const Algorithm kDirectReduceScatter{"direct_reduce_scatter", lane_elements, run};

}  // namespace neuron
