// Options: what nccom-test is asked to do. Names and defaults are those of AWS's tool, apart from `check`.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/result.h"
#include "engine/collectives/collective.h"
#include "engine/measure/operation.h"
#include "engine/measure/operation_spec.h"

namespace neuron::nccom_test {

// A time that is shown for each size.
struct Statistic {
  std::string name;               // "avg", "p50"
  std::optional<double> percent;  // nothing: the mean
};

struct Options {
  bool help = false;
  std::vector<Operation> operations;
  int workers = 0;
  std::size_t min_bytes = std::size_t{32} << 20, max_bytes = std::size_t{32} << 20;
  std::optional<std::size_t> step_bytes;   // added from size to size; nothing: a tenth of the range
  std::optional<std::size_t> step_factor;  // or multiplied by
  int iterations = 20, warmup = 5;
  DType dtype = DType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  std::optional<InputValues> check = InputValues::kRandom;  // nothing: results are not looked at
  std::uint64_t seed = 0;
  bool threads = false;
  std::vector<Statistic> statistics;  // empty: one column, the mean
  std::string json_path;              // empty: none
  bool show_sizes = false;            // each rank's input and output
  std::chrono::seconds timeout{300};  // of one call
};

// `arguments` without the program's name. kInvalidArgument says what was given, what is allowed, what to do.
// After --help nothing else is looked at.
Result<Options> parse_options(std::span<const std::string> arguments);

std::string help_text();

}  // namespace neuron::nccom_test
