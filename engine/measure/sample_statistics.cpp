#include "engine/measure/sample_statistics.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/base/check.h"

namespace neuron {

SampleStatistics::SampleStatistics(std::vector<double> samples) : sorted_(std::move(samples)) {
  NEURON_CHECK(!sorted_.empty(), "statistics of no samples");
  std::sort(sorted_.begin(), sorted_.end());
  mean_ = std::accumulate(sorted_.begin(), sorted_.end(), 0.0) / static_cast<double>(sorted_.size());
}

double SampleStatistics::percentile(double percent) const {
  NEURON_CHECK(percent >= 0 && percent <= 100, "no percentile ", percent);
  return sorted_[static_cast<std::size_t>(percent / 100 * static_cast<double>(sorted_.size() - 1) + 0.5)];
}

}  // namespace neuron
