// Direct broadcast: one step, on one machine.
//
//   root's input  [a b c]
//   lane r         slice r of it, to slice r of every output
//
// Memory traffic: S read, (n-1)*S written. No scratch. Any group size.
#include "engine/collectives/algorithms/algorithm.h"
#include "engine/collectives/algorithms/block_copy.h"
#include "engine/collectives/algorithms/slices.h"
#include "engine/collectives/communicator.h"

namespace neuron {

namespace {

std::size_t lane_elements(const Collective& c, std::size_t lane) {
  return slice_elements(c.parties[c.root].count, c.element_bytes, c.size, lane);
}

void run(const Collective& c, std::size_t lane, std::size_t begin, std::size_t end) {
  const Party& root = c.parties[c.root];
  const std::size_t first = slice_begin(root.count, c.element_bytes, c.size, lane) + begin;
  const std::size_t offset = first * c.element_bytes;
  std::byte* targets[Communicator::kMaxSize];
  std::size_t target_count = 0;
  for (std::size_t rank = 0; rank < c.size; ++rank) {
    std::byte* const output = c.parties[rank].output;
    if (output != nullptr && output != root.input) targets[target_count++] = output + offset;
  }
  copy_to_all(root.input + offset, targets, target_count, (end - begin) * c.element_bytes, c.copies);
}

}  // namespace

const Algorithm kDirectBroadcast{"direct_broadcast", lane_elements, run};

}  // namespace neuron
