#include "engine/device/core.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "engine/testing/device_fixtures.h"
#include "engine/testing/gate.h"

namespace neuron {
namespace {

TEST(CoreTest, HasANameAndADefaultStream) {
  CoreOptions options;
  options.index = 3;
  options.logical_core = 7;
  options.memory_limit = DeviceHeap::kUnit;
  const auto core = make_test_core(options);
  EXPECT_EQ(core->name(), "neuron:3");
  EXPECT_EQ(core->index(), 3);
  EXPECT_EQ(core->logical_core(), 7);
  EXPECT_EQ(core->default_stream().id(), 0U);
  EXPECT_EQ(core->default_stream().priority(), 0);
  EXPECT_EQ(&core->default_stream().core(), core.get());
  EXPECT_EQ(core->streams().size(), 1U);
}

TEST(CoreTest, StreamsComeFromABoundedPoolOfEachPriority) {
  const auto core = make_test_core();
  std::set<std::uint32_t> ids{0};
  for (const int priority : {-1, 0, 1}) {
    Stream& first = core->acquire_stream(priority);
    EXPECT_EQ(first.priority(), priority);
    ids.insert(first.id());
    for (std::uint32_t i = 1; i < Core::kStreamsPerPriority; ++i) {
      Stream& stream = core->acquire_stream(priority);
      EXPECT_EQ(stream.priority(), priority);
      EXPECT_TRUE(ids.insert(stream.id()).second);
    }
    EXPECT_EQ(&core->acquire_stream(priority), &first);
  }
  EXPECT_EQ(ids.size(), 1 + 3 * std::size_t{Core::kStreamsPerPriority});
  EXPECT_EQ(core->streams().size(), ids.size());
}

TEST(CoreTest, PrioritiesBeyondTheRangeCountAsItsEnds) {
  const auto core = make_test_core();
  EXPECT_EQ(core->acquire_stream(-5).priority(), -1);
  EXPECT_EQ(core->acquire_stream(9).priority(), 1);
}

TEST(CoreTest, StreamsByIdAreMadeAtNeed) {
  const auto core = make_test_core();
  Stream* stream = core->stream(40);
  ASSERT_NE(stream, nullptr);
  EXPECT_EQ(stream->id(), 40U);
  EXPECT_EQ(stream->priority(), 0);
  EXPECT_EQ(core->stream(40), stream);
  EXPECT_EQ(core->stream(0), &core->default_stream());
  EXPECT_EQ(core->stream(97), nullptr);
}

TEST(CoreTest, SynchronizeWaitsForEveryStream) {
  const auto core = make_test_core();
  int ran = 0;
  Stream& one = core->acquire_stream(0);
  Stream& two = core->acquire_stream(-1);
  submit(one, [&] { ++ran; });
  two.wait_for(one, one.submitted());
  submit(two, [&] { ++ran; });
  EXPECT_EQ(core->synchronize(), nullptr);
  EXPECT_EQ(ran, 2);
  EXPECT_TRUE(one.query() && two.query());
}

TEST(CoreTest, AClosedCoreRefusesOnNewStreamsToo) {
  const auto core = make_test_core();
  core->close();
  bool ran = false;
  EXPECT_EQ(submit(core->acquire_stream(0), [&] { ran = true; }), 0U);
  EXPECT_EQ(core->synchronize(), nullptr);
  EXPECT_FALSE(ran);
}

TEST(CoreTest, AForkedChildGetsAnswersAndNoHangs) {
  auto core = make_test_core();
  Gate gate;
  Stream& stream = core->default_stream();
  const StreamPosition position = stream.submit(gate.command());
  gate.wait_for_arrival();
  const pid_t child = fork();
  if (child == 0) {
    bool ran = false;
    submit(stream, [&] { ran = true; });
    const bool refused = !ran && stream.submitted() == position;
    const bool told = stream.wait_until(position).code() == StatusCode::kUnavailable;
    const bool nothing = core->synchronize() == nullptr;
    core.reset();
    _exit(refused && told && nothing ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  gate.open();
  EXPECT_EQ(stream.synchronize(), nullptr);
}

}  // namespace
}  // namespace neuron
