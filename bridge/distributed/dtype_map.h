// dtype_map: torch's element types in the engine's words.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "engine/base/dtype.h"

namespace neuron::bridge {

// Nothing for types that the engine has no arithmetic for.
std::optional<DType> engine_dtype(c10::ScalarType type);

// The type under which a collective that only moves data carries `type`: itself, or an unsigned integer of
// the same width. Raises TypeError when no engine type has that width.
DType movable_dtype(c10::ScalarType type);

}  // namespace neuron::bridge
