// The history of the device memory: what the block pools of the process did, in order, and which lines of the
// program made them do it. For memory snapshots.
//
// Off, it costs an allocation two relaxed loads. All functions may be called from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace neuron {

enum class MemoryAction : std::uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,  // the block can be had again: at once, unless another stream still uses it
  kSegmentAlloc,
  kSegmentFree,
  kOutOfMemory,
  kSnapshot,
};
inline constexpr std::size_t kMemoryActions = 7;

// A place in a program. What it points to is known to who gave the recorder.
using CallSite = std::shared_ptr<const void>;
using CallSiteRecorder = CallSite (*)();

// Which call sites are kept; each includes those before it.
enum class SitesKept : std::uint8_t {
  kNone,
  kOfBlocks,  // with the block, as long as it lives
  kOfAllocations,
  kOfFrees,
};

struct MemoryHistoryOptions {
  SitesKept sites = SitesKept::kOfFrees;
  std::size_t max_events = 0;                  // of each core; the oldest go
  std::array<bool, kMemoryActions> skipped{};  // by MemoryAction
};

struct MemoryEvent {
  MemoryAction action = MemoryAction::kAlloc;
  int core = 0;  // device index
  std::uint32_t stream = 0;
  const std::byte* data = nullptr;
  std::size_t nbytes = 0;       // as requested, for blocks
  std::size_t device_free = 0;  // of the core's memory; kOutOfMemory only
  CallSite site;
  std::int64_t time_ns = 0;  // since 1970; filled in by record_memory_event
};

namespace detail {
extern std::atomic<bool> memory_history_on;
extern std::atomic<SitesKept> sites_kept;
CallSite call_site();
}  // namespace detail

// Gives the caller's place; may take locks of its own, so it is called with none held. Once, before the first
// start.
void set_call_site_recorder(CallSiteRecorder recorder);

// What was recorded before stays.
void start_memory_history(const MemoryHistoryOptions& options);
// Forgets what was recorded.
void stop_memory_history();
void clear_memory_history();

// The caller's place when sites of that kind are kept, else null. Requires: no lock is held.
inline CallSite call_site_if_kept(SitesKept kind) {
  return detail::sites_kept.load(std::memory_order_relaxed) < kind ? nullptr : detail::call_site();
}

// Are events recorded? What record_memory_event() is given is best made only then.
inline bool memory_history_on() { return detail::memory_history_on.load(std::memory_order_relaxed); }
void record_memory_event(MemoryEvent event);
// Oldest first.
std::vector<MemoryEvent> memory_events(int core);

}  // namespace neuron
