#include "engine/collectives/algorithms/block_copy.h"

#include <algorithm>
#include <cstring>

namespace neuron {

namespace {
constexpr std::size_t kBlock = 16 << 10;  // stays in the first-level cache
}

void copy_to_all(const std::byte* from, std::byte* const* targets, std::size_t target_count,
                 std::size_t nbytes) {
  const std::size_t block = target_count > 1 ? kBlock : nbytes;
  for (std::size_t begin = 0; begin < nbytes; begin += block) {
    const std::size_t n = std::min(block, nbytes - begin);
    for (std::size_t i = 0; i < target_count; ++i) {
      if (targets[i] != from) std::memcpy(targets[i] + begin, from + begin, n);
    }
  }
}

}  // namespace neuron
