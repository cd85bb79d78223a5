// SampleStatistics: mean and percentiles of measured times, in the samples' own unit.
#pragma once

#include <vector>

namespace neuron {

class SampleStatistics {
 public:
  // Requires: at least one sample.
  explicit SampleStatistics(std::vector<double> samples);

  double mean() const { return mean_; }
  // The sample at or next to that percentile (nearest rank): 0 is the smallest, 100 the largest.
  // Requires: 0 <= percent <= 100.
  double percentile(double percent) const;

 private:
  std::vector<double> sorted_;
  double mean_;
};

}  // namespace neuron
