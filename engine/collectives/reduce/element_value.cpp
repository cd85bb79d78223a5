#include "engine/collectives/reduce/element_value.h"

#include <cstring>

#include "engine/base/check.h"
#include "engine/collectives/reduce/low_precision.h"

namespace neuron {

namespace {
template <typename T>
T read(const std::byte* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return value;
}
}  // namespace

double read_element(DType dtype, const std::byte* element) {
  switch (dtype) {
    case DType::kFloat16:
    case DType::kComplex32:
      return static_cast<double>(fp16_to_float(read<std::uint16_t>(element)));
    case DType::kBFloat16:
      return static_cast<double>(bf16_to_float(read<std::uint16_t>(element)));
    case DType::kFloat32:
    case DType::kComplex64:
      return static_cast<double>(read<float>(element));
    case DType::kFloat64:
    case DType::kComplex128:
      return read<double>(element);
    case DType::kFloat8E4M3:
      return static_cast<double>(float8_to_float<E4M3Fn>(read<std::uint8_t>(element)));
    case DType::kFloat8E5M2:
      return static_cast<double>(float8_to_float<E5M2>(read<std::uint8_t>(element)));
    case DType::kFloat8E4M3Fnuz:
      return static_cast<double>(float8_to_float<E4M3Fnuz>(read<std::uint8_t>(element)));
    case DType::kFloat8E5M2Fnuz:
      return static_cast<double>(float8_to_float<E5M2Fnuz>(read<std::uint8_t>(element)));
    default:
      NEURON_CHECK(false, dtype_name(dtype), " is no floating type");
  }
}

}  // namespace neuron
