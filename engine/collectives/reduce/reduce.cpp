#include "engine/collectives/reduce/reduce.h"

#include "engine/collectives/reduce/kernel_tables.h"

namespace neuron {

ReduceKernel find_reduce_kernel(DType dtype, ReduceOp op, SimdLevel level) {
  if (op == ReduceOp::kProduct) {
    if (const ReduceKernel kernel = complex_product_kernel(dtype)) return kernel;
  }
  switch (level) {
#if defined(__x86_64__)
    case SimdLevel::kAvx512:
      return avx512_kernel(dtype, op);
    case SimdLevel::kAvx2:
      return avx2_kernel(dtype, op);
#endif
    default:
      return scalar_kernel(dtype, op);
  }
}

ReduceKernel find_reduce_kernel(DType dtype, ReduceOp op) {
  static const SimdLevel level = simd_level().is_ok() ? simd_level().value() : SimdLevel::kScalar;
  return find_reduce_kernel(dtype, op, level);
}

}  // namespace neuron
