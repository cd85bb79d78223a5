#include "engine/measure/operation.h"

#include <gtest/gtest.h>

namespace neuron {
namespace {

TEST(OperationTest, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Operation::kAllReduce, 2), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::kAllReduce, 8), 1.75);
  for (const Operation operation : {Operation::kAllGather, Operation::kReduceScatter, Operation::kAllToAll,
                                    Operation::kGather, Operation::kScatter}) {
    EXPECT_DOUBLE_EQ(bus_factor(operation, 4), 0.75) << operation_name(operation);
    EXPECT_EQ(part_count(operation, 4), 4U) << operation_name(operation);
  }
  for (const Operation operation : {Operation::kBroadcast, Operation::kReduce, Operation::kSendReceive}) {
    EXPECT_DOUBLE_EQ(bus_factor(operation, 4), 1) << operation_name(operation);
    EXPECT_EQ(part_count(operation, 4), 1U) << operation_name(operation);
  }
  EXPECT_DOUBLE_EQ(bus_factor(Operation::kBarrier, 4), 0);
}

}  // namespace
}  // namespace neuron
