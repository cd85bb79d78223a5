// Direct reduce: as the all-reduce, but only the root's output is written.
//
//   lane r    slice r of all inputs, reduced, to slice r of the root's output
//
// Memory traffic: n*S read, S written. No scratch. Any group size. Order of reduction: rank 0, 1, …, n-1.
// The code is the all-reduce's: a rank without an output is passed over.
#include "engine/collectives/algorithms/algorithm.h"

namespace neuron {

namespace {

std::size_t lane_elements(const Collective& c, std::size_t lane) {
  return kDirectAllReduce.lane_elements(c, lane);
}

void run(const Collective& c, std::size_t lane, std::size_t begin, std::size_t end) {
  if (c.parties[c.root].output != nullptr) kDirectAllReduce.run(c, lane, begin, end);
}

}  // namespace

const Algorithm kDirectReduce{"direct_reduce", lane_elements, run};

}  // namespace neuron
