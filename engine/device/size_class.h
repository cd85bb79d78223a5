// Size classes of device memory blocks: eight steps for each doubling, and multiples of 256 B.
#pragma once

#include <bit>
#include <cstddef>

namespace neuron {

inline constexpr std::size_t kSmallestBlock = 256;
inline constexpr std::size_t kSmallLimit = std::size_t{1} << 20;   // requests below: small pool
inline constexpr std::size_t kClassLimit = std::size_t{16} << 20;  // requests below: rounded to a class

namespace detail {
inline constexpr std::size_t kLinearEnd = 8 * kSmallestBlock;  // below: one class for each multiple of 256 B
inline constexpr std::size_t kLinearClasses = 7;
inline constexpr int kLinearEndLog2 = 11;
static_assert(kLinearEnd == std::size_t{1} << kLinearEndLog2);

inline std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
inline int floor_log2(std::size_t value) { return static_cast<int>(std::bit_width(value)) - 1; }
}  // namespace detail

// Enough for blocks of 2^40 bytes.
inline constexpr std::size_t kSizeClasses = 256;

// Bytes of the block that serves a request: rounded to a class below 16 MiB, to 512 B from there on.
inline std::size_t block_size(std::size_t requested) {
  if (requested >= kClassLimit) return detail::round_up(requested, 512);
  if (requested < detail::kLinearEnd) return detail::round_up(requested == 0 ? 1 : requested, kSmallestBlock);
  return detail::round_up(requested, std::size_t{1} << (detail::floor_log2(requested) - 3));
}

// The class of a block of `nbytes`: it is at least as large as the smallest size of its class.
// Requires: nbytes is a multiple of 256 and below 2^40.
inline std::size_t size_class(std::size_t nbytes) {
  if (nbytes < detail::kLinearEnd) return nbytes / kSmallestBlock - 1;
  const int log2 = detail::floor_log2(nbytes);
  const std::size_t step = (nbytes >> (log2 - 3)) & 7;
  return detail::kLinearClasses + static_cast<std::size_t>(log2 - detail::kLinearEndLog2) * 8 + step;
}

}  // namespace neuron
