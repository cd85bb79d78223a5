#include "engine/measure/sample_statistics.h"

#include <gtest/gtest.h>

#include "engine/base/check.h"

namespace neuron {
namespace {

TEST(SampleStatisticsTest, MeanAndNearestRank) {
  const SampleStatistics statistics({4, 1, 3, 2, 10});
  EXPECT_DOUBLE_EQ(statistics.mean(), 4);
  EXPECT_DOUBLE_EQ(statistics.percentile(0), 1);
  EXPECT_DOUBLE_EQ(statistics.percentile(50), 3);
  EXPECT_DOUBLE_EQ(statistics.percentile(75), 4);
  EXPECT_DOUBLE_EQ(statistics.percentile(99), 10);
  EXPECT_DOUBLE_EQ(statistics.percentile(100), 10);
}

TEST(SampleStatisticsTest, OneSampleIsEveryPercentile) {
  const SampleStatistics statistics({7});
  for (const double percent : {0.0, 50.0, 100.0}) EXPECT_DOUBLE_EQ(statistics.percentile(percent), 7);
}

TEST(SampleStatisticsTest, RefusesWhatHasNoAnswer) {
  EXPECT_THROW(SampleStatistics({}), CheckFailure);
  EXPECT_THROW((void)SampleStatistics({1}).percentile(101), CheckFailure);
}

}  // namespace
}  // namespace neuron
