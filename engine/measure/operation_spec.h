// OperationSpec: one operation at one size, and what its buffers hold before and after.
//
// The reference is plain arithmetic over the ranks' known inputs, independent of the engine's kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/collectives/collective.h"
#include "engine/measure/operation.h"
#include "engine/measure/value_pattern.h"

namespace neuron {

enum class InputValues : std::uint8_t {
  kRandom,  // of a seed; sums and products of them are exact in every dtype
  kOnes,
};

struct OperationSpec {
  Operation operation = Operation::kAllReduce;
  int ranks = 1;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;  // reductions only
  int root = 0;                  // rooted operations only
  std::size_t count = 0;         // elements of one part (part_count)
  InputValues values = InputValues::kRandom;
  std::uint64_t seed = 0;
};

// Elements of one rank's input and output; 0: the rank has none.
std::size_t input_count(const OperationSpec& spec, int rank);
std::size_t output_count(const OperationSpec& spec, int rank);
// Bytes of the larger of them: the "size" of tables.
std::size_t size_bytes(const OperationSpec& spec);

// A rank's input begins at the pattern's first element.
ValuePattern input_pattern(const OperationSpec& spec, int rank);

// A stretch of an output: `count` elements of the pattern from element `first`.
struct ExpectedPart {
  ValuePattern pattern;
  std::size_t first;
  std::size_t count;
};
// The whole output, stretch after stretch; empty where the rank has none.
std::vector<ExpectedPart> expected_output(const OperationSpec& spec, int rank);
// Elements of an output that are not what is expected.
std::uint64_t count_wrong(const std::vector<ExpectedPart>& expected, const std::byte* output);

}  // namespace neuron
