#include "engine/device/host_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace neuron {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// A copy of the kernel's files with the numbers of the test.
class HostMemoryTest : public ::testing::Test {
 protected:
  HostMemoryTest() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = ::testing::TempDir() + "host_memory_" + test->name();
    std::filesystem::remove_all(root_);
    paths_ = {root_ + "/meminfo", root_ + "/self_cgroup", root_ + "/cgroup"};
    write("meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:   8388608 kB\n");
    write("self_cgroup", "");
  }
  ~HostMemoryTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = root_ + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  Status check(std::uint64_t nbytes, std::optional<std::uint64_t> reserve = std::nullopt) const {
    return HostMemory(reserve, paths_).check(nbytes);
  }

  std::string root_;
  HostMemoryPaths paths_;
};

TEST_F(HostMemoryTest, TheHostKeepsItsReserve) {
  // 8 GiB available of 16 GiB: a sixteenth stays.
  EXPECT_TRUE(check(7 * 1024 * kMiB).is_ok());
  const Status status = check(7 * 1024 * kMiB + 1);
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_NE(status.message().find("the host has 8192 MiB left"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("NEURON_EMU_HOST_RESERVE"), std::string::npos);
}

TEST_F(HostMemoryTest, TheReserveCanBeChosen) {
  EXPECT_TRUE(check(5 * 1024 * kMiB, 3 * 1024 * kMiB).is_ok());
  EXPECT_FALSE(check(5 * 1024 * kMiB + 1, 3 * 1024 * kMiB).is_ok());
  EXPECT_FALSE(check(1, 8192 * kMiB).is_ok());
  EXPECT_FALSE(check(1, ~std::uint64_t{0}).is_ok());
}

TEST_F(HostMemoryTest, ALittleIsKeptInAnyCase) {
  EXPECT_TRUE(check((8192 - 256) * kMiB, 0).is_ok());
  EXPECT_FALSE(check((8192 - 256) * kMiB + 1, 0).is_ok());
}

TEST_F(HostMemoryTest, ControlGroupsOfVersion2AreBounds) {
  write("self_cgroup", "0::/job/worker\n");
  write("cgroup/job/worker/memory.max", "max\n");
  write("cgroup/job/worker/memory.current", "0\n");
  write("cgroup/job/memory.max", std::to_string(1024 * kMiB) + "\n");
  write("cgroup/job/memory.current", std::to_string(700 * kMiB) + "\n");
  write("cgroup/job/memory.stat", "anon 1\ninactive_file " + std::to_string(100 * kMiB) + "\nactive_file " +
                                      std::to_string(100 * kMiB) + "\n");
  // Page cache counts as free: 1024 - 500 left, 64 kept.
  EXPECT_TRUE(check(460 * kMiB).is_ok());
  const Status status = check(461 * kMiB);
  ASSERT_FALSE(status.is_ok());
  EXPECT_NE(status.message().find("cgroup/job/memory.max"), std::string::npos) << status.message();
}

TEST_F(HostMemoryTest, ControlGroupsOfVersion1AreBounds) {
  write("self_cgroup", "9:name=systemd:/\n4:cpu,memory:/job\n0::/\n");
  write("cgroup/memory/job/memory.limit_in_bytes", std::to_string(512 * kMiB) + "\n");
  write("cgroup/memory/job/memory.usage_in_bytes", std::to_string(412 * kMiB) + "\n");
  write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("cgroup/memory/memory.usage_in_bytes", "1\n");
  EXPECT_TRUE(check(68 * kMiB).is_ok());
  EXPECT_FALSE(check(69 * kMiB).is_ok());
}

TEST_F(HostMemoryTest, AContainerSeesItsGroupAtTheRoot) {
  write("self_cgroup", "0::/docker/0123456789abcdef\n");
  write("cgroup/memory.max", std::to_string(64 * kMiB) + "\n");
  write("cgroup/memory.current", "0\n");
  EXPECT_TRUE(check(60 * kMiB).is_ok());
  EXPECT_FALSE(check(61 * kMiB).is_ok());
}

TEST_F(HostMemoryTest, MissingFilesAreNoBound) {
  paths_.meminfo = root_ + "/nothing";
  write("self_cgroup", "nonsense\n0::/gone\n");
  EXPECT_TRUE(check(std::uint64_t{1} << 50).is_ok());
}

TEST_F(HostMemoryTest, ThisMachineGivesLittleButNotEverything) {
  EXPECT_TRUE(HostMemory(0).check(kMiB).is_ok());
  EXPECT_FALSE(HostMemory(0).check(std::uint64_t{1} << 60).is_ok());
}

}  // namespace
}  // namespace neuron
