// BlockPool: blocks of a core's heap, reused in stream order.
//
// A block belongs to the stream that it was allocated for. Freed, it is at once free for that stream again:
// the queue's order makes that safe, however many commands on it are still to run. Other users (streams,
// point-to-point channels, peers) are noted by add_use() and keep a freed block from being reused until they
// are done, or until its stream waits for them, which is as good; nobody need call record_stream for
// correctness, though calling it does the same. Segments come from the heap, blocks are slices of a segment.
// Small pool: requests below 1 MiB; large pool: the rest.
// Requests below 16 MiB are rounded to a size class (at least 256 B), larger ones to 512 B only. Thread-safe.
// Statistics always hold reserved >= allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/device/command.h"
#include "engine/device/heap.h"
#include "engine/device/memory_history.h"

namespace neuron {

class BlockPool;

// Owned by the pool. Valid from allocate() to free().
struct Block {
  std::byte* data = nullptr;
  std::size_t requested = 0;  // bytes asked for
  std::size_t nbytes = 0;     // bytes of the slice
  Stream* stream = nullptr;   // in whose order it is reused
  BlockPool* pool = nullptr;

 protected:
  Block() = default;
  ~Block() = default;
};

enum class BlockState : std::uint8_t {
  kFree,
  kUsed,
  kKept,  // freed, but another stream may still use it
};

struct BlockReading {
  const std::byte* data = nullptr;
  std::size_t nbytes = 0;
  std::size_t requested = 0;  // 0 when free
  BlockState state = BlockState::kFree;
  CallSite site;  // of the allocation; null when free, or when sites were not kept then
};

struct SegmentReading {
  const std::byte* data = nullptr;
  std::size_t nbytes = 0;
  std::uint32_t stream = 0;
  bool small = false;                // of the small pool
  std::vector<BlockReading> blocks;  // by address, without gaps
};

struct MemoryCounter {
  std::uint64_t current = 0, peak = 0, allocated = 0, freed = 0;  // allocated and freed accumulate
};

struct MemoryStats {
  MemoryCounter allocated_bytes;  // handed out, in slices
  MemoryCounter requested_bytes;  // handed out, as asked
  MemoryCounter reserved_bytes;   // segments
  MemoryCounter kept_bytes;       // freed, but another user is not done with them
  MemoryCounter segments, blocks;
  std::uint64_t alloc_retries = 0, ooms = 0, allocation_requests = 0, frees = 0;
  std::size_t limit = 0;
};

class BlockPool {
 public:
  // The heap must outlive the pool.
  static std::unique_ptr<BlockPool> create(DeviceHeap& heap, std::string core_name);
  virtual ~BlockPool() = default;

  // nbytes 0 is allowed and gives a block of one class. On a shortage: waits for freed blocks that are kept
  // by other users, empties the cache, retries, and then returns kOutOfMemory with the table of product-facts
  // 4 (requested, allocated, reserved, total, which bound).
  virtual Result<Block*> allocate(std::size_t nbytes, Stream& stream) = 0;
  virtual void free(Block* block) = 0;
  // Keeps the block from reuse, once freed, until the block's stream runs after `position` of `stream`
  // (Stream::runs_after). Cheap when `stream` is the block's own.
  virtual void add_use(Block* block, Stream& stream, StreamPosition position) = 0;

  // Gives every cached segment without a used block back to the system. Waits for the streams that may still
  // use it.
  virtual void empty_cache() = 0;

  // What nothing uses any more is counted as free, here and in the segments, whether or not it was looked at.
  virtual MemoryStats stats() = 0;
  // All segments and their blocks at one moment, by address.
  virtual std::vector<SegmentReading> read_segments() = 0;
  virtual void reset_peak_stats() = 0;
  virtual void reset_accumulated_stats() = 0;
};

}  // namespace neuron
