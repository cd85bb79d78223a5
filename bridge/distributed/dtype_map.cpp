#include "bridge/distributed/dtype_map.h"

#include <c10/util/Exception.h>

namespace neuron::bridge {

std::optional<DType> engine_dtype(c10::ScalarType type) {
  using c10::ScalarType;
  // The types that are not listed are named by no engine type; the default of the switch is what they get.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wswitch-enum"
  switch (type) {
    case ScalarType::Byte:
      return DType::kUint8;
    case ScalarType::Char:
      return DType::kInt8;
    case ScalarType::Short:
      return DType::kInt16;
    case ScalarType::Int:
      return DType::kInt32;
    case ScalarType::Long:
      return DType::kInt64;
    case ScalarType::UInt16:
      return DType::kUint16;
    case ScalarType::UInt32:
      return DType::kUint32;
    case ScalarType::UInt64:
      return DType::kUint64;
    case ScalarType::Half:
      return DType::kFloat16;
    case ScalarType::BFloat16:
      return DType::kBFloat16;
    case ScalarType::Float:
      return DType::kFloat32;
    case ScalarType::Double:
      return DType::kFloat64;
    case ScalarType::ComplexHalf:
      return DType::kComplex32;
    case ScalarType::ComplexFloat:
      return DType::kComplex64;
    case ScalarType::ComplexDouble:
      return DType::kComplex128;
    case ScalarType::Bool:
      return DType::kBool;
    case ScalarType::Float8_e4m3fn:
      return DType::kFloat8E4M3;
    case ScalarType::Float8_e5m2:
      return DType::kFloat8E5M2;
    case ScalarType::Float8_e4m3fnuz:
      return DType::kFloat8E4M3Fnuz;
    case ScalarType::Float8_e5m2fnuz:
      return DType::kFloat8E5M2Fnuz;
    case ScalarType::Float8_e8m0fnu:
      return DType::kFloat8E8M0;
    default:
      return std::nullopt;
  }
#pragma GCC diagnostic pop
}

DType movable_dtype(c10::ScalarType type) {
  if (auto known = engine_dtype(type)) return *known;
  switch (c10::elementSize(type)) {
    case 1:
      return DType::kUint8;
    case 2:
      return DType::kUint16;
    case 4:
      return DType::kUint32;
    case 8:
      return DType::kUint64;
    default:
      C10_THROW_ERROR(TypeError, c10::str("neuron: tensors of type ", type, " cannot be sent"));
  }
}

}  // namespace neuron::bridge
