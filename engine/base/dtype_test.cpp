#include "engine/base/dtype.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "engine/base/check.h"

namespace neuron {
namespace {

TEST(DTypeTest, SizesAndNames) {
  EXPECT_EQ(dtype_size(DType::kUint8), 1U);
  EXPECT_EQ(dtype_size(DType::kUint16), 2U);
  EXPECT_EQ(dtype_size(DType::kBFloat16), 2U);
  EXPECT_EQ(dtype_size(DType::kFloat32), 4U);
  EXPECT_EQ(dtype_size(DType::kComplex32), 4U);
  EXPECT_EQ(dtype_size(DType::kComplex128), 16U);
  EXPECT_EQ(dtype_size(DType::kFloat8E8M0), 1U);
  EXPECT_STREQ(dtype_name(DType::kUint64), "uint64");
  EXPECT_STREQ(dtype_name(DType::kBool), "bool");
  EXPECT_STREQ(dtype_name(DType::kFloat8E4M3), "float8_e4m3fn");
  EXPECT_STREQ(dtype_name(DType::kFloat8E5M2Fnuz), "float8_e5m2fnuz");
}

TEST(DTypeTest, NamesDiffer) {
  std::set<std::string> names;
  for (int number = 0; number <= static_cast<int>(DType::kFloat8E8M0); ++number) {
    EXPECT_TRUE(names.insert(dtype_name(static_cast<DType>(number))).second) << number;
  }
}

TEST(DTypeTest, UnknownNumberIsRefused) { EXPECT_THROW(dtype_size(static_cast<DType>(200)), CheckFailure); }

}  // namespace
}  // namespace neuron
