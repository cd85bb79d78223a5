// Copies between mapped heaps.
#pragma once

#include <cstddef>
#include <cstdint>

namespace neuron {

enum class CopyTarget : std::uint8_t {
  kCached,    // ordinary stores
  kUncached,  // past the caches, which saves reading the target's lines first: a third of the traffic
};

// For a copy of so much in all: what is too large to be found in the caches afterwards goes past them.
CopyTarget copy_target(std::size_t total_bytes);

// Copies `nbytes` of `from` to each of `targets`, block by block, so that `from` is read from memory once. A
// target equal to `from` is left alone. Complete, for whoever sees a later atomic store of this thread.
void copy_to_all(const std::byte* from, std::byte* const* targets, std::size_t target_count,
                 std::size_t nbytes, CopyTarget kind);

inline void copy_block(const std::byte* from, std::byte* to, std::size_t nbytes, CopyTarget kind) {
  copy_to_all(from, &to, 1, nbytes, kind);
}

}  // namespace neuron
