// SimdLevel: which instruction set the reduction kernels use. Chosen once per process.
#pragma once

#include <vector>

#include "engine/base/env.h"
#include "engine/base/result.h"

namespace neuron {

enum class SimdLevel { kScalar, kAvx2, kAvx512 };

const char* simd_level_name(SimdLevel level);  // "scalar", "avx2", "avx512"

// What this machine and this build can run, from kScalar upwards.
std::vector<SimdLevel> available_simd_levels();

// kInvalidArgument: this machine has not what was chosen.
Result<SimdLevel> choose_simd_level(SimdChoice choice);

// choose_simd_level() of NEURON_EMU_SIMD, once. Communicators are not created while it is an error.
const Result<SimdLevel>& simd_level();

}  // namespace neuron
