// How a member's process has ended, before and after its parent has collected it.
#include "engine/collectives/peer_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace neuron {
namespace {

// A child that waits for its end.
pid_t start_child() {
  const pid_t pid = fork();
  if (pid == 0) {
    while (true) pause();
  }
  return pid;
}

void expect_obituary(const PeerWatch& watch, pid_t pid, const std::string& told) {
  EXPECT_EQ(watch.obituary(1), "pid " + std::to_string(pid) + ", " + told);
}

TEST(PeerWatchTest, AKilledProcessIsToldFromOneThatExits) {
  const pid_t killed = start_child();
  PeerWatch watch;
  watch.add(1, killed);
  EXPECT_FALSE(watch.is_dead(1));
  ASSERT_EQ(kill(killed, SIGKILL), 0);
  siginfo_t ignored;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(killed), &ignored, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(watch.is_dead(1));
  expect_obituary(watch, killed, "killed by signal 9 (Killed)");

  ASSERT_EQ(waitpid(killed, nullptr, 0), killed);
  EXPECT_TRUE(watch.is_dead(1));
  // Kernels before 6.15 do not keep it.
  if (watch.obituary(1) != "pid " + std::to_string(killed) + ", ended")
    expect_obituary(watch, killed, "killed by signal 9 (Killed)");
}

TEST(PeerWatchTest, AnExitIsToldWithItsCode) {
  int gate[2];
  ASSERT_EQ(pipe(gate), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    char go = 0;
    std::_Exit(read(gate[0], &go, 1) == 1 ? 7 : 1);
  }
  PeerWatch watch;
  watch.add(1, pid);
  ASSERT_EQ(write(gate[1], "", 1), 1);
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  if (watch.obituary(1) != "pid " + std::to_string(pid) + ", ended")
    expect_obituary(watch, pid, "exited with code 7");
  close(gate[0]);
  close(gate[1]);
}

}  // namespace
}  // namespace neuron
