#include "bridge/runtime/allocator.h"

#include <c10/core/CachingDeviceAllocator.h>

#include "bridge/runtime/devices.h"
#include "bridge/runtime/errors.h"
#include "bridge/runtime/streams.h"

namespace neuron::bridge {

namespace {

using StatArray = c10::CachingAllocator::StatArray;

void free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  if (block != nullptr) block->pool->free(block);
}

void fill(StatArray& stats, const MemoryCounter& counter) {
  auto& all = stats[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  all.current = static_cast<std::int64_t>(counter.current);
  all.peak = static_cast<std::int64_t>(counter.peak);
  all.allocated = static_cast<std::int64_t>(counter.allocated);
  all.freed = static_cast<std::int64_t>(counter.freed);
}

bool started(c10::DeviceIndex device) { return DeviceRuntime::get().core_started(resolve(device)); }

class NeuronAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t nbytes) override { return allocate_on(current_stream(), nbytes); }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  // Of use to lazily cloned storages only; waits, since it works at once on the caller's thread.
  void copy_data(void* destination, const void* source, std::size_t nbytes) const override {
    synchronize(current_stream());
    default_copy_data(destination, source, nbytes);
  }

  bool initialized() override { return DeviceRuntime::get().started(); }
  void emptyCache(c10::MempoolId_t /*pool*/) override {
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      if (started(device)) core_of(device).pool().empty_cache();
    }
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override { record_stream(data, stream); }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats out;
    if (!started(device)) return out;
    const MemoryStats stats = core_of(device).pool().stats();
    fill(out.allocation, stats.blocks);
    fill(out.segment, stats.segments);
    fill(out.active, stats.blocks);
    fill(out.allocated_bytes, stats.allocated_bytes);
    fill(out.reserved_bytes, stats.reserved_bytes);
    fill(out.active_bytes, stats.allocated_bytes);
    fill(out.requested_bytes, stats.requested_bytes);
    out.num_alloc_retries = static_cast<std::int64_t>(stats.alloc_retries);
    out.num_ooms = static_cast<std::int64_t>(stats.ooms);
    return out;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    if (started(device)) core_of(device).pool().reset_accumulated_stats();
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    if (started(device)) core_of(device).pool().reset_peak_stats();
  }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const MemoryStats stats = core_of(device).pool().stats();
    return {stats.limit - static_cast<std::size_t>(stats.reserved_bytes.current), stats.limit};
  }
};

NeuronAllocator& instance() {
  static auto* allocator = new NeuronAllocator();
  return *allocator;
}

const bool registered = [] {
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &instance());
  return true;
}();

}  // namespace

c10::DeviceAllocator& device_allocator() { return instance(); }

c10::DataPtr allocate_on(Stream& stream, std::size_t nbytes) {
  Core& core = stream.core();
  const c10::Device device = neuron_device(static_cast<c10::DeviceIndex>(core.index()));
  if (nbytes == 0) return {nullptr, nullptr, &free_block, device};
  Block* block = value_or_raise(core.pool().allocate(nbytes, stream));
  return {block->data, block, &free_block, device};
}

Block* block_of(const c10::DataPtr& data) {
  return data.get_deleter() == &free_block ? static_cast<Block*>(data.get_context()) : nullptr;
}

Block* block_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? block_of(tensor.storage().data_ptr()) : nullptr;
}

void record_use(Block* block, Stream& stream, StreamPosition position) {
  if (block != nullptr && block->stream != &stream) block->pool->add_use(block, stream, position);
}

void record_use(const at::Tensor& tensor, Stream& stream, StreamPosition position) {
  record_use(block_of(tensor), stream, position);
}

void record_stream(const c10::DataPtr& data, const c10::Stream& stream) {
  Block* block = block_of(data);
  if (block == nullptr) return;
  Stream& engine = engine_stream(stream);
  record_use(block, engine, engine.submitted());
}

}  // namespace neuron::bridge
