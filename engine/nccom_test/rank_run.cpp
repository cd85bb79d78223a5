#include "engine/nccom_test/rank_run.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "engine/measure/prepared_operation.h"
#include "engine/measure/rank_failure.h"
#include "engine/measure/rank_member.h"
#include "engine/measure/timing.h"
#include "engine/nccom_test/report.h"
#include "engine/nccom_test/sizes.h"

namespace neuron::nccom_test {

namespace {

Row measure(const Options& options, const RankMember& member, Operation operation, std::size_t count) {
  OperationSpec spec;
  spec.operation = operation;
  spec.ranks = options.workers;
  spec.dtype = options.dtype;
  spec.op = options.op;
  spec.root = options.root;
  spec.count = count;
  spec.values = options.check.value_or(InputValues::kOnes);
  spec.seed = options.seed;
  PreparedOperation prepared(member, spec, false, Submission::kDirect);
  for (int i = 0; i < options.warmup; ++i) prepared.run();
  Row row{operation,
          size_bytes(spec),
          size_bytes(spec) / dtype_size(spec.dtype),
          input_count(spec, spec.root) * dtype_size(spec.dtype),
          output_count(spec, spec.root) * dtype_size(spec.dtype),
          SampleStatistics(time_each(member, options.iterations, [&] { prepared.run(); })),
          std::nullopt};
  if (options.check) {
    // A call of its own: what the timed ones have left behind could hide that nothing is written.
    prepared.fill();
    member.barrier();
    prepared.run();
    row.wrong = member.total(prepared.count_wrong());
  }
  member.barrier();
  return row;
}

}  // namespace

Status write_json(const Options& options, const std::string& text) {
  if (options.json_path.empty()) return Status::ok();
  std::FILE* file = std::fopen(options.json_path.c_str(), "we");
  bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr) written = std::fclose(file) == 0 && written;
  if (written) return Status::ok();
  return {StatusCode::kInvalidArgument,
          "--report-to-json-file " + options.json_path + ": cannot be written: " + std::strerror(errno)};
}

bool run_operations(const Options& options, int rank, Bootstrap& bootstrap) {
  const RankMember member({options.workers, options.timeout, {}}, rank, bootstrap);
  member.barrier();  // the first line is printed when all are here
  std::vector<Row> all;
  int wrong_rows = 0;
  for (const Operation operation : options.operations) {
    if (rank == 0) {
      if (options.operations.size() > 1) std::printf("# %s\n", operation_name(operation));
      std::printf("%s\n", table_header(options).c_str());
      (void)std::fflush(stdout);
    }
    std::vector<Row> rows;
    for (const std::size_t count : part_counts(options, operation)) {
      const Row row = measure(options, member, operation, count);
      if (row.wrong.value_or(0) != 0) ++wrong_rows;
      if (rank != 0) continue;
      std::printf("%s\n", table_line(options, row).c_str());
      (void)std::fflush(stdout);
      rows.push_back(row);
      all.push_back(row);
      or_fail(write_json(options, json_report(options, all)));
    }
    if (rank == 0) std::printf("%s\n", average_line(options, rows).c_str());
  }
  if (rank == 0 && wrong_rows != 0) std::printf("%d errors found - test failed\n", wrong_rows);
  return wrong_rows == 0;
}

}  // namespace neuron::nccom_test
