#include "bridge/dispatch/command_pool.h"

#include <utility>

#include "bridge/dispatch/plan_command.h"

namespace neuron::bridge {

namespace {

std::atomic<std::int64_t> shared_places{0};

// No command has this address.
PlanCommand* closed_mark() { return reinterpret_cast<PlanCommand*>(std::uintptr_t{1}); }

}  // namespace

std::unique_ptr<PlanCommand> CommandPool::take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (fetched_ == nullptr) {
    PlanCommand* const top = returned_.load(std::memory_order_relaxed);
    if (top == nullptr || top == closed_mark()) return nullptr;
    // Others add to it at most: only close() sets the mark, under this lock.
    fetched_ = returned_.exchange(nullptr, std::memory_order_acquire);
  }
  PlanCommand* const taken = std::exchange(fetched_, fetched_->next_in_pool);
  // It was last written to by another core; the next call will need it.
  if (fetched_ != nullptr) __builtin_prefetch(&fetched_->next_in_pool, 1);
  return std::unique_ptr<PlanCommand>(taken);
}

bool CommandPool::claim_place() {
  if (places_.fetch_add(1, std::memory_order_relaxed) < kOfEachPlan) return true;
  if (shared_places.fetch_add(1, std::memory_order_relaxed) < kShared) return true;
  release_place();
  return false;
}

void CommandPool::release_place() {
  if (places_.fetch_sub(1, std::memory_order_relaxed) > kOfEachPlan)
    shared_places.fetch_sub(1, std::memory_order_relaxed);
}

bool CommandPool::give_back(PlanCommand& command) noexcept {
  PlanCommand* top = returned_.load(std::memory_order_relaxed);
  do {
    if (top == closed_mark()) return false;
    command.next_in_pool = top;
  } while (
      !returned_.compare_exchange_weak(top, &command, std::memory_order_release, std::memory_order_relaxed));
  return true;
}

void CommandPool::close() {
  PlanCommand* fetched = nullptr;
  PlanCommand* returned = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    fetched = std::exchange(fetched_, nullptr);
    returned = returned_.exchange(closed_mark(), std::memory_order_acquire);
  }
  if (returned == closed_mark()) returned = nullptr;
  for (PlanCommand* list : {fetched, returned}) {
    while (list != nullptr) delete std::exchange(list, list->next_in_pool);
  }
}

}  // namespace neuron::bridge
