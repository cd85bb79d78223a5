// Philox 4x32-10 (Salmon et al., SC'11): a counter-based generator. Element i's numbers depend on (seed,
// offset, i) alone, so they are the same for any thread count and any timing.
#pragma once

#include <array>
#include <cstdint>

namespace neuron::bridge {

class Philox {
 public:
  Philox(std::uint64_t seed, std::uint64_t counter_high) : seed_(seed), high_(counter_high) {}

  // 128 random bits for a counter.
  std::array<std::uint32_t, 4> operator()(std::uint64_t counter) const {
    std::array<std::uint32_t, 4> x = {
        static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
        static_cast<std::uint32_t>(high_), static_cast<std::uint32_t>(high_ >> 32)};
    auto k0 = static_cast<std::uint32_t>(seed_);
    auto k1 = static_cast<std::uint32_t>(seed_ >> 32);
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t a = std::uint64_t{0xD2511F53} * x[0];
      const std::uint64_t b = std::uint64_t{0xCD9E8D57} * x[2];
      x = {static_cast<std::uint32_t>(b >> 32) ^ x[1] ^ k0, static_cast<std::uint32_t>(b),
           static_cast<std::uint32_t>(a >> 32) ^ x[3] ^ k1, static_cast<std::uint32_t>(a)};
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    return x;
  }

 private:
  std::uint64_t seed_, high_;
};

// [0, 1), with as many bits as the type can hold.
inline float unit_float(std::uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24F; }
inline double unit_double(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = std::uint64_t{high} << 32 | low;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace neuron::bridge
