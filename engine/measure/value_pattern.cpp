#include "engine/measure/value_pattern.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/check.h"

namespace neuron {

ValuePattern::ValuePattern(DType dtype, std::vector<std::byte> values)
    : dtype_(dtype), values_(std::move(values)) {
  NEURON_CHECK(values_.size() == kPeriod * dtype_size(dtype), "a pattern of ", values_.size(), " bytes");
}

// piece(offset in the buffer, values of the pattern, bytes)
template <typename Piece>
void ValuePattern::for_each_piece(std::size_t first, std::size_t count, const Piece& piece) const {
  const std::size_t element = dtype_size(dtype_);
  std::size_t at = first % kPeriod;
  for (std::size_t done = 0; done < count;) {
    const std::size_t length = std::min(kPeriod - at, count - done);
    piece(done * element, values_.data() + at * element, length * element);
    done += length;
    at = 0;
  }
}

void ValuePattern::fill(std::byte* out, std::size_t first, std::size_t count) const {
  for_each_piece(first, count, [&](std::size_t offset, const std::byte* values, std::size_t nbytes) {
    std::memcpy(out + offset, values, nbytes);
  });
}

void ValuePattern::fill_wrong(std::byte* out, std::size_t first, std::size_t count) const {
  for_each_piece(first, count, [&](std::size_t offset, const std::byte* values, std::size_t nbytes) {
    std::transform(values, values + nbytes, out + offset, [](std::byte value) { return ~value; });
  });
}

std::uint64_t ValuePattern::count_wrong(const std::byte* data, std::size_t first, std::size_t count) const {
  const std::size_t element = dtype_size(dtype_);
  std::uint64_t wrong = 0;
  for_each_piece(first, count, [&](std::size_t offset, const std::byte* values, std::size_t nbytes) {
    if (std::memcmp(data + offset, values, nbytes) == 0) return;
    for (std::size_t i = 0; i < nbytes; i += element)
      wrong += std::memcmp(data + offset + i, values + i, element) != 0 ? 1U : 0U;
  });
  return wrong;
}

}  // namespace neuron
