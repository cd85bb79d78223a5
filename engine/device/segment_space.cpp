#include "engine/device/segment_space.h"

#include <iterator>

namespace neuron {

std::optional<std::size_t> SegmentSpace::take(std::size_t nbytes) {
  auto best = free_.end();
  for (auto gap = free_.begin(); gap != free_.end(); ++gap) {
    if (gap->second >= nbytes && (best == free_.end() || gap->second < best->second)) best = gap;
  }
  if (best == free_.end()) return std::nullopt;
  const auto [offset, gap_bytes] = *best;
  free_.erase(best);
  if (gap_bytes > nbytes) free_.emplace(offset + nbytes, gap_bytes - nbytes);
  free_bytes_ -= nbytes;
  return offset;
}

void SegmentSpace::give_back(std::size_t offset, std::size_t nbytes) {
  free_bytes_ += nbytes;
  auto gap = free_.emplace(offset, nbytes).first;
  if (const auto next = std::next(gap); next != free_.end() && gap->first + gap->second == next->first) {
    gap->second += next->second;
    free_.erase(next);
  }
  if (gap == free_.begin()) return;
  if (const auto previous = std::prev(gap); previous->first + previous->second == gap->first) {
    previous->second += gap->second;
    free_.erase(gap);
  }
}

}  // namespace neuron
