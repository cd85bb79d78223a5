// Names: dtypes, reductions and operations as command lines spell them.
//
// Errors are kInvalidArgument: what was given, what it may have been meant to be, what is allowed.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/base/dtype.h"
#include "engine/base/result.h"
#include "engine/collectives/collective.h"
#include "engine/measure/operation.h"

namespace neuron {

// "float32" or "fp32".
Result<DType> find_dtype(std::string_view name);
// "fp32", "bf16", …; where there is no short name PyTorch's, "int8".
std::string_view short_dtype_name(DType dtype);

// "sum", "prod", "product", "min", "max", "avg", "band", "bor", "bxor".
Result<ReduceOp> find_reduce_op(std::string_view name);

// "all_reduce" or "allr"; each operation has at least these two, "barrier" apart.
Result<Operation> find_operation(std::string_view name);
// "all_reduce / allr"
std::string operation_spellings(Operation operation);

// "'fp3' is no datatype; did you mean fp32, fp16? Allowed: …"
Status unknown_name(std::string_view given, std::string_view what, std::span<const std::string_view> known);

}  // namespace neuron
