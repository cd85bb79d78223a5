// Copies between mapped heaps.
#pragma once

#include <cstddef>

namespace neuron {

// Copies `nbytes` of `from` to each of `targets`, block by block, so that `from` is read from memory once. A
// target equal to `from` is left alone.
void copy_to_all(const std::byte* from, std::byte* const* targets, std::size_t target_count,
                 std::size_t nbytes);

inline void copy_block(const std::byte* from, std::byte* to, std::size_t nbytes) {
  copy_to_all(from, &to, 1, nbytes);
}

}  // namespace neuron
