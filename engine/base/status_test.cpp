#include "engine/base/status.h"

#include <gtest/gtest.h>

#include "engine/base/check.h"
#include "engine/base/result.h"

namespace neuron {
namespace {

TEST(StatusTest, OkHasNoMessage) {
  const Status status;
  EXPECT_TRUE(status.is_ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.message(), "");
}

TEST(StatusTest, FailureCarriesCodeAndMessageThroughCopies) {
  const Status status(StatusCode::kTimeout, "rank 3 did not come");
  const Status copy = status;  // NOLINT(performance-unnecessary-copy-initialization): copying is the subject
  EXPECT_FALSE(copy.is_ok());
  EXPECT_EQ(copy.code(), StatusCode::kTimeout);
  EXPECT_EQ(copy.message(), "rank 3 did not come");
  EXPECT_STREQ(status_code_name(copy.code()), "timeout");
}

TEST(StatusTest, OkWithAMessageIsABug) { EXPECT_THROW((void)Status(StatusCode::kOk, "fine"), CheckFailure); }

TEST(ResultTest, HoldsAValueOrTheReason) {
  Result<std::string> good = std::string("value");
  ASSERT_TRUE(good.is_ok());
  EXPECT_EQ(std::move(good).value(), "value");

  const Result<std::string> bad = Status(StatusCode::kUnavailable, "not here");
  EXPECT_FALSE(bad.is_ok());
  EXPECT_EQ(bad.status().code(), StatusCode::kUnavailable);
  EXPECT_THROW((void)bad.value(), CheckFailure);
}

TEST(CheckTest, FailureNamesConditionValuesAndPlace) {
  try {
    NEURON_CHECK(1 + 1 == 3, "sum ", 2);
    FAIL();
  } catch (const CheckFailure& failure) {
    const std::string text = failure.what();
    EXPECT_NE(text.find("1 + 1 == 3"), std::string::npos);
    EXPECT_NE(text.find("sum 2"), std::string::npos);
    EXPECT_NE(text.find("status_test.cpp:"), std::string::npos);
  }
}

}  // namespace
}  // namespace neuron
