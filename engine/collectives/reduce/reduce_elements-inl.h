// Element formats of the reduction kernels: Storage in memory, Acc while reducing.
//
// kByBlock: conversions are faster for a whole block (an instruction of its own, a table) than inside the
// loops.
// Internal linkage: see low_precision.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "engine/collectives/reduce/low_precision.h"

namespace neuron {
namespace {

template <typename T>
struct PlainElement {
  static constexpr bool kByBlock = false;
  using Storage = T;
  using Acc = T;
  static Acc load(Storage x) { return x; }
  static Storage store(Acc x) { return x; }
};

struct BoolElement {
  static constexpr bool kByBlock = false;
  using Storage = std::uint8_t;
  using Acc = std::uint8_t;
  static Acc load(Storage x) { return x != 0; }
  static Storage store(Acc x) { return x; }
};

struct BFloat16Element {
  static constexpr bool kByBlock = false;
  using Storage = std::uint16_t;
  using Acc = float;
  static Acc load(Storage x) { return bf16_to_float(x); }
  static Storage store(Acc x) { return float_to_bf16(x); }

  // Two neighbours in one word. Each is a float once the other is masked or shifted out, so that no vector
  // has to be widened and narrowed again.
  using Pair = std::uint32_t;
  static Acc low(Pair x) { return float_of_bits(x << 16); }
  static Acc high(Pair x) { return float_of_bits(x & 0xFFFF0000u); }
  static Pair join(Acc low, Acc high) {
    return float_to_upper_bf16(low) >> 16 | (float_to_upper_bf16(high) & 0xFFFF0000u);
  }
};

struct Float16Element {
  static constexpr bool kByBlock = true;
  using Storage = std::uint16_t;
  using Acc = float;
  static Acc load(Storage x) { return fp16_to_float(x); }
  static Storage store(Acc x) { return float_to_fp16(x); }

  static void widen(const std::byte* from, float* to, std::size_t n) {
    std::size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
      __m128i x;
      std::memcpy(&x, from + 2 * i, sizeof x);
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(x));
    }
#endif
    for (; i < n; ++i) {
      Storage x;
      std::memcpy(&x, from + 2 * i, sizeof x);
      to[i] = load(x);
    }
  }

  static void narrow(const float* from, Storage* to, std::size_t n) {
    std::size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
      const __m128i x =
          _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      std::memcpy(to + i, &x, sizeof x);
    }
#endif
    for (; i < n; ++i) to[i] = store(from[i]);
  }
};

template <typename Format>
struct Float8Element {
  static constexpr bool kByBlock = true;
  using Storage = std::uint8_t;
  using Acc = float;
  static Acc load(Storage x) { return float8_to_float<Format>(x); }
  static Storage store(Acc x) { return float_to_float8<Format>(x); }

  static void widen(const std::byte* from, float* to, std::size_t n) {
    std::size_t i = 0;
#if defined(__AVX2__)
    if constexpr (kFitsFp16) {
      for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, widen_eight(from + i));
    }
#endif
    for (; i < n; ++i) to[i] = load(static_cast<Storage>(from[i]));
  }

  static void narrow(const float* from, Storage* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) to[i] = store(from[i]);
  }

 private:
  // As fp16, up to a power of two. Not so where the largest exponent is a number's, not infinity's.
  static constexpr bool kFitsFp16 = Format::kMantissa == 3 || !Format::kFnuz;

#if defined(__AVX2__)
  static __m256 widen_eight(const std::byte* from) {
    const __m128i x = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    const __m128i magnitude = _mm_and_si128(x, _mm_set1_epi16(0x7F));
    const __m128i half = _mm_or_si128(_mm_slli_epi16(magnitude, 10 - Format::kMantissa),
                                      _mm_slli_epi16(_mm_and_si128(x, _mm_set1_epi16(0x80)), 8));
    const float scale = float_of_bits((127u + 15u - Format::kBias) << 23);
    const __m256 value = _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(scale));
    if constexpr (!Format::kFinite && !Format::kFnuz) return value;
    const __m128i nan = Format::kFnuz ? _mm_cmpeq_epi16(x, _mm_set1_epi16(0x80))
                                      : _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7F));
    return _mm256_or_ps(value, _mm256_castsi256_ps(_mm256_cvtepi16_epi32(nan)));  // all ones is a NaN
  }
#endif
};

template <typename T>
struct Complex {
  T re, im;
};

template <typename Part>  // PlainElement<float>, PlainElement<double>, Float16Element
struct ComplexElement {
  static constexpr bool kByBlock = false;
  using Storage = Complex<typename Part::Storage>;
  using Acc = Complex<typename Part::Acc>;
  static Acc load(Storage x) { return {Part::load(x.re), Part::load(x.im)}; }
  static Storage store(Acc x) { return {Part::store(x.re), Part::store(x.im)}; }
};

template <typename E>
inline typename E::Acc load_at(const std::byte* base, std::size_t i) {
  typename E::Storage x;
  std::memcpy(&x, base + i * sizeof x, sizeof x);
  return E::load(x);
}

}  // namespace
}  // namespace neuron
