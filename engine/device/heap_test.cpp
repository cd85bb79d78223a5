#include "engine/device/heap.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <vector>

#include "engine/base/fork.h"

namespace neuron {
namespace {

constexpr std::size_t kUnit = DeviceHeap::kUnit;

std::unique_ptr<DeviceHeap> make_heap(std::size_t limit, std::optional<std::uint64_t> reserve = 0) {
  auto heap = DeviceHeap::create(limit, reserve);
  EXPECT_TRUE(heap.is_ok()) << heap.status().message();
  return std::move(heap).value();
}

// Bytes of the heap's file that have pages, as the kernel counts them.
std::size_t pages_of(const DeviceHeap& heap) {
  struct stat info{};
  EXPECT_EQ(fstat(heap.fd(), &info), 0);
  return static_cast<std::size_t>(info.st_blocks) * 512;
}

TEST(HeapTest, ReservesMuchAndTakesNothing) {
  const auto heap = make_heap(std::size_t{24} << 30);
  EXPECT_EQ(heap->limit(), std::size_t{24} << 30);
  EXPECT_EQ(heap->committed(), 0U);
  EXPECT_EQ(pages_of(*heap), 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(heap->base()) % kUnit, 0U);
  EXPECT_TRUE(heap->contains(heap->base() + heap->limit() - 1));
  EXPECT_FALSE(heap->contains(heap->base() + heap->limit()));
  EXPECT_EQ(heap->offset_of(heap->base() + 77), 77U);
}

TEST(HeapTest, TheLimitIsRoundedUpToAUnit) {
  EXPECT_EQ(make_heap(1)->limit(), kUnit);
  EXPECT_FALSE(DeviceHeap::create(0).is_ok());
}

TEST(HeapTest, CommitGivesPagesToTheUnitsThatItTouches) {
  const auto heap = make_heap(16 * kUnit);
  ASSERT_TRUE(heap->commit(kUnit - 1, 2).is_ok());
  EXPECT_EQ(heap->committed(), 2 * kUnit);
  EXPECT_EQ(pages_of(*heap), 2 * kUnit);
  ASSERT_TRUE(heap->commit(0, 5 * kUnit).is_ok());
  EXPECT_EQ(heap->committed(), 5 * kUnit);
  std::memset(heap->base(), 1, 5 * kUnit);
  EXPECT_EQ(pages_of(*heap), 5 * kUnit);
}

TEST(HeapTest, DecommitGivesBackWholeUnitsOnly) {
  const auto heap = make_heap(8 * kUnit);
  ASSERT_TRUE(heap->commit(0, 8 * kUnit).is_ok());
  std::memset(heap->base(), 1, 8 * kUnit);
  heap->decommit(kUnit / 2, 3 * kUnit);  // units 1 and 2 lie inside
  EXPECT_EQ(heap->committed(), 6 * kUnit);
  EXPECT_EQ(pages_of(*heap), 6 * kUnit);
  EXPECT_EQ(heap->base()[kUnit - 1], std::byte{1});
  ASSERT_TRUE(heap->commit(kUnit, kUnit).is_ok());
  EXPECT_EQ(heap->base()[kUnit], std::byte{0});
}

TEST(HeapTest, AReserveThatIsNotThereIsAStatusAndTakesNothing) {
  const auto heap = make_heap(64 * kUnit, std::uint64_t{1} << 60);
  const Status status = heap->commit(0, 32 * kUnit);
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_NE(status.message().find("NEURON_EMU_HOST_RESERVE"), std::string::npos) << status.message();
  EXPECT_EQ(heap->committed(), 0U);
  EXPECT_EQ(pages_of(*heap), 0U);
}

TEST(HeapTest, APeerMapsTheSameMemoryAndCannotBreakIt) {
  const auto heap = make_heap(4 * kUnit);
  ASSERT_TRUE(heap->commit(0, kUnit).is_ok());
  void* peer = mmap(nullptr, heap->limit(), PROT_READ | PROT_WRITE, MAP_SHARED, heap->fd(), 0);
  ASSERT_NE(peer, MAP_FAILED);
  static_cast<std::byte*>(peer)[123] = std::byte{9};
  EXPECT_EQ(heap->base()[123], std::byte{9});
  EXPECT_NE(ftruncate(heap->fd(), 0), 0);
  EXPECT_EQ(fcntl(heap->fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  munmap(peer, heap->limit());
}

TEST(HeapTest, AForkedChildHasNeitherMemoryNorDescriptor) {
  const auto heap = make_heap(4 * kUnit);
  ASSERT_TRUE(heap->commit(0, kUnit).is_ok());
  heap->base()[0] = std::byte{5};
  const pid_t child = fork();
  if (child == 0) {
    unsigned char resident = 0;
    const bool unmapped = mincore(heap->base(), 4096, &resident) != 0 && errno == ENOMEM;
    const bool closed = fcntl(heap->fd(), F_GETFD) == -1;
    _exit(unmapped && closed && in_forked_child() ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(heap->base()[0], std::byte{5});
}

std::uint64_t available_memory() {
  std::ifstream meminfo("/proc/meminfo");
  std::string name;
  std::uint64_t kib = 0;
  while (meminfo >> name) {
    if (name == "MemAvailable:" && meminfo >> kib) return kib << 10;
  }
  return 0;
}

// What the child of GreedyProcesses does: takes 16 MiB at a time until it is told that there is no more.
int take_until_refused(std::uint64_t reserve, int ready_fd, int start_fd) {
  auto heap = DeviceHeap::create(std::size_t{64} << 30, reserve);
  if (!heap.is_ok()) return 2;
  char token = 'r';
  if (write(ready_fd, &token, 1) != 1 || read(start_fd, &token, 1) != 1) return 3;
  constexpr std::size_t kStep = 8 * kUnit;
  for (std::size_t offset = 0; offset < heap.value()->limit(); offset += kStep) {
    const Status status = heap.value()->commit(offset, kStep);
    if (status.is_ok()) continue;
    if (status.code() != StatusCode::kOutOfMemory) return 4;
    // Hold what was got until all are done, or each would leave its memory to the next.
    return write(ready_fd, &token, 1) == 1 && read(start_fd, &token, 1) == 1 ? 0 : 3;
  }
  return 5;
}

// Several processes take memory at once; all get a Status, nobody a signal. They share half a GiB above the
// reserve.
void greedy_processes(std::size_t count) {
  constexpr std::uint64_t kHeadroom = std::uint64_t{512} << 20;
  const std::uint64_t available = available_memory();
  ASSERT_GT(available, 2 * kHeadroom);
  int ready[2];
  int start[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(start), 0);
  std::vector<pid_t> children;
  for (std::size_t i = 0; i < count; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(take_until_refused(available - kHeadroom, ready[1], start[0]));
    children.push_back(child);
  }
  std::vector<char> tokens(count);
  for (int phase = 0; phase < 2; ++phase) {
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(read(ready[0], tokens.data(), 1), 1);
    ASSERT_EQ(write(start[1], tokens.data(), count), static_cast<ssize_t>(count));
  }
  for (const pid_t child : children) {
    int status = 1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  for (const int fd : {ready[0], ready[1], start[0], start[1]}) close(fd);
}

TEST(HeapShortageTest, OneProcess) { greedy_processes(1); }
TEST(HeapShortageTest, FourProcessesAtOnce) { greedy_processes(4); }

}  // namespace
}  // namespace neuron
