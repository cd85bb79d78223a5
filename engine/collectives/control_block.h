// ControlBlock: the memory that the members of a group share to agree on what runs: slots, flags,
// fingerprints.
//
// One memfd for each group, made by rank 0. A slot serves sequence numbers s, s + slots, s + 2 * slots, …; in
// it each rank has a record that only this rank writes (the claim counter apart), before it stores the
// record's sequence number. Records of s are stable from then until every rank has finished s:
//   reuse   a rank publishes s only when every rank has finished s - slots (finished_below);
//   reset   a rank resets its claim counter, and rank 0 the slot's done counter, before it publishes;
//           nobody touches either before all records of s are there.
// Atomics here are lock-free words, valid across processes. Zero-filled memory is the initial state.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/base/spin_wait.h"
#include "engine/collectives/mailbox.h"

namespace neuron {

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::uint64_t kNoOffset = ~std::uint64_t{0};

struct ControlGeometry {
  std::uint32_t size = 0;
  std::uint32_t slots = 0;  // a power of two
  std::uint64_t inline_bytes = 0;
  std::uint64_t segment_bytes = 0;  // not of the layout, but must be the same on all members

  std::size_t payload_bytes() const;  // inline_bytes, rounded up to cache lines
  std::size_t parts_bytes() const;    // both lists of parts of one rank
  std::size_t record_stride() const;
  std::size_t slot_stride() const;
  std::size_t slots_offset() const;
  std::size_t mailboxes_offset() const;
  std::size_t total_bytes() const;
  bool operator==(const ControlGeometry&) const = default;
};

enum class ErrorState : std::uint32_t { kNone, kBeingWritten, kWritten };
enum class MemberState : std::uint32_t { kAbsent, kJoined, kLeft };

struct GroupHeader {
  static constexpr std::size_t kErrorBytes = 32 << 10;

  ControlGeometry geometry;
  // Read in every wait, written once.
  alignas(kCacheLine) std::atomic<ErrorState> error_state;
  std::atomic<std::uint32_t> error_code;
  std::atomic<std::uint32_t> error_length;
  char error_text[kErrorBytes];
};

// Why this rank does not call: see wait_elsewhere.h. Written by this rank; an odd version is being written.
struct WaitNoticeRecord {
  static constexpr std::size_t kWords = 2;  // a bit for each member
  static constexpr std::size_t kNameBytes = 64;

  std::atomic<std::uint32_t> version;
  std::atomic<std::uint64_t> sequence;  // of the call it waits in; 0: it does not wait elsewhere
  std::atomic<std::uint64_t> queued_behind;
  std::atomic<std::uint64_t> missing[kWords];
  std::atomic<char> group[kNameBytes];
};

struct Member {
  alignas(2 * kCacheLine) std::atomic<MemberState> state;
  std::atomic<std::int32_t> pid;
  std::atomic<std::uint64_t> assemblies;  // how often this rank has come to Communicator::assemble()
  // Read by whoever may have to wake this rank, written only around a sleep.
  alignas(kCacheLine) SharedWakeWord doorbell;
  // Every number below has been finished by this rank.
  alignas(kCacheLine) std::atomic<std::uint64_t> finished_below;
  std::atomic<std::uint64_t> last_published;
  std::atomic<std::uint64_t> last_call;  // CallRecord::call of last_published
  // Threads of this rank that are now reading or writing blocks of its peers.
  alignas(kCacheLine) std::atomic<std::uint32_t> in_copy;
  // Point-to-point: something has changed for this rank; its progress thread sleeps on the doorbell.
  alignas(kCacheLine) std::atomic<std::uint64_t> p2p_events;
  SharedWakeWord p2p_doorbell;
  alignas(kCacheLine) WaitNoticeRecord waits_elsewhere;
};

// The part that everybody reads: one cache line.
struct alignas(kCacheLine) CallRecord {
  static constexpr std::size_t kTinyBytes = 16;

  std::atomic<std::uint64_t> sequence;  // stored last (seq_cst: pairs with the doorbell), read first
  std::atomic<std::uint64_t> call;      // PackedCall
  std::atomic<std::uint64_t> count;
  std::atomic<std::uint64_t> finished_below;  // the writer's, at this time
  double factor;
  std::uint64_t output_offset;  // in the writer's heap; kNoOffset: none
  union {
    std::uint64_t input_offset;
    std::byte tiny[kTinyBytes];  // PackedCall::kTiny: the input itself, so that it comes with this line
  };
};
static_assert(sizeof(CallRecord) == kCacheLine);

struct PublishedPart {
  std::uint64_t offset;
  std::uint64_t count;
};

struct CallText {
  char name[40];  // the longest, all_gather_into_tensor_coalesced, has 32 characters and a zero
  char origin[88];
};

// One rank's record in a slot: pointers into the block.
struct RecordView {
  CallRecord* call;
  std::byte* payload;                 // inline_bytes
  std::atomic<std::uint64_t>* claim;  // next segment of this rank's lane; any rank adds
  CallText* text;
  PublishedPart* input_parts;  // `size` each
  PublishedPart* output_parts;
};

// A view of a mapped block; owns nothing.
class ControlBlock {
 public:
  ControlBlock() = default;
  ControlBlock(std::byte* base, const ControlGeometry& geometry) : base_(base), geometry_(geometry) {}

  const ControlGeometry& geometry() const { return geometry_; }
  GroupHeader& header() const { return *reinterpret_cast<GroupHeader*>(base_); }
  Member& member(int rank) const {
    return reinterpret_cast<Member*>(base_ + kMembersOffset)[static_cast<std::size_t>(rank)];
  }
  RecordView record(std::uint64_t sequence, int rank) const;
  CallRecord& call(std::uint64_t sequence, int rank) const {
    return *reinterpret_cast<CallRecord*>(record_base(sequence, rank));
  }
  Mailbox& mailbox(int from, int to) const {
    const auto pair = static_cast<std::size_t>(from) * geometry_.size + static_cast<std::size_t>(to);
    return reinterpret_cast<Mailbox*>(base_ + mailboxes_offset_)[pair];
  }
  // Segments of the collective that are done, by all ranks together.
  std::atomic<std::uint64_t>& done(std::uint64_t sequence) const {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(slot_base(sequence));
  }

  static constexpr std::size_t kMembersOffset = (sizeof(GroupHeader) + 4095) / 4096 * 4096;

 private:
  std::byte* slot_base(std::uint64_t sequence) const {
    return base_ + slots_offset_ + (sequence & (geometry_.slots - 1)) * slot_stride_;
  }
  std::byte* record_base(std::uint64_t sequence, int rank) const {
    return slot_base(sequence) + 2 * kCacheLine + static_cast<std::size_t>(rank) * record_stride_;
  }

  std::byte* base_ = nullptr;
  ControlGeometry geometry_;
  std::size_t slots_offset_ = geometry_.slots_offset();
  std::size_t mailboxes_offset_ = geometry_.mailboxes_offset();
  std::size_t slot_stride_ = geometry_.slot_stride();
  std::size_t record_stride_ = geometry_.record_stride();
};

}  // namespace neuron
