#include "engine/device/core.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "engine/base/fork.h"
#include "engine/base/mutex.h"

namespace neuron {

namespace {

constexpr int kPriorities = 3;
constexpr std::size_t kStreams = 1 + kPriorities * Core::kStreamsPerPriority;

// Stream ids: 0 is the default stream, then 32 for each priority, -1 first.
std::uint32_t first_id(int priority) {
  return 1 + static_cast<std::uint32_t>(priority + 1) * Core::kStreamsPerPriority;
}
int priority_of(std::uint32_t id) {
  return id == 0 ? 0 : static_cast<int>((id - 1) / Core::kStreamsPerPriority) - 1;
}

}  // namespace

class Core::Impl {
 public:
  explicit Impl(const CoreOptions& in_options) : options(in_options) {}

  Stream& make_stream(Core& core, std::uint32_t id) {
    MutexLock lock(mutex);
    auto& slot = owned[id];
    if (slot == nullptr) {
      slot = std::make_unique<Stream>(core, id, priority_of(id), options.run_ahead);
      if (closed) slot->close();
      published[id].store(slot.get(), std::memory_order_release);
    }
    return *slot;
  }

  const CoreOptions options;
  std::string name;
  std::unique_ptr<DeviceHeap> heap;
  std::unique_ptr<BlockPool> pool;

  Mutex mutex;
  std::array<std::unique_ptr<Stream>, kStreams> owned GUARDED_BY(mutex);
  bool closed GUARDED_BY(mutex) = false;
  // The same pointers, read without the lock.
  std::array<std::atomic<Stream*>, kStreams> published{};
  std::array<std::atomic<std::uint32_t>, kPriorities> handed_out{};
};

Result<std::unique_ptr<Core>> Core::create(const CoreOptions& options) {
  arm_fork_guard();
  auto impl = std::make_unique<Impl>(options);
  impl->name = "neuron:" + std::to_string(options.index);
  auto heap = DeviceHeap::create(options.memory_limit, options.host_reserve);
  if (!heap.is_ok()) return heap.status();
  impl->heap = std::move(heap).value();
  impl->pool = BlockPool::create(*impl->heap, impl->name);
  std::unique_ptr<Core> core(new Core(std::move(impl)));
  core->impl_->make_stream(*core, 0);
  return core;
}

Core::Core(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Core::~Core() {
  if (in_forked_child()) {
    // Its threads and locks are the parent's.
    (void)impl_.release();
    return;
  }
  // Streams may wait for each other: all of them are drained before the first one goes.
  for (Stream* stream : streams()) (void)stream->wait_until(stream->submitted());
  MutexLock lock(impl_->mutex);
  for (auto& stream : impl_->owned) stream.reset();
}

int Core::index() const { return impl_->options.index; }
int Core::logical_core() const { return impl_->options.logical_core; }
std::string Core::name() const { return impl_->name; }
DeviceHeap& Core::heap() const { return *impl_->heap; }
BlockPool& Core::pool() const { return *impl_->pool; }

Stream& Core::default_stream() const { return *impl_->published[0].load(std::memory_order_acquire); }

Stream& Core::acquire_stream(int priority) {
  const int level = std::clamp(priority, -1, 1);
  auto& counter = impl_->handed_out[static_cast<std::size_t>(level + 1)];
  const std::uint32_t turn = counter.fetch_add(1, std::memory_order_relaxed) % kStreamsPerPriority;
  return impl_->make_stream(*this, first_id(level) + turn);
}

Stream* Core::stream(std::uint32_t id) {
  if (id >= kStreams) return nullptr;
  Stream* present = impl_->published[id].load(std::memory_order_acquire);
  return present != nullptr ? present : &impl_->make_stream(*this, id);
}

std::vector<Stream*> Core::streams() const {
  std::vector<Stream*> out;
  for (const auto& slot : impl_->published) {
    if (Stream* stream = slot.load(std::memory_order_acquire)) out.push_back(stream);
  }
  return out;
}

StreamErrorPtr Core::synchronize() {
  const auto all = streams();
  for (Stream* stream : all) {
    if (!stream->wait_until(stream->submitted()).is_ok()) return nullptr;
  }
  for (Stream* stream : all) {
    if (StreamErrorPtr error = stream->take_error()) return error;
  }
  return nullptr;
}

void Core::close() {
  MutexLock lock(impl_->mutex);
  impl_->closed = true;
  for (const auto& stream : impl_->owned) {
    if (stream != nullptr) stream->close();
  }
}

}  // namespace neuron
