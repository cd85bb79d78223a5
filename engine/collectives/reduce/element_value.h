// The value of one element of a floating type.
#pragma once

#include <cstddef>

#include "engine/base/dtype.h"

namespace neuron {

// Of a complex type the real part. Requires: a floating or complex dtype that has reductions.
double read_element(DType dtype, const std::byte* element);

}  // namespace neuron
