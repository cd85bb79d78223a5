#include "engine/collectives/control_block.h"

namespace neuron {

namespace {
// Two lines: the hardware fetches lines in pairs, so that what different ranks write must not share one.
constexpr std::size_t kPair = 2 * kCacheLine;
constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}
}  // namespace

std::size_t ControlGeometry::payload_bytes() const { return round_up(inline_bytes, kCacheLine); }
std::size_t ControlGeometry::parts_bytes() const { return 2 * size * sizeof(PublishedPart); }

// call | payload | text | parts | claim
std::size_t ControlGeometry::record_stride() const {
  return round_up(sizeof(CallRecord) + payload_bytes() + sizeof(CallText) + round_up(parts_bytes(), kPair),
                  kPair) +
         kPair;
}

std::size_t ControlGeometry::slot_stride() const { return kPair + size * record_stride(); }
std::size_t ControlGeometry::slots_offset() const {
  return round_up(ControlBlock::kMembersOffset + size * sizeof(Member), 4096);
}
std::size_t ControlGeometry::mailboxes_offset() const {
  return round_up(slots_offset() + slots * slot_stride(), 4096);
}
std::size_t ControlGeometry::total_bytes() const {
  return round_up(mailboxes_offset() + std::size_t{size} * size * sizeof(Mailbox), 4096);
}

RecordView ControlBlock::record(std::uint64_t sequence, int rank) const {
  std::byte* const base = record_base(sequence, rank);
  std::byte* const text = base + sizeof(CallRecord) + geometry_.payload_bytes();
  auto* const parts = reinterpret_cast<PublishedPart*>(text + sizeof(CallText));
  return {.call = reinterpret_cast<CallRecord*>(base),
          .payload = base + sizeof(CallRecord),
          .claim = reinterpret_cast<std::atomic<std::uint64_t>*>(base + record_stride_ - kPair),
          .text = reinterpret_cast<CallText*>(text),
          .input_parts = parts,
          .output_parts = parts + geometry_.size};
}

}  // namespace neuron
