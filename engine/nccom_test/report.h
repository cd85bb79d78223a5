// Report: the rows of a run as the table and the JSON of AWS's tool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/measure/sample_statistics.h"
#include "engine/nccom_test/options.h"

namespace neuron::nccom_test {

// One operation at one size.
struct Row {
  Operation operation;
  std::size_t size;                     // bytes of the larger of one rank's input and output
  std::size_t count;                    // elements of them
  std::size_t input_size, output_size;  // bytes of the root's, or of any rank's where all are alike
  SampleStatistics times_us;
  std::optional<std::uint64_t> wrong;  // elements on all ranks; nothing: not checked
};

// GiB/s, as AWS's tool counts under the name of GB/s.
double algbw(const Row& row);
double busbw(const Row& row, int workers);

// Lines without their end.
std::string table_header(const Options& options);
std::string table_line(const Options& options, const Row& row);

// The last line of an operation's table.
std::string average_line(const Options& options, const std::vector<Row>& rows);

std::string json_report(const Options& options, const std::vector<Row>& rows);

}  // namespace neuron::nccom_test
