#include "engine/collectives/algorithms/block_copy.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace neuron {

namespace {

constexpr std::size_t kBlock = 16 << 10;  // stays in the first-level cache
constexpr std::size_t kUncachedFrom = std::size_t{16} << 20;

#if defined(__x86_64__)
constexpr std::size_t kLine = 64;
constexpr std::size_t kPages = 4;  // that are copied side by side: the memory serves several rows at once
constexpr std::size_t kPage = kBlock / kPages;

// Vectors of the baseline: their stores are combined to whole lines on the way.
void copy_line_uncached(const std::byte* from, std::byte* to) {
  const auto* in = reinterpret_cast<const __m128i*>(from);
  auto* out = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
  const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
  _mm_stream_si128(out, a);
  _mm_stream_si128(out + 1, b);
  _mm_stream_si128(out + 2, c);
  _mm_stream_si128(out + 3, d);
}

void copy_uncached(const std::byte* from, std::byte* to, std::size_t nbytes) {
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(to) % kLine;
  const std::size_t head = std::min(misaligned == 0 ? 0 : kLine - misaligned, nbytes);
  std::memcpy(to, from, head);
  std::size_t at = head;
  for (; at + kBlock <= nbytes; at += kBlock) {
    for (std::size_t line = at; line < at + kPage; line += kLine) {
      for (std::size_t page = 0; page < kPages; ++page)
        copy_line_uncached(from + line + page * kPage, to + line + page * kPage);
    }
  }
  for (; at + kLine <= nbytes; at += kLine) copy_line_uncached(from + at, to + at);
  std::memcpy(to + at, from + at, nbytes - at);
}

void finish_uncached() { _mm_sfence(); }
#else
void copy_uncached(const std::byte* from, std::byte* to, std::size_t nbytes) {
  std::memcpy(to, from, nbytes);
}
void finish_uncached() {}
#endif

}  // namespace

CopyTarget copy_target(std::size_t total_bytes) {
  return total_bytes >= kUncachedFrom ? CopyTarget::kUncached : CopyTarget::kCached;
}

void copy_to_all(const std::byte* from, std::byte* const* targets, std::size_t target_count,
                 std::size_t nbytes, CopyTarget kind) {
  const std::size_t block = target_count > 1 ? kBlock : nbytes;
  const auto copy = kind == CopyTarget::kUncached
                        ? copy_uncached
                        : [](const std::byte* in, std::byte* out, std::size_t n) { std::memcpy(out, in, n); };
  for (std::size_t begin = 0; begin < nbytes; begin += block) {
    const std::size_t n = std::min(block, nbytes - begin);
    for (std::size_t i = 0; i < target_count; ++i) {
      if (targets[i] != from) copy(from + begin, targets[i] + begin, n);
    }
  }
  if (kind == CopyTarget::kUncached) finish_uncached();
}

}  // namespace neuron
