#include "engine/device/block_pool.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/fork.h"
#include "engine/base/mutex.h"
#include "engine/device/core.h"
#include "engine/device/free_blocks.h"
#include "engine/device/memory_report.h"
#include "engine/device/segment_space.h"
#include "engine/device/size_class.h"
#include "engine/device/stream.h"

namespace neuron {

namespace {

constexpr std::size_t kSmallSegment = DeviceHeap::kUnit;
// Pages are committed only where blocks are handed out, so a large segment costs nothing but address space.
constexpr std::size_t kLargeSegment = 16 * DeviceHeap::kUnit;
// A shortage waits for other streams that long before it is an error: the streams may wait for this thread.
constexpr std::chrono::seconds kShortageWait{30};
// Kept blocks looked at by each allocation.
constexpr std::size_t kKeptLooks = 8;

void add(MemoryCounter& counter, std::size_t amount) {
  counter.current += amount;
  counter.allocated += amount;
  counter.peak = std::max(counter.peak, counter.current);
}

void subtract(MemoryCounter& counter, std::size_t amount) {
  counter.current -= amount;
  counter.freed += amount;
}

void record(MemoryAction action, const Stream& stream, const std::byte* data, std::size_t nbytes,
            const CallSite& site, std::size_t device_free = 0) {
  if (memory_history_on())
    record_memory_event({action, stream.core().index(), stream.id(), data, nbytes, device_free, site});
}

// Whether all that the block's stream submits from now on runs after what other streams do with it.
bool reusable(const PoolBlock& block) {
  return std::all_of(block.uses.begin(), block.uses.end(), [&](const PoolBlock::Use& use) {
    return block.stream->runs_after(*use.stream, use.position);
  });
}

class SegmentPool final : public BlockPool {
 public:
  SegmentPool(DeviceHeap& heap, std::string core_name)
      : heap_(heap), core_name_(std::move(core_name)), space_(heap.limit()) {
    stats_.limit = heap.limit();
  }
  ~SegmentPool() override;

  Result<Block*> allocate(std::size_t nbytes, Stream& stream) override;
  void free(Block* block) override;
  void add_use(Block* block, Stream& stream, StreamPosition position) override;
  void empty_cache() override;
  MemoryStats stats() override;
  std::vector<SegmentReading> read_segments() override;
  void reset_peak_stats() override;
  void reset_accumulated_stats() override;

 private:
  struct StreamBlocks {
    FreeBlocks small, large;
  };

  FreeBlocks& free_blocks(Stream& stream, bool small) REQUIRES(mutex_);
  Result<PoolBlock*> take(std::size_t requested, Stream& stream, const CallSite& site) REQUIRES(mutex_);
  Status grow(std::size_t nbytes, Stream& stream, bool small, const CallSite& site) REQUIRES(mutex_);
  Status make_segment(std::size_t nbytes, Stream& stream, bool small, const CallSite& site) REQUIRES(mutex_);
  void split(PoolBlock& block, std::size_t nbytes) REQUIRES(mutex_);
  void make_free(PoolBlock& block, const CallSite& site) REQUIRES(mutex_);
  void reclaim_kept(std::size_t looks = SIZE_MAX) REQUIRES(mutex_);
  void release_segments(const CallSite& site) REQUIRES(mutex_);
  std::vector<PoolBlock::Use> pending_uses() const REQUIRES(mutex_);
  void wait_and_release(Deadline deadline, const CallSite& site) EXCLUDES(mutex_);

  PoolBlock& new_block() REQUIRES(mutex_);
  void recycle(PoolBlock& block) REQUIRES(mutex_);

  DeviceHeap& heap_;
  const std::string core_name_;

