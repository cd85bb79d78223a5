#include "engine/device/free_blocks.h"

#include <bit>

namespace neuron {

void FreeBlocks::insert(PoolBlock& block) {
  const std::size_t index = size_class(block.nbytes);
  PoolBlock*& head = heads_[index];
  block.previous_free = nullptr;
  block.next_free = head;
  if (head != nullptr) head->previous_free = &block;
  head = &block;
  present_[index / 64] |= std::uint64_t{1} << (index % 64);
}

void FreeBlocks::remove(PoolBlock& block) {
  const std::size_t index = size_class(block.nbytes);
  if (block.next_free != nullptr) block.next_free->previous_free = block.previous_free;
  if (block.previous_free != nullptr) {
    block.previous_free->next_free = block.next_free;
    return;
  }
  heads_[index] = block.next_free;
  if (block.next_free == nullptr) present_[index / 64] &= ~(std::uint64_t{1} << (index % 64));
}

PoolBlock* FreeBlocks::find(std::size_t nbytes) const {
  const std::size_t first = size_class(nbytes);
  // Large requests lie inside a class: the smallest that fits.
  PoolBlock* best = nullptr;
  for (PoolBlock* block = heads_[first]; block != nullptr; block = block->next_free) {
    if (block->nbytes < nbytes || (best != nullptr && best->nbytes <= block->nbytes)) continue;
    best = block;
    if (nbytes < kClassLimit) break;
  }
  if (best != nullptr) return best;
  const std::size_t next = first + 1;
  for (std::size_t word = next / 64; word < kWords; ++word) {
    std::uint64_t bits = present_[word];
    if (word == next / 64) bits &= ~std::uint64_t{0} << (next % 64);
    if (bits != 0) return heads_[word * 64 + static_cast<std::size_t>(std::countr_zero(bits))];
  }
  return nullptr;
}

}  // namespace neuron
