#include "engine/measure/names.h"

#include <gtest/gtest.h>

namespace neuron {
namespace {

TEST(NamesTest, BothSpellingsOfADType) {
  EXPECT_EQ(find_dtype("fp32").value(), DType::kFloat32);
  EXPECT_EQ(find_dtype("float32").value(), DType::kFloat32);
  EXPECT_EQ(find_dtype("bf16").value(), DType::kBFloat16);
  EXPECT_EQ(find_dtype("uint8").value(), DType::kUint8);
  EXPECT_EQ(short_dtype_name(DType::kBFloat16), "bf16");
  EXPECT_EQ(short_dtype_name(DType::kInt32), "int32");
}

TEST(NamesTest, OperationsByAllTheirNames) {
  for (const Operation operation : kAllOperations)
    EXPECT_EQ(find_operation(operation_name(operation)).value(), operation) << operation_name(operation);
  EXPECT_EQ(find_operation("allr").value(), Operation::kAllReduce);
  EXPECT_EQ(find_operation("redsct").value(), Operation::kReduceScatter);
  EXPECT_EQ(find_operation("permute").value(), Operation::kSendReceive);
  EXPECT_EQ(operation_spellings(Operation::kAllGather), "all_gather / allg");
}

TEST(NamesTest, AnErrorSaysWhatIsNearAndWhatIsAllowed) {
  const std::string message = find_dtype("fp3").status().message();
  EXPECT_NE(message.find("'fp3' is no datatype; did you mean fp32"), std::string::npos) << message;
  EXPECT_NE(message.find("Allowed: uint8, "), std::string::npos) << message;
  EXPECT_EQ(find_reduce_op("mean-ish").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace neuron
