#include "engine/base/fork.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace neuron {
namespace {

// Runs `check` in a forked child; true when it returned true there.
template <typename Check>
bool holds_in_child(Check check) {
  const pid_t child = fork();
  if (child == 0) _exit(check() ? 0 : 1);
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool is_open(int fd) { return fcntl(fd, F_GETFD) != -1; }

TEST(ForkTest, ChildKnowsAndClosesDescriptors) {
  arm_fork_guard();
  const int closed = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int kept = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(closed, 0);
  ASSERT_GE(kept, 0);
  close_in_child(closed);
  close_in_child(kept);
  forget_in_child(kept);
  EXPECT_FALSE(in_forked_child());
  EXPECT_TRUE(holds_in_child([&] { return in_forked_child() && !is_open(closed) && is_open(kept); }));
  EXPECT_TRUE(is_open(closed));
  forget_in_child(closed);
  close(closed);
  close(kept);
}

}  // namespace
}  // namespace neuron
