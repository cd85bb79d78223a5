// Exact values: inputs whose reductions are exact in every dtype, and what plain arithmetic makes of them.
//
// The values are small integers, so sums and products of up to 128 ranks have no rounding in the accumulator,
// and results can be compared bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/collectives/collective.h"

namespace neuron {

// All dtypes, and all reduce ops but kNone.
const std::vector<DType>& all_dtypes();
const std::vector<ReduceOp>& all_reduce_ops();

// `count` elements for `op`, the same for the same seed.
std::vector<std::byte> exact_values(DType dtype, ReduceOp op, std::size_t count, std::uint64_t seed);
// `count` elements of any bits.
std::vector<std::byte> any_bytes(DType dtype, std::size_t count, std::uint64_t seed);

// `count` elements that are 1; of a complex type in both parts.
std::vector<std::byte> one_values(DType dtype, std::size_t count);

// The reduction of inputs of equal length, element by element in 64 bits, independent of the kernels.
// `factors`: one for each input, kPremulSum only. Requires: a combination that validate() takes.
std::vector<std::byte> plain_reduce(DType dtype, ReduceOp op,
                                    const std::vector<std::vector<std::byte>>& inputs,
                                    const std::vector<double>& factors = {});

// Elements that differ; any two NaN of a floating type are the same.
std::size_t count_differences(DType dtype, const std::vector<std::byte>& a, const std::vector<std::byte>& b);

}  // namespace neuron
