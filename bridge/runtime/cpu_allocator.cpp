#include "bridge/runtime/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>

#include "bridge/runtime/devices.h"

namespace neuron::bridge {

namespace {

thread_local OutputSteering* tls_steering = nullptr;
thread_local AllocationBudget* tls_budget = nullptr;

c10::Allocator* torch_allocator = nullptr;
c10::DeleterFnPtr torch_deleter = nullptr;

bool is_device_memory(const void* pointer) {
  auto& runtime = DeviceRuntime::get();
  for (int device = 0; device < runtime.device_count(); ++device) {
    if (!runtime.core_started(device)) continue;
    Result<Core*> core = runtime.core(device);
    if (core.is_ok() && core.value()->heap().contains(pointer)) return true;
  }
  return false;
}

// Steered memory belongs to a block of the pool; raw_deallocate() hands it here like any other.
void delete_steered(void* pointer) {
  if (!is_device_memory(pointer)) torch_deleter(pointer);
}

class SteeredCpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t nbytes) override {
    if (tls_steering != nullptr && nbytes > 0) [[unlikely]] {
      if (void* data = tls_steering->take(nbytes)) return {data, data, &delete_steered, at::kCPU};
    }
    if (tls_budget != nullptr) [[unlikely]]
      tls_budget->spend(nbytes);
    c10::DataPtr data = torch_allocator->allocate(nbytes);
    if (tls_steering != nullptr) [[unlikely]]
      tls_steering->note(nbytes, data.get());
    return data;
  }
  // oneDNN's scratch memory takes the raw interface on threads that run commands, so that one deleter has to
  // serve both kinds. Elsewhere the memory has torch's own deleter, which frees what malloc gave as well.
  c10::DeleterFnPtr raw_deleter() const override { return &delete_steered; }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return torch_allocator->is_simple_data_ptr(data);
  }
  void copy_data(void* destination, const void* source, std::size_t nbytes) const override {
    default_copy_data(destination, source, nbytes);
  }
};

}  // namespace

SteeringScope::SteeringScope(OutputSteering& steering) : previous_(tls_steering) { tls_steering = &steering; }
SteeringScope::~SteeringScope() { tls_steering = previous_; }

std::size_t OutputSteering::expected(std::size_t nbytes) const {
  return static_cast<std::size_t>(
      std::count_if(targets_.begin(), targets_.end(), [&](const Target& t) { return t.nbytes == nbytes; }));
}

void* OutputSteering::take(std::size_t nbytes) {
  void* taken = nullptr;
  for (Target& target : targets_) {
    if (target.nbytes == nbytes && target.seen++ == target.ordinal && taken == nullptr) taken = target.data;
  }
  return taken;
}

void OutputSteering::note(std::size_t nbytes, const void* data) {
  const auto* const target =
      std::find_if(targets_.begin(), targets_.end(), [&](const Target& t) { return t.nbytes == nbytes; });
  if (target == targets_.end() || elsewhere_.size() == kMostNoted) return;
  elsewhere_.push_back({nbytes, target->seen - 1, data});
}

std::optional<std::size_t> OutputSteering::ordinal_of(std::size_t nbytes, const void* data) const {
  // The last one: memory that a temporary has given back is used again.
  for (auto noted = elsewhere_.rbegin(); noted != elsewhere_.rend(); ++noted) {
    if (noted->nbytes == nbytes && noted->data == data) return noted->ordinal;
  }
  return std::nullopt;
}

AllocationBudget::AllocationBudget(std::size_t bytes) : left_(bytes), previous_(tls_budget) {
  tls_budget = this;
}
AllocationBudget::~AllocationBudget() { tls_budget = previous_; }

void AllocationBudget::spend(std::size_t nbytes) {
  if (nbytes > left_) {
    is_exceeded_ = true;
    C10_THROW_ERROR(OutOfMemoryError, "more memory than this call may take on the host");
  }
  left_ -= nbytes;
}

void install_cpu_allocator() {
  static SteeredCpuAllocator allocator;
  torch_allocator = c10::GetCPUAllocator();
  torch_deleter = torch_allocator->raw_deleter();
  constexpr std::uint8_t kPriority = 100;
  c10::SetCPUAllocator(&allocator, kPriority);
}

}  // namespace neuron::bridge
