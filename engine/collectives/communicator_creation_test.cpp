// Communicator::create(): what it refuses, and how it ends when somebody does not come.
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "engine/collectives/communicator.h"
#include "engine/testing/device_fixtures.h"

namespace neuron {
namespace {

TEST(CommunicatorCreationTest, RejectsBadOptions) {
  const auto core = make_test_core();
  LocalBootstrap bootstrap;
  const auto code = [&](CommunicatorOptions options) {
    return Communicator::create(options, bootstrap).status().code();
  };
  EXPECT_EQ(code({.group_name = "g", .size = 0, .core = core.get()}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.group_name = "g", .size = Communicator::kMaxSize + 1, .core = core.get()}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.group_name = "g", .rank = 2, .size = 2, .core = core.get()}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.group_name = "g"}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.group_name = "g", .global_ranks = {1, 2}, .core = core.get()}),
            StatusCode::kInvalidArgument);
}

// The exchange of a member whose peer gave its address, and then took the exchange with it.
class ExchangeThatEnds final : public Bootstrap {
 public:
  Status set(std::string_view, std::string_view) override { return Status::ok(); }
  Result<std::string> get(std::string_view, Deadline) override { return std::string(32, 'x'); }
  Status hopeless() override { return Status(StatusCode::kInternal, "the exchange is gone"); }
};

TEST(CommunicatorCreationTest, EndsWhenTheExchangeDoes) {
  const auto core = make_test_core();
  ExchangeThatEnds bootstrap;
  const auto made = Communicator::create(
      {.group_name = "g", .size = 2, .timeout = std::chrono::hours(1), .core = core.get()}, bootstrap);
  EXPECT_EQ(made.status().message(), "the exchange is gone");
}

TEST(CommunicatorCreationTest, NamesTheRankThatDoesNotCome) {
  const auto core = make_test_core();
  LocalBootstrap bootstrap;
  const auto made = Communicator::create(
      {.group_name = "alone", .size = 3, .timeout = std::chrono::milliseconds(50), .core = core.get()},
      bootstrap);
  ASSERT_FALSE(made.is_ok());
  EXPECT_EQ(made.status().code(), StatusCode::kTimeout);
  EXPECT_NE(made.status().message().find("'alone' (rank 0 of 3): rank 1 did not come"), std::string::npos)
      << made.status().message();
}

TEST(CommunicatorCreationTest, OptionsThatDifferAreFoundAtCreation) {
  const auto first = make_test_core();
  const auto second = make_test_core();
  LocalBootstrap bootstrap;
  CommunicatorOptions options{.group_name = "g", .size = 2, .timeout = std::chrono::seconds(5)};
  std::thread other([&] {
    CommunicatorOptions own = options;
    own.core = second.get();
    const auto made = Communicator::create(own, bootstrap);
    EXPECT_TRUE(made.is_ok()) << made.status().message();
  });
  CommunicatorOptions own = options;
  own.rank = 1;
  own.core = first.get();
  own.tuning.segment_bytes *= 2;
  const auto made = Communicator::create(own, bootstrap);
  other.join();
  EXPECT_EQ(made.status().code(), StatusCode::kMismatch);
}

}  // namespace
}  // namespace neuron
