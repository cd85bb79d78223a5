// FreeBlocks: the free blocks of one stream, by size. Internal to the block pool, whose lock guards it.
//
// Segregated fit: a list for each size class and a bit for each list that has blocks, so that insert, remove
// and find take the same few steps however many blocks there are. Requests below 16 MiB are whole classes:
// any block in the list of their class fits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/device/block_pool.h"
#include "engine/device/size_class.h"

namespace neuron {

struct PoolBlock;

// A range of the heap that belongs to one stream and is cut into blocks.
struct Segment {
  std::size_t offset = 0;
  std::size_t nbytes = 0;
  Stream* stream = nullptr;
  bool small = false;
  StreamPosition last_use = 0;  // of its stream: the memory is untouched after it, once all blocks are free
  PoolBlock* first = nullptr;
};

struct PoolBlock final : Block {
  struct Use {
    Stream* stream;
    StreamPosition position;
  };

  Segment* segment = nullptr;
  std::size_t offset = 0;       // in the heap
  PoolBlock* before = nullptr;  // neighbours in the segment
  PoolBlock* after = nullptr;
  PoolBlock* previous_free = nullptr;  // in the list of the class
  PoolBlock* next_free = nullptr;
  BlockState state = BlockState::kFree;
  std::vector<Use> uses;  // by other streams
  CallSite site;          // of the allocation, while it is not free

  bool whole_segment() const { return before == nullptr && after == nullptr; }
};

class FreeBlocks {
 public:
  void insert(PoolBlock& block);
  void remove(PoolBlock& block);
  // A block of at least `nbytes` (a result of block_size()), or null: the smallest that the classes tell
  // apart, the most recently freed first. It stays in its list.
  PoolBlock* find(std::size_t nbytes) const;

 private:
  static constexpr std::size_t kWords = kSizeClasses / 64;

  std::array<PoolBlock*, kSizeClasses> heads_{};
  std::array<std::uint64_t, kWords> present_{};
};

}  // namespace neuron
