// ValuePattern: known values that repeat, so that a buffer of any size is filled and compared fast.
//
// The period is a prime: parts of a buffer begin at different places of it, so a part that has come to the
// wrong place is seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/base/dtype.h"

namespace neuron {

class ValuePattern {
 public:
  static constexpr std::size_t kPeriod = 4093;  // elements

  // Requires: kPeriod elements.
  ValuePattern(DType dtype, std::vector<std::byte> values);

  DType dtype() const { return dtype_; }
  const std::vector<std::byte>& values() const { return values_; }

  // `count` elements from element `first` of the endless repetition.
  void fill(std::byte* out, std::size_t first, std::size_t count) const;
  // The same with every bit turned: no element is right.
  void fill_wrong(std::byte* out, std::size_t first, std::size_t count) const;
  // Elements whose bits differ.
  std::uint64_t count_wrong(const std::byte* data, std::size_t first, std::size_t count) const;

 private:
  template <typename Piece>
  void for_each_piece(std::size_t first, std::size_t count, const Piece& piece) const;

  DType dtype_;
  std::vector<std::byte> values_;
};

}  // namespace neuron
