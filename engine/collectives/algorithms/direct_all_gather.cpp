// Direct all-gather: one step, on one machine.
//
//   inputs   [a]  [b]  [c]
//   lane r    the input of rank r, to part r of every output
//   outputs  [a b c]  [a b c]  [a b c]
//
// Memory traffic: n*S read, n*n*S written in all; in place n*S less. No scratch. Any group size; ranks may
// give different numbers of elements.
#include "engine/collectives/algorithms/algorithm.h"
#include "engine/collectives/algorithms/block_copy.h"
#include "engine/collectives/communicator.h"

namespace neuron {

namespace {

std::size_t lane_elements(const Collective& c, std::size_t lane) { return c.parties[lane].count; }

void run(const Collective& c, std::size_t lane, std::size_t begin, std::size_t end) {
  const std::byte* const input = c.parties[lane].input;
  const std::size_t offset = begin * c.element_bytes;
  std::byte* targets[Communicator::kMaxSize];
  std::size_t target_count = 0;
  for (std::size_t rank = 0; rank < c.size; ++rank) {
    std::byte* const output = c.output_part(rank, lane).data;
    if (output != nullptr && output != input) targets[target_count++] = output + offset;
  }
  copy_to_all(input + offset, targets, target_count, (end - begin) * c.element_bytes, c.copies);
}

}  // namespace

const Algorithm kDirectAllGather{"direct_all_gather", lane_elements, run};

}  // namespace neuron
