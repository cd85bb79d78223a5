// DType: the element types that device memory may hold. The numbers are stable: they travel between
// processes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace neuron {

enum class DType : std::uint8_t {
  kUint8 = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kUint16 = 5,
  kUint32 = 6,
  kUint64 = 7,
  kFloat16 = 8,
  kBFloat16 = 9,
  kFloat32 = 10,
  kFloat64 = 11,
  kComplex32 = 12,
  kComplex64 = 13,
  kComplex128 = 14,
  kBool = 15,
  kFloat8E4M3 = 16,  // "fn": no infinity
  kFloat8E5M2 = 17,
  kFloat8E4M3Fnuz = 18,  // "fnuz": no infinity, no negative zero
  kFloat8E5M2Fnuz = 19,
  kFloat8E8M0 = 20,  // exponent only; moved, never reduced
};

std::size_t dtype_size(DType dtype);  // bytes of one element
const char* dtype_name(DType dtype);  // "float32", as PyTorch spells it

}  // namespace neuron
