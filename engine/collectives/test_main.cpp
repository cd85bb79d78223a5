#include <gtest/gtest.h>

#include "engine/testing/rank_processes.h"

// Rank processes run this program again: see rank_processes.h.
int main(int argc, char** argv) {
  if (const std::optional<int> code = neuron::run_rank_program()) return *code;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
