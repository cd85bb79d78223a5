// CommandPool: the used commands of one plan, to be loaded again.
//
// Submitters take, streams' threads give back. Each side works on cache lines of its own, and the takers fetch all
// that has come back at once, so that the two meet once in many commands.
//
// A command in the pool holds its plan, and the plan its pool: close() ends that, and whoever drops a plan calls it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace neuron::bridge {

class PlanCommand;

class CommandPool {
 public:
  CommandPool() = default;
  CommandPool(const CommandPool&) = delete;
  CommandPool& operator=(const CommandPool&) = delete;
  // Requires: closed, or no command was made for it.
  ~CommandPool() = default;

  // A command that came back, or null: the caller makes one, which belongs to the pool when claim_place() says so.
  std::unique_ptr<PlanCommand> take();
  // True: there is room for one more command. Paired with release_place() when that command goes.
  bool claim_place();
  void release_place();

  // Requires: a command with a place. False: closed, so that the caller still owns it.
  bool give_back(PlanCommand& command) noexcept;
  // Deletes what is in the pool and takes nothing back from now on.
  void close();

  // A plan may have this many commands; more, from what all plans share, when so many wait in a stream's queue.
  static constexpr std::int64_t kOfEachPlan = 64;
  static constexpr std::int64_t kShared = 8192;

 private:
  // Under the lock: fetched, not yet taken. And how many commands have a place.
  alignas(64) std::mutex mutex_;
  PlanCommand* fetched_ = nullptr;
  std::atomic<std::int64_t> places_{0};

  // The streams' side: a stack of what has come back, or the mark of a closed pool.
  alignas(64) std::atomic<PlanCommand*> returned_{nullptr};
};

}  // namespace neuron::bridge
