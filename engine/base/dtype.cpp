#include "engine/base/dtype.h"

#include <array>

#include "engine/base/check.h"

namespace neuron {

namespace {

struct Entry {
  std::size_t size;
  const char* name;
};

// In the order of DType's numbers.
constexpr std::array<Entry, 21> kEntries{{
    {1, "uint8"},          {1, "int8"},        {2, "int16"},           {4, "int32"},
    {8, "int64"},          {2, "uint16"},      {4, "uint32"},          {8, "uint64"},
    {2, "float16"},        {2, "bfloat16"},    {4, "float32"},         {8, "float64"},
    {4, "complex32"},      {8, "complex64"},   {16, "complex128"},     {1, "bool"},
    {1, "float8_e4m3fn"},  {1, "float8_e5m2"}, {1, "float8_e4m3fnuz"}, {1, "float8_e5m2fnuz"},
    {1, "float8_e8m0fnu"},
}};
static_assert(static_cast<std::size_t>(DType::kFloat8E8M0) + 1 == kEntries.size());

const Entry& entry(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  NEURON_CHECK(index < kEntries.size(), "no dtype has the number ", index);
  return kEntries[index];
}

}  // namespace

std::size_t dtype_size(DType dtype) { return entry(dtype).size; }
const char* dtype_name(DType dtype) { return entry(dtype).name; }

}  // namespace neuron
