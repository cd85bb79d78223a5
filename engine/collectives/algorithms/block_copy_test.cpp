// Copies of every alignment and size, past the caches and through them: equal, and nothing beside them is touched.
#include "engine/collectives/algorithms/block_copy.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace neuron {
namespace {

constexpr std::byte kGuard{0xa5};
constexpr std::size_t kGuardBytes = 128;
constexpr std::size_t kOffsets[] = {0, 1, 8, 63};
constexpr std::size_t kSizes[] = {0, 1, 15, 63, 64, 65, 4096, 16383, 16384, 16385, 16448, 70001, 1 << 20};

std::vector<std::byte> counted(std::size_t nbytes) {
  std::vector<std::byte> out(nbytes);
  for (std::size_t i = 0; i < nbytes; ++i) out[i] = static_cast<std::byte>(i * 31 + i / 251);
  return out;
}

void expect_copied(std::size_t nbytes, std::size_t from_offset, std::size_t to_offset, std::size_t targets,
                   CopyTarget kind) {
  const std::vector<std::byte> source = counted(from_offset + nbytes);
  const std::byte* const from = source.data() + from_offset;
  std::vector<std::vector<std::byte>> memory(targets);
  std::vector<std::byte*> to;
  for (auto& target : memory) {
    target.assign(to_offset + nbytes + 2 * kGuardBytes, kGuard);
    to.push_back(target.data() + kGuardBytes + to_offset);
  }
  copy_to_all(from, to.data(), targets, nbytes, kind);
  for (std::size_t i = 0; i < targets; ++i) {
    std::vector<std::byte> expected(memory[i].size(), kGuard);
    std::copy(from, from + nbytes, expected.begin() + static_cast<std::ptrdiff_t>(kGuardBytes + to_offset));
    ASSERT_EQ(memory[i], expected) << nbytes << " bytes from +" << from_offset << " to +" << to_offset;
  }
}

TEST(BlockCopyTest, CopiesAreExactForEverySizeAndAlignment) {
  for (const CopyTarget kind : {CopyTarget::kCached, CopyTarget::kUncached}) {
    for (const std::size_t nbytes : kSizes) {
      for (const std::size_t from_offset : kOffsets) {
        for (const std::size_t to_offset : kOffsets) expect_copied(nbytes, from_offset, to_offset, 1, kind);
      }
      expect_copied(nbytes, 3, 5, 3, kind);
    }
  }
}

TEST(BlockCopyTest, ATargetThatIsTheSourceIsLeftAlone) {
  std::vector<std::byte> source = counted(70001);
  std::vector<std::byte> other(source.size());
  std::byte* targets[] = {source.data(), other.data()};
  copy_to_all(source.data(), targets, 2, source.size(), CopyTarget::kUncached);
  EXPECT_EQ(source, counted(70001));
  EXPECT_EQ(other, source);
}

TEST(BlockCopyTest, OnlyWhatIsLargeGoesPastTheCaches) {
  EXPECT_EQ(copy_target(std::size_t{1} << 20), CopyTarget::kCached);
  EXPECT_EQ(copy_target(std::size_t{64} << 20), CopyTarget::kUncached);
}

}  // namespace
}  // namespace neuron
