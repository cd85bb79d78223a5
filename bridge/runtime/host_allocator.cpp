#include "bridge/runtime/host_allocator.h"

#include <sys/mman.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "bridge/runtime/streams.h"

namespace neuron::bridge {

namespace {

struct HostBlock {
  char* data = nullptr;
  std::size_t nbytes = 0;  // of the mapping
  bool allocated = false;
  std::vector<std::pair<Stream*, StreamPosition>> uses;

  bool idle() const {
    for (const auto& [stream, position] : uses) {
      if (!stream->reached(position)) return false;
    }
    return true;
  }
};

constexpr std::size_t kGranule = 4096;

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(std::size_t nbytes) override {
    if (nbytes == 0) return {nullptr, nullptr, &PinnedAllocator::release, at::kCPU};
    char* data = take(nbytes);
    return {data, data, &PinnedAllocator::release, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &PinnedAllocator::release; }
  void copy_data(void* destination, const void* source, std::size_t nbytes) const override {
    default_copy_data(destination, source, nbytes);
  }

  bool record_event(void* pointer, void* /*context*/, c10::Stream stream) override {
    Stream& engine = engine_stream(stream);
    return record_host_use(pointer, engine, engine.submitted());
  }
  void empty_cache() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = blocks_.begin(); it != blocks_.end();) {
      if (it->second.allocated || !it->second.idle()) {
        ++it;
        continue;
      }
      reserved_ -= it->second.nbytes;
      munmap(it->second.data, it->second.nbytes);
      it = blocks_.erase(it);
    }
  }
  at::HostStats get_stats() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    at::HostStats stats;
    stats.allocated_bytes.current = static_cast<std::int64_t>(reserved_);
    stats.allocated_bytes.peak = static_cast<std::int64_t>(peak_);
    stats.num_host_alloc = static_cast<std::int64_t>(mappings_);
    return stats;
  }
  void reset_accumulated_stats() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    mappings_ = 0;
  }
  void reset_peak_stats() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    peak_ = reserved_;
  }

  bool contains(const void* pointer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return find(pointer) != nullptr;
  }
  bool add_use(const void* pointer, Stream& stream, StreamPosition position) {
    const std::lock_guard<std::mutex> lock(mutex_);
    HostBlock* block = find(pointer);
    if (block == nullptr) return false;
    for (auto& use : block->uses) {
      if (use.first != &stream) continue;
      use.second = std::max(use.second, position);
      return true;
    }
    block->uses.emplace_back(&stream, position);
    return true;
  }

 private:
  static void release(void* data);

  // The smallest idle block that fits without wasting more than half, or a new one.
  char* take(std::size_t nbytes) {
    const std::size_t wanted = (nbytes + kGranule - 1) / kGranule * kGranule;
    const std::lock_guard<std::mutex> lock(mutex_);
    HostBlock* best = nullptr;
    for (auto& [base, block] : blocks_) {
      if (block.allocated || block.nbytes < wanted || block.nbytes > 2 * wanted || !block.idle()) continue;
      if (best == nullptr || block.nbytes < best->nbytes) best = &block;
    }
    if (best == nullptr) {
      void* data = mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      TORCH_CHECK_WITH(OutOfMemoryError, data != MAP_FAILED, "neuron: cannot get ", wanted,
                       " bytes of pinned host memory");
      best = &blocks_[static_cast<char*>(data)];
      best->data = static_cast<char*>(data);
      best->nbytes = wanted;
      reserved_ += wanted;
      peak_ = std::max(peak_, reserved_);
      ++mappings_;
    }
    best->allocated = true;
    best->uses.clear();
    return best->data;
  }

  // Requires: mutex_ held.
  HostBlock* find(const void* pointer) {
    auto it = blocks_.upper_bound(static_cast<char*>(const_cast<void*>(pointer)));
    if (it == blocks_.begin()) return nullptr;
    HostBlock& block = std::prev(it)->second;
    const auto* p = static_cast<const char*>(pointer);
    return block.allocated && p < block.data + block.nbytes ? &block : nullptr;
  }

  std::mutex mutex_;
  std::map<char*, HostBlock> blocks_;
  std::size_t reserved_ = 0, peak_ = 0, mappings_ = 0;
};

PinnedAllocator& instance() {
  static auto* allocator = new PinnedAllocator();
  return *allocator;
}

void PinnedAllocator::release(void* data) {
  if (data == nullptr) return;
  const std::lock_guard<std::mutex> lock(instance().mutex_);
  if (HostBlock* block = instance().find(data)) block->allocated = false;
}

}  // namespace

at::HostAllocator& host_allocator() { return instance(); }
bool is_pinned(const void* pointer) { return instance().contains(pointer); }
bool record_host_use(const void* pointer, Stream& stream, StreamPosition position) {
  return instance().add_use(pointer, stream, position);
}

}  // namespace neuron::bridge
