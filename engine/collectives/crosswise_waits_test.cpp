// Ranks that wait for each other in different groups: found long before the timeout, and named.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/collectives/communicator.h"
#include "engine/testing/device_fixtures.h"
#include "engine/testing/rank_threads.h"

namespace neuron {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

CollectiveRequest request_of(const DeviceBuffer& buffer) {
  CollectiveRequest request{.kind = CollectiveKind::kAllReduce, .dtype = DType::kFloat32};
  request.op = ReduceOp::kSum;
  request.count = 4;
  request.input = request.output = buffer.data();
  return request;
}

// Groups "a" and "b" of the same ranks, left at the end.
struct TwoGroups {
  TwoGroups(const RankThreads& ranks, std::chrono::nanoseconds timeout)
      : a(ranks.make_group(named("a", timeout))), b(ranks.make_group(named("b", timeout))) {}
  ~TwoGroups() {
    for (const auto* group : {&a, &b}) {
      for (const auto& member : *group) (void)member->destroy().is_ok();
    }
  }
  TwoGroups(const TwoGroups&) = delete;
  TwoGroups& operator=(const TwoGroups&) = delete;

  static CommunicatorOptions named(const char* name, std::chrono::nanoseconds timeout) {
    CommunicatorOptions options;
    options.group_name = name;
    options.timeout = timeout;
    return options;
  }

  const std::vector<std::shared_ptr<Communicator>> a, b;
};

struct Outcome {
  Status first, second;
};

// Rank 0 calls in group a and then in b; rank 1 the other way round.
std::vector<Outcome> call_crosswise(std::chrono::nanoseconds timeout, bool on_one_stream) {
  const RankThreads ranks(2);
  const TwoGroups groups(ranks, timeout);
  std::vector<Outcome> outcomes(2);
  ranks.run([&](RankContext& context) {
    const auto rank = static_cast<std::size_t>(context.rank);
    Communicator& first = rank == 0 ? *groups.a[rank] : *groups.b[rank];
    Communicator& second = rank == 0 ? *groups.b[rank] : *groups.a[rank];
    const DeviceBuffer buffer = context.buffer(std::size_t{64}), other = context.buffer(std::size_t{64});
    Stream& stream = context.core.default_stream();
    Stream& side = on_one_stream ? stream : context.core.acquire_stream(0);
    const auto one = first.submit(stream, request_of(buffer));
    const auto two = second.submit(side, request_of(other));
    outcomes[rank].first = one.is_ok() ? one.value()->wait(Deadline::after(kPatience)) : one.status();
    outcomes[rank].second = two.is_ok() ? two.value()->wait(Deadline::after(kPatience)) : two.status();
    (void)context.core.synchronize();
  });
  return outcomes;
}

TEST(CrosswiseWaitsTest, OnOneStreamTheyEndAtOnceWithTheChain) {
  const auto outcomes = call_crosswise(std::chrono::hours(1), true);
  std::string all;
  for (const Outcome& outcome : outcomes) {
    EXPECT_FALSE(outcome.first.is_ok());
    EXPECT_FALSE(outcome.second.is_ok());
    all += outcome.first.message() + outcome.second.message();
  }
  EXPECT_NE(all.find("ranks wait crosswise"), std::string::npos) << all;
  const bool from_a =
      all.find("rank 0 waits here for rank 1, which waits in call #1 of group 'b' for rank 0") !=
      std::string::npos;
  const bool from_b =
      all.find("rank 1 waits here for rank 0, which waits in call #1 of group 'a' for rank 1") !=
      std::string::npos;
  EXPECT_TRUE(from_a || from_b) << all;
}

TEST(CrosswiseWaitsTest, OnTwoStreamsTheyAreNone) {
  for (const Outcome& outcome : call_crosswise(std::chrono::seconds(30), false)) {
    EXPECT_TRUE(outcome.first.is_ok()) << outcome.first.message();
    EXPECT_TRUE(outcome.second.is_ok()) << outcome.second.message();
  }
}

// The host waits between its calls, so that the second one is not queued: certain only at the timeout, which
// names it.
TEST(CrosswiseWaitsTest, WhereTheHostWaitsTheTimeoutNamesThem) {
  const RankThreads ranks(2);
  const TwoGroups groups(ranks, std::chrono::seconds(2));
  std::vector<Status> outcomes(2);
  ranks.run([&](RankContext& context) {
    const auto rank = static_cast<std::size_t>(context.rank);
    const DeviceBuffer buffer = context.buffer(std::size_t{64});
    outcomes[rank] = (rank == 0 ? *groups.a[rank] : *groups.b[rank]).run(request_of(buffer));
  });
  EXPECT_EQ(outcomes[0].code(), StatusCode::kTimeout);
  EXPECT_EQ(outcomes[1].code(), StatusCode::kTimeout);
  const std::string all = outcomes[0].message() + outcomes[1].message();
  EXPECT_TRUE(all.find("it waits in call #1 of group 'b' for rank 0") != std::string::npos ||
              all.find("it waits in call #1 of group 'a' for rank 1") != std::string::npos)
      << all;
}

}  // namespace
}  // namespace neuron
