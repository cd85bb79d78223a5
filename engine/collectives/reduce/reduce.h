// Reduction kernels: out[i] = finish(in_0[i] op in_1[i] op … op in_{n-1}[i]), a function for each dtype and
// op.
//
// Order: input 0 to n-1, one after the other, for every element; so the bits depend neither on the
// instruction set nor on who computes which part. Accumulator: the type itself; fp32 for fp16, bf16 and fp8,
// rounded once, at the end. Integers wrap around. Min and max propagate NaN. AVG divides the sum by n
// (integers truncate toward zero). bool: sum, max and bor are "or"; product, min and band are "and"; bxor is
// parity. complex: sum, avg, product, premul_sum (by a real factor).
#pragma once

#include <cstddef>

#include "engine/base/dtype.h"
#include "engine/collectives/collective.h"
#include "engine/collectives/reduce/cpu_features.h"

namespace neuron {

// An output may be one of the inputs (the same address); other overlaps are not allowed. Pointers need no
// alignment.
struct ReduceCall {
  const std::byte* const* inputs = nullptr;
  std::size_t input_count = 0;          // at least 1
  std::byte* const* outputs = nullptr;  // all get the same result
  std::size_t output_count = 0;
  std::size_t count = 0;            // elements
  const double* factors = nullptr;  // one for each input; kPremulSum only
};

using ReduceKernel = void (*)(const ReduceCall& call);

// Null when the dtype does not have the op.
ReduceKernel find_reduce_kernel(DType dtype, ReduceOp op, SimdLevel level);
ReduceKernel find_reduce_kernel(DType dtype, ReduceOp op);  // of simd_level()

}  // namespace neuron
