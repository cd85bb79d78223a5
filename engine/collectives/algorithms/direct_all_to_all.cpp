// Direct all-to-all: one step, on one machine.
//
//   inputs   [a0 a1 a2]  [b0 b1 b2]  [c0 c1 c2]
//   lane r    the parts of rank r's input one after the other; part p goes to part r of the output of rank p
//   outputs  [a0 b0 c0]  [a1 b1 c1]  [a2 b2 c2]
//
// Memory traffic: n*n*S read, n*n*S written in all (S elements for each part). No scratch, not in place. Any
// group size; parts may differ in size.
#include <algorithm>

#include "engine/collectives/algorithms/algorithm.h"
#include "engine/collectives/algorithms/block_copy.h"

namespace neuron {

namespace {

std::size_t lane_elements(const Collective& c, std::size_t lane) {
  std::size_t total = 0;
  for (std::size_t part = 0; part < c.size; ++part) total += c.input_part(lane, part).count;
  return total;
}

void run(const Collective& c, std::size_t lane, std::size_t begin, std::size_t end) {
  std::size_t first = 0;  // of the present part, in the lane
  for (std::size_t part = 0; part < c.size && first < end; ++part) {
    const Part from = c.input_part(lane, part);
    const std::size_t low = std::max(begin, first);
    const std::size_t high = std::min(end, first + from.count);
    std::byte* const to = c.output_part(part, lane).data;
    if (low < high && to != nullptr && to != from.data) {
      const std::size_t offset = (low - first) * c.element_bytes;
      copy_block(from.data + offset, to + offset, (high - low) * c.element_bytes, c.copies);
    }
    first += from.count;
  }
}

}  // namespace

const Algorithm kDirectAllToAll{"direct_all_to_all", lane_elements, run};

}  // namespace neuron
