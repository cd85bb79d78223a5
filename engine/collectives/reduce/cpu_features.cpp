#include "engine/collectives/reduce/cpu_features.h"

#include <string>

namespace neuron {

const char* simd_level_name(SimdLevel level) {
  switch (level) {
    case SimdLevel::kScalar:
      return "scalar";
    case SimdLevel::kAvx2:
      return "avx2";
    case SimdLevel::kAvx512:
      return "avx512";
  }
  return "unknown";
}

std::vector<SimdLevel> available_simd_levels() {
  std::vector<SimdLevel> levels{SimdLevel::kScalar};
#if defined(__x86_64__)
  // The compiler's run-time test also asks the system whether it saves the wide registers.
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
    levels.push_back(SimdLevel::kAvx2);
  if (levels.back() == SimdLevel::kAvx2 && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    levels.push_back(SimdLevel::kAvx512);
#endif
  return levels;
}

Result<SimdLevel> choose_simd_level(SimdChoice choice) {
  const std::vector<SimdLevel> levels = available_simd_levels();
  SimdLevel wanted = levels.back();
  if (choice == SimdChoice::kScalar) wanted = SimdLevel::kScalar;
  if (choice == SimdChoice::kAvx2) wanted = SimdLevel::kAvx2;
  if (choice == SimdChoice::kAvx512) wanted = SimdLevel::kAvx512;
  if (wanted <= levels.back()) return wanted;
  return Status(StatusCode::kInvalidArgument, std::string("NEURON_EMU_SIMD=") + simd_level_name(wanted) +
                                                  ": the best that this machine has is " +
                                                  simd_level_name(levels.back()));
}

const Result<SimdLevel>& simd_level() {
  static const Result<SimdLevel> level = choose_simd_level(env().simd);
  return level;
}

}  // namespace neuron
