// Group: what the threads of one rank need while they run a collective: the control block, the mapped heaps,
// the watch on the members, the group's error. Internal to this folder; owned by the Communicator.
//
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/deadline.h"
#include "engine/base/result.h"
#include "engine/collectives/bootstrap.h"
#include "engine/collectives/communicator.h"
#include "engine/collectives/control_block.h"
#include "engine/collectives/patience.h"
#include "engine/collectives/peer_memory.h"
#include "engine/collectives/peer_watch.h"
#include "engine/collectives/rendezvous.h"

namespace neuron {

class Group {
 public:
  static Result<std::unique_ptr<Group>> create(const CommunicatorOptions& options, Bootstrap& bootstrap);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const CommunicatorOptions& options() const { return options_; }
  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const ControlBlock& control() const { return control_; }
  std::byte* heap_base(int rank) const { return heaps_[static_cast<std::size_t>(rank)]->base(); }
  const PeerWatch& watch() const { return watch_; }
  Member& own() const { return control_.member(rank()); }
  // "group 'world' (2 ranks)"
  std::string title() const;
  // "rank 1", with the job's rank where it differs.
  std::string rank_name(int rank) const;
  // "rank 1 has ended (pid 123, killed by signal 9 (Killed))"
  std::string death_of(int rank) const;

  // ---- the group's error ----
  bool failed() const {
    return control_.header().error_state.load(std::memory_order_seq_cst) != ErrorState::kNone;
  }
  Status error() const;  // ok while not failed()
  // The first to fail writes the report, to all members and to stderr; later ones change nothing.
  void fail(StatusCode code, const std::string& message);

  // This rank makes no further call. Idempotent.
  void leave() const;

  // ---- waiting ----
  static constexpr std::chrono::milliseconds kTick{20};
  // More ranks than processors.
  bool is_crowded() const;
  // After a change that members may wait for (stored seq_cst): wakes those that sleep.
  void wake_members() const;
  // After a change in a mailbox of `rank`, or of its own: wakes its progress thread.
  void tell(int rank) const;
  // Until done() is true or the group has failed: ok or the group's error. on_tick() is called some 50 times
  // a second while nothing happens, and when a member has died; it looks for reasons to give up and calls fail() when it
  // finds one.
  template <typename Done, typename Tick>
  Status wait(Done&& done, Tick&& on_tick) {
    if (patience_.wait_awake(done)) return Status::ok();
    const auto ready = [&] { return done() || failed() || alarmed_.load(std::memory_order_seq_cst); };
    for (;;) {
      constexpr SpinBudget kSleep{.pauses = 0, .yield_ns = 0};
      own().doorbell.wait(ready, Deadline::after(kTick), kSleep);
      if (done()) return Status::ok();
      if (failed()) return error();
      alarmed_.store(false, std::memory_order_seq_cst);
      on_tick();
    }
  }

  // ---- order of submission ----
  // Call `sequence` has gone to a stream at this position. In the order of the calls.
  void note_submitted(std::uint64_t sequence, const Stream& stream);
  // The first call of this rank that has not begun, if it stands on the stream that this thread drains; else
  // 0.
  std::uint64_t first_queued_here() const;

  // ---- reuse of slots ----
  // True when every member has finished `sequence` - slots, so that its slot may be written.
  bool slot_is_free(std::uint64_t sequence);
  // Numbers below are known to be finished by all; `bound` comes from their records.
  void note_finished_below(std::uint64_t bound);
  // This rank has finished `sequence`; any order, each number once.
  void finish(std::uint64_t sequence);

  // After an error: no living member is in the middle of a copy, so that none will touch this rank's blocks
  // any more.
  bool copies_have_ended() const;
  // Waits for that, at most a second.
  bool wait_for_copies_to_end() const;

 private:
  explicit Group(const CommunicatorOptions& options);
  Status join(Bootstrap& bootstrap);
  Status make_control(FileDescriptor* fd);
  Status map_control(int fd);
  Status map_heaps(std::shared_ptr<PeerMemory> own_heap, const std::vector<PeerGreeting>& peers);

  // Where the latest calls went, by number.
  struct Submission {
    std::atomic<std::uint64_t> sequence{0};
    std::atomic<const Stream*> stream{nullptr};
  };
  static constexpr std::size_t kSubmissions = 64;

  CommunicatorOptions options_;
  std::array<Submission, kSubmissions> submissions_;
  Patience patience_;
  std::shared_ptr<PeerMemory> control_memory_;
  ControlBlock control_;
  std::vector<std::shared_ptr<PeerMemory>> heaps_;
  std::atomic<bool> alarmed_{false};  // a member has died since somebody has looked
  PeerWatch watch_;
  std::atomic<std::uint64_t> finished_by_all_below_{1};
  std::atomic<std::uint64_t> finished_ahead_{
      0};  // bit (s % 64): s is finished, but not every number below it
};

}  // namespace neuron
