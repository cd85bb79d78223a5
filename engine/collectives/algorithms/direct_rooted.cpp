// Direct gather and scatter: one step, on one machine.
//
//   gather    lane r: the input of rank r, to part r of the root's output
//   scatter   lane r: part r of the root's input, to the output of rank r
//
// Memory traffic: n*S read, n*S written in all. No scratch. Any group size; parts may differ in size.
#include "engine/collectives/algorithms/algorithm.h"
#include "engine/collectives/algorithms/block_copy.h"

namespace neuron {

namespace {

void copy(const Collective& c, const std::byte* from, std::byte* to, std::size_t begin, std::size_t end) {
  if (from == to || to == nullptr) return;
  const std::size_t offset = begin * c.element_bytes;
  copy_block(from + offset, to + offset, (end - begin) * c.element_bytes, c.copies);
}

std::size_t gather_elements(const Collective& c, std::size_t lane) {
  return c.output_part(c.root, lane).data != nullptr ? c.parties[lane].count : 0;
}

void run_gather(const Collective& c, std::size_t lane, std::size_t begin, std::size_t end) {
  copy(c, c.parties[lane].input, c.output_part(c.root, lane).data, begin, end);
}

std::size_t scatter_elements(const Collective& c, std::size_t lane) {
  return c.parties[lane].output != nullptr ? c.parties[lane].count : 0;
}

void run_scatter(const Collective& c, std::size_t lane, std::size_t begin, std::size_t end) {
  copy(c, c.input_part(c.root, lane).data, c.parties[lane].output, begin, end);
}

}  // namespace

const Algorithm kDirectGather{"direct_gather", gather_elements, run_gather};
const Algorithm kDirectScatter{"direct_scatter", scatter_elements, run_scatter};

}  // namespace neuron
