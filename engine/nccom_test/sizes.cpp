#include "engine/nccom_test/sizes.h"

#include <algorithm>

namespace neuron::nccom_test {

std::vector<std::size_t> part_counts(const Options& options, Operation operation) {
  const std::size_t unit = part_count(operation, options.workers) * dtype_size(options.dtype);
  const std::size_t step =
      std::max<std::size_t>(options.step_bytes.value_or((options.max_bytes - options.min_bytes) / 10), 1);
  std::vector<std::size_t> counts;
  for (std::size_t size = options.min_bytes; size <= options.max_bytes;) {
    const std::size_t count = std::max<std::size_t>(size / unit, 1);
    if (counts.empty() || counts.back() != count) counts.push_back(count);
    // A product may not fit in 64 bits.
    if (options.step_factor && size > options.max_bytes / *options.step_factor) break;
    size = options.step_factor ? size * *options.step_factor : size + step;
  }
  return counts;
}

}  // namespace neuron::nccom_test