  mutable Mutex mutex_;
  SegmentSpace space_ GUARDED_BY(mutex_);
  std::map<std::size_t, Segment> segments_ GUARDED_BY(mutex_);  // by offset; addresses are stable
  std::unordered_map<Stream*, std::unique_ptr<StreamBlocks>> by_stream_ GUARDED_BY(mutex_);
  std::pair<Stream*, StreamBlocks*> last_stream_ GUARDED_BY(mutex_){nullptr, nullptr};
  std::vector<PoolBlock*> kept_ GUARDED_BY(mutex_);
  std::size_t next_look_ GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<PoolBlock>> all_blocks_ GUARDED_BY(mutex_);
  PoolBlock* spare_blocks_ GUARDED_BY(mutex_) = nullptr;  // linked by next_free
  MemoryStats stats_ GUARDED_BY(mutex_);
};

SegmentPool::~SegmentPool() = default;

Result<Block*> SegmentPool::allocate(std::size_t nbytes, Stream& stream) {
  if (in_forked_child()) {
    return Status(StatusCode::kUnavailable, "this process was forked from one that uses Neuron devices");
  }
  const CallSite site = call_site_if_kept(SitesKept::kOfBlocks);
  {
    MutexLock lock(mutex_);
    ++stats_.allocation_requests;
    if (!kept_.empty()) reclaim_kept(kKeptLooks);
    auto block = take(nbytes, stream, site);
    if (block.is_ok()) return static_cast<Block*>(block.value());
    ++stats_.alloc_retries;
  }
  wait_and_release(Deadline::after(kShortageWait), site);
  MutexLock lock(mutex_);
  auto block = take(nbytes, stream, site);
  if (block.is_ok()) return static_cast<Block*>(block.value());
  ++stats_.ooms;
  record(MemoryAction::kOutOfMemory, stream, nullptr, nbytes, site,
         stats_.limit - static_cast<std::size_t>(stats_.reserved_bytes.current));
  return out_of_memory(core_name_, nbytes, stats_, block.status().message());
}

// A block, from the cache or a new segment, with pages; or what is too small.
Result<PoolBlock*> SegmentPool::take(std::size_t requested, Stream& stream, const CallSite& site) {
  const std::size_t nbytes = block_size(requested);
  const bool small = requested < kSmallLimit;
  FreeBlocks& available = free_blocks(stream, small);
  if (nbytes < requested || nbytes > heap_.limit()) {
    return Status(StatusCode::kOutOfMemory, "it is more than the core's memory");
  }
  PoolBlock* block = available.find(nbytes);
  if (block == nullptr && !kept_.empty()) {
    reclaim_kept();
    block = available.find(nbytes);
  }
  if (block == nullptr) {
    const Status status = grow(nbytes, stream, small, site);
    // Without room for another segment, a small request may as well have a piece of a large one.
    block = status.is_ok() || !small ? available.find(nbytes) : free_blocks(stream, false).find(nbytes);
    if (block == nullptr) return status;
  }
  if (Status status = heap_.commit(block->offset, nbytes); !status.is_ok()) return status;
  free_blocks(stream, block->segment->small).remove(*block);
  if (block->nbytes > nbytes) split(*block, nbytes);
  block->requested = requested;
  block->state = BlockState::kUsed;
  block->site = site;
  add(stats_.allocated_bytes, nbytes);
  add(stats_.requested_bytes, requested);
  add(stats_.blocks, 1);
  record(MemoryAction::kAlloc, stream, block->data, requested, site);
  return block;
}

Status SegmentPool::grow(std::size_t nbytes, Stream& stream, bool small, const CallSite& site) {
  const std::size_t exact = detail::round_up(nbytes, DeviceHeap::kUnit);
  const std::size_t usual = small ? kSmallSegment : kLargeSegment;
  if (usual > exact && nbytes < kClassLimit && make_segment(usual, stream, small, site).is_ok())
    return Status::ok();
  return make_segment(exact, stream, small, site);
}

Status SegmentPool::make_segment(std::size_t nbytes, Stream& stream, bool small, const CallSite& site) {
  const auto offset = space_.take(nbytes);
  if (!offset) {
    return Status(StatusCode::kOutOfMemory, space_.free_bytes() >= nbytes
                                                ? "the core's free memory is in pieces that are too small"
                                                : "the core's memory limit");
  }
  Segment& segment = segments_[*offset];
  PoolBlock& block = new_block();
  segment = Segment{*offset, nbytes, &stream, small, 0, &block};
  block.segment = &segment;
  block.offset = *offset;
  block.data = heap_.base() + *offset;
  block.nbytes = nbytes;
  block.stream = &stream;
  free_blocks(stream, small).insert(block);
  add(stats_.reserved_bytes, nbytes);
  add(stats_.segments, 1);
  record(MemoryAction::kSegmentAlloc, stream, block.data, nbytes, site);
  return Status::ok();
}

// Cuts the block, which is in no list, to `nbytes`; the rest becomes free.
void SegmentPool::split(PoolBlock& block, std::size_t nbytes) {
  PoolBlock& rest = new_block();
  rest.segment = block.segment;
  rest.offset = block.offset + nbytes;
  rest.data = block.data + nbytes;
  rest.nbytes = block.nbytes - nbytes;
  rest.stream = block.stream;
  rest.before = &block;
  rest.after = block.after;
  if (rest.after != nullptr) rest.after->before = &rest;
  block.after = &rest;
  block.nbytes = nbytes;
  free_blocks(*block.stream, block.segment->small).insert(rest);
}

void SegmentPool::free(Block* block) {
  // A forked child frees what the parent still uses, and its heap is not there.
  if (block == nullptr || in_forked_child()) return;
  auto& freed = static_cast<PoolBlock&>(*block);
  const CallSite site = call_site_if_kept(SitesKept::kOfFrees);
  MutexLock lock(mutex_);
  NEURON_CHECK(freed.state == BlockState::kUsed, "a block of device memory was freed twice");
  ++stats_.frees;
  subtract(stats_.allocated_bytes, freed.nbytes);
  subtract(stats_.requested_bytes, freed.requested);
  subtract(stats_.blocks, 1);
  Segment& segment = *freed.segment;
  segment.last_use = std::max(segment.last_use, freed.stream->submitted());
  record(MemoryAction::kFreeRequested, *freed.stream, freed.data, freed.requested, site);
  if (reusable(freed)) {
    make_free(freed, site);
    return;
  }
  freed.state = BlockState::kKept;
  kept_.push_back(&freed);
  add(stats_.kept_bytes, freed.nbytes);
}

// The block joins its free neighbours.
void SegmentPool::make_free(PoolBlock& block, const CallSite& site) {
  FreeBlocks& available = free_blocks(*block.stream, block.segment->small);
  record(MemoryAction::kFreeCompleted, *block.stream, block.data, block.requested, site);
  block.state = BlockState::kFree;
  block.uses.clear();
  block.site = nullptr;
  if (PoolBlock* after = block.after; after != nullptr && after->state == BlockState::kFree) {
    available.remove(*after);
    block.nbytes += after->nbytes;
    block.after = after->after;
    if (block.after != nullptr) block.after->before = &block;
    recycle(*after);
  }
  PoolBlock* joined = &block;
  if (PoolBlock* before = block.before; before != nullptr && before->state == BlockState::kFree) {
    available.remove(*before);
    before->nbytes += block.nbytes;
    before->after = block.after;
    if (before->after != nullptr) before->after->before = before;
    recycle(block);
    joined = before;
  }
  available.insert(*joined);
}

void SegmentPool::add_use(Block* block, Stream& stream, StreamPosition position) {
  if (&stream == block->stream || in_forked_child()) return;
  auto& used = static_cast<PoolBlock&>(*block);
  MutexLock lock(mutex_);
  NEURON_CHECK(used.state == BlockState::kUsed, "a use of device memory after it was freed");
  for (PoolBlock::Use& use : used.uses) {
    if (use.stream == &stream) {
      use.position = std::max(use.position, position);
      return;
    }
  }
  used.uses.push_back({&stream, position});
}

// Looks at some of the kept blocks, in turn.
void SegmentPool::reclaim_kept(std::size_t looks) {
  for (looks = std::min(looks, kept_.size()); looks > 0; --looks) {
    if (next_look_ >= kept_.size()) next_look_ = 0;
    PoolBlock* block = kept_[next_look_];
    if (!reusable(*block)) {
      ++next_look_;
      continue;
    }
    // A wait for its users may be among what was submitted since it was freed.
    block->segment->last_use = std::max(block->segment->last_use, block->stream->submitted());
    kept_[next_look_] = kept_.back();
    kept_.pop_back();
    subtract(stats_.kept_bytes, block->nbytes);
    make_free(*block, nullptr);
  }
}

// Positions that must be reached before kept blocks are free and free segments can go.
std::vector<PoolBlock::Use> SegmentPool::pending_uses() const {
  std::vector<PoolBlock::Use> uses;
  for (const PoolBlock* block : kept_) uses.insert(uses.end(), block->uses.begin(), block->uses.end());
  for (const auto& [offset, segment] : segments_) uses.push_back({segment.stream, segment.last_use});
  std::erase_if(uses, [](const PoolBlock::Use& use) { return use.stream->reached(use.position); });
  return uses;
}

// Not under the lock: what the streams run may free blocks.
void SegmentPool::wait_and_release(Deadline deadline, const CallSite& site) {
  std::vector<PoolBlock::Use> uses;
  {
    MutexLock lock(mutex_);
    uses = pending_uses();
  }
  for (const PoolBlock::Use& use : uses) {
    if (!use.stream->runs_here()) (void)use.stream->wait_until(use.position, deadline);
  }
  MutexLock lock(mutex_);
  reclaim_kept();
  release_segments(site);
}

void SegmentPool::release_segments(const CallSite& site) {
  for (auto entry = segments_.begin(); entry != segments_.end();) {
    Segment& segment = entry->second;
    PoolBlock& block = *segment.first;
    // Free blocks of a segment are merged; so it is free when it is one free block.
    if (block.state != BlockState::kFree || !block.whole_segment() ||
        !segment.stream->reached(segment.last_use)) {
      ++entry;
      continue;
    }
    free_blocks(*segment.stream, segment.small).remove(block);
    record(MemoryAction::kSegmentFree, *segment.stream, block.data, segment.nbytes, site);
    heap_.decommit(segment.offset, segment.nbytes);
    space_.give_back(segment.offset, segment.nbytes);
    subtract(stats_.reserved_bytes, segment.nbytes);
    subtract(stats_.segments, 1);
    recycle(block);
    entry = segments_.erase(entry);
  }
}

void SegmentPool::empty_cache() {
  if (!in_forked_child()) wait_and_release(Deadline::never(), call_site_if_kept(SitesKept::kOfFrees));
}

FreeBlocks& SegmentPool::free_blocks(Stream& stream, bool small) {
  if (last_stream_.first != &stream) {
    auto& entry = by_stream_[&stream];
    if (entry == nullptr) entry = std::make_unique<StreamBlocks>();
    last_stream_ = {&stream, entry.get()};
  }
  return small ? last_stream_.second->small : last_stream_.second->large;
}

PoolBlock& SegmentPool::new_block() {
  if (spare_blocks_ == nullptr) {
    all_blocks_.push_back(std::make_unique<PoolBlock>());
    all_blocks_.back()->pool = this;
    return *all_blocks_.back();
  }
  PoolBlock& block = *spare_blocks_;
  spare_blocks_ = block.next_free;
  block.before = block.after = nullptr;
  block.state = BlockState::kFree;
  return block;
}

void SegmentPool::recycle(PoolBlock& block) {
  block.next_free = spare_blocks_;
  spare_blocks_ = &block;
}

std::vector<SegmentReading> SegmentPool::read_segments() {
  std::vector<SegmentReading> out;
  if (in_forked_child()) return out;
  MutexLock lock(mutex_);
  reclaim_kept();
  for (const auto& [offset, segment] : segments_) {
    SegmentReading& reading = out.emplace_back(
        SegmentReading{heap_.base() + offset, segment.nbytes, segment.stream->id(), segment.small, {}});
    for (const PoolBlock* block = segment.first; block != nullptr; block = block->after) {
      const std::size_t requested = block->state == BlockState::kFree ? 0 : block->requested;
      reading.blocks.push_back({block->data, block->nbytes, requested, block->state, block->site});
    }
  }
  return out;
}

MemoryStats SegmentPool::stats() {
  if (in_forked_child()) return {};
  MutexLock lock(mutex_);
  reclaim_kept();
  return stats_;
}

namespace {
template <typename Change>
void for_each_counter(MemoryStats& stats, Change change) {
  for (MemoryCounter* counter : {&stats.allocated_bytes, &stats.requested_bytes, &stats.reserved_bytes,
                                 &stats.kept_bytes, &stats.segments, &stats.blocks}) {
    change(*counter);
  }
}
}  // namespace

void SegmentPool::reset_peak_stats() {
  if (in_forked_child()) return;
  MutexLock lock(mutex_);
  reclaim_kept();
  for_each_counter(stats_, [](MemoryCounter& counter) { counter.peak = counter.current; });
}

void SegmentPool::reset_accumulated_stats() {
  if (in_forked_child()) return;
  MutexLock lock(mutex_);
  for_each_counter(stats_, [](MemoryCounter& counter) { counter.allocated = counter.freed = 0; });
  stats_.alloc_retries = stats_.ooms = stats_.allocation_requests = stats_.frees = 0;
}

}  // namespace

std::unique_ptr<BlockPool> BlockPool::create(DeviceHeap& heap, std::string core_name) {
  return std::make_unique<SegmentPool>(heap, std::move(core_name));
}

}  // namespace neuron
