#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "engine/nccom_test/program.h"

int main(int argc, char** argv) {
  try {
    return neuron::nccom_test::run_program(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccom-test: %s\n", error.what());
    return 1;
  }
}
