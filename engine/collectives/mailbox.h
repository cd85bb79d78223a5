// Mailbox: the memory through which one rank announces messages to another, and learns that they were
// received.
//
// One for each ordered pair of ranks, in the control block; both rings have one writer and one reader. The
// reader of a ring takes entries out at once, matched or not, so that a full ring never waits for a match.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/collectives/point_to_point.h"

namespace neuron {

struct Announcement {
  std::uint64_t id;  // of the sender, for the receipt
  std::uint64_t tag;
  std::uint64_t count;
  std::uint64_t offset;  // in the sender's heap; eager messages: unused
  std::uint32_t dtype;
  std::uint32_t eager;  // the message itself follows
  std::byte payload[PointToPointRequest::kEagerBytes];
};

// Zero-filled memory is an empty mailbox.
class Mailbox {
 public:
  // ---- the sender ----
  // Null when the ring is full. Filled in, it is sent by announce().
  Announcement* next_free();
  void announce() {
    announced_.store(announced_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  // False: none there. Takes the id of a message that was received.
  bool take_receipt(std::uint64_t* id);

  // ---- the receiver ----
  // Null: none there. Read, it is given back by release().
  const Announcement* next_announced();
  void release() { taken_.store(taken_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  // False: the ring is full.
  bool give_receipt(std::uint64_t id);

 private:
  static constexpr std::uint64_t kAnnouncements = 8;
  static constexpr std::uint64_t kReceipts = 64;

  alignas(64) std::atomic<std::uint64_t> announced_;
  alignas(64) std::atomic<std::uint64_t> taken_;
  alignas(64) std::atomic<std::uint64_t> given_;
  alignas(64) std::atomic<std::uint64_t> collected_;
  alignas(64) std::uint64_t receipts_[kReceipts];
  Announcement announcements_[kAnnouncements];
};

}  // namespace neuron
