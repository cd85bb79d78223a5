// SegmentSpace: which ranges of a heap are taken by segments. Internal to the block pool, whose lock guards
// it.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace neuron {

class SegmentSpace {
 public:
  explicit SegmentSpace(std::size_t nbytes) : free_{{0, nbytes}}, free_bytes_(nbytes) {}

  // The offset of a range taken from the smallest gap that fits (the lowest of them); nothing when none does.
  std::optional<std::size_t> take(std::size_t nbytes);
  void give_back(std::size_t offset, std::size_t nbytes);

  std::size_t free_bytes() const { return free_bytes_; }

 private:
  std::map<std::size_t, std::size_t> free_;  // offset -> bytes; neighbours are merged
  std::size_t free_bytes_;
};

}  // namespace neuron
