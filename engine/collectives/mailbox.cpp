#include "engine/collectives/mailbox.h"

namespace neuron {

Announcement* Mailbox::next_free() {
  const std::uint64_t announced = announced_.load(std::memory_order_relaxed);
  if (announced - taken_.load(std::memory_order_acquire) == kAnnouncements) return nullptr;
  return &announcements_[announced % kAnnouncements];
}

const Announcement* Mailbox::next_announced() {
  const std::uint64_t taken = taken_.load(std::memory_order_relaxed);
  if (announced_.load(std::memory_order_acquire) == taken) return nullptr;
  return &announcements_[taken % kAnnouncements];
}

bool Mailbox::give_receipt(std::uint64_t id) {
  const std::uint64_t given = given_.load(std::memory_order_relaxed);
  if (given - collected_.load(std::memory_order_acquire) == kReceipts) return false;
  receipts_[given % kReceipts] = id;
  given_.store(given + 1, std::memory_order_release);
  return true;
}

bool Mailbox::take_receipt(std::uint64_t* id) {
  const std::uint64_t collected = collected_.load(std::memory_order_relaxed);
  if (given_.load(std::memory_order_acquire) == collected) return false;
  *id = receipts_[collected % kReceipts];
  collected_.store(collected + 1, std::memory_order_release);
  return true;
}

}  // namespace neuron
