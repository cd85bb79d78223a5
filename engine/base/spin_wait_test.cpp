#include "engine/base/spin_wait.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace neuron {
namespace {

using std::chrono::milliseconds;

// Straight to sleep, where the wake-up logic is.
constexpr SpinBudget kSleepAtOnce{0, 0};

TEST(WakeWordTest, WaitsForTheCondition) {
  WakeWord word;
  std::atomic<bool> set{false};
  std::thread waiter(
      [&] { EXPECT_TRUE(word.wait([&] { return set.load(); }, Deadline::never(), kSleepAtOnce)); });
  set.store(true);
  word.notify();
  waiter.join();
}

TEST(WakeWordTest, DeadlineEndsAWait) {
  WakeWord word;
  EXPECT_FALSE(word.wait([] { return false; }, Deadline::after(milliseconds(1)), kSleepAtOnce));
  EXPECT_FALSE(word.wait([] { return false; }, Deadline::after(milliseconds(1))));
}

// The state changes after the sleeper's last look and before it sleeps.
TEST(WakeWordTest, ANotificationJustBeforeTheSleepIsSeen) {
  WakeWord word;
  std::atomic<bool> set{false};
  int looks = 0;
  EXPECT_TRUE(word.wait(
      [&] {
        if (++looks == 2) {  // the first look is before the sleeper announces itself
          set.store(true);
          word.notify();
          return false;
        }
        return set.load();
      },
      Deadline::never(), kSleepAtOnce));
  EXPECT_EQ(looks, 3);
}

// Two threads hand a token to and fro, asleep in between: a lost wake-up would end it for ever.
TEST(WakeWordTest, NoWakeUpIsLost) {
  WakeWord word;
  std::atomic<int> turn{0};
  constexpr int kRounds = 5'000;
  const auto play = [&](int me) {
    for (int round = 0; round < kRounds; ++round) {
      word.wait([&] { return turn.load() == me; }, Deadline::never(), kSleepAtOnce);
      turn.store(1 - me);
      word.notify();
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_EQ(turn.load(), 0);
}

TEST(WaitCounterTest, WakesEveryTargetThatIsReached) {
  WaitCounter counter;
  constexpr std::uint64_t kLast = 10'000;
  std::vector<std::thread> waiters;
  for (const std::uint64_t step : {1U, 7U, 100U}) {
    waiters.emplace_back([&counter, step] {
      for (std::uint64_t target = step; target <= kLast; target += step) {
        EXPECT_TRUE(counter.wait(target, Deadline::never(), kSleepAtOnce));
        EXPECT_GE(counter.load(), target);
      }
    });
  }
  for (std::uint64_t value = 1; value <= kLast; ++value) counter.publish(value);
  for (auto& waiter : waiters) waiter.join();
}

TEST(WaitCounterTest, DeadlineEndsAWaitAndAnotherMayFollow) {
  WaitCounter counter;
  EXPECT_FALSE(counter.wait(1, Deadline::after(milliseconds(1)), kSleepAtOnce));
  counter.publish(1);
  EXPECT_TRUE(counter.wait(1, Deadline::after(milliseconds(0)), kSleepAtOnce));
}

TEST(SharedWaitCounterTest, WorksBetweenProcessesFromZeroedMemory) {
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  // Zero-filled memory is a valid pair of counters.
  auto* there = static_cast<SharedWaitCounter*>(memory);
  auto* back = there + 1;
  constexpr std::uint64_t kRounds = 1000;
  const pid_t child = fork();
  if (child == 0) {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      there->wait(round, Deadline::never(), kSleepAtOnce);
      back->publish(round);
    }
    _exit(0);
  }
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    there->publish(round);
    ASSERT_TRUE(back->wait(round, Deadline::after(std::chrono::seconds(60)), kSleepAtOnce));
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  munmap(memory, 4096);
}

}  // namespace
}  // namespace neuron
