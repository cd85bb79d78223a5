// Slices: a buffer cut into one contiguous slice for each rank, at multiples of a cache line.
#pragma once

#include <algorithm>
#include <cstddef>

namespace neuron {

// First element of slice `index` of `slices`; slice_begin(…, slices) is `count`. Neighbours meet at multiples
// of 64 bytes from the start, so that no two ranks write one cache line (of an aligned buffer).
inline std::size_t slice_begin(std::size_t count, std::size_t element_bytes, std::size_t slices,
                               std::size_t index) {
  const std::size_t line = std::max<std::size_t>(64 / element_bytes, 1);
  const std::size_t lines = (count + line - 1) / line;
  // lines / slices * index + …, as a product of large numbers could overflow.
  const std::size_t begin = (lines / slices * index + std::min(lines % slices, index)) * line;
  return std::min(begin, count);
}

inline std::size_t slice_elements(std::size_t count, std::size_t element_bytes, std::size_t slices,
                                  std::size_t index) {
  return slice_begin(count, element_bytes, slices, index + 1) -
         slice_begin(count, element_bytes, slices, index);
}

}  // namespace neuron
