#include "engine/nccom_test/report.h"

#include <cstdio>

#include "engine/measure/names.h"

namespace neuron::nccom_test {

namespace {

// A title and what stands below it, right-aligned under it.
struct Cell {
  std::string title;
  std::string text;
  std::size_t least_width;
};

std::string fixed(double value, int digits) {
  char text[64];
  (void)std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

double value_of(const Statistic& statistic, const SampleStatistics& times) {
  return statistic.percent ? times.percentile(*statistic.percent) : times.mean();
}

// `row` null: the titles alone.
std::vector<Cell> cells(const Options& options, const Row* row) {
  std::vector<Cell> all;
  const auto add = [&](std::string title, std::size_t width, const auto& text) {
    all.push_back({std::move(title), row != nullptr ? text(*row) : std::string(), width});
  };
  add("size(B)", 12, [](const Row& r) { return std::to_string(r.size); });
  add("count(elems)", 16, [](const Row& r) { return std::to_string(r.count); });
  if (options.show_sizes) {
    add("total_input_size(B)", 0, [](const Row& r) { return std::to_string(r.input_size); });
    add("total_output_size(B)", 0, [](const Row& r) { return std::to_string(r.output_size); });
  }
  add("type", 9, [&](const Row&) { return std::string(short_dtype_name(options.dtype)); });
  if (options.statistics.empty())
    add("time(us)", 12, [](const Row& r) { return fixed(r.times_us.mean(), 2); });
  for (const Statistic& statistic : options.statistics)
    add("time:" + statistic.name + "(us)", 0,
        [&](const Row& r) { return fixed(value_of(statistic, r.times_us), 2); });
  add("algbw(GB/s)", 0, [](const Row& r) { return fixed(algbw(r), 2); });
  add("busbw(GB/s)", 0, [&](const Row& r) { return fixed(busbw(r, options.workers), 2); });
  if (options.check) add("#wrong", 0, [](const Row& r) { return std::to_string(r.wrong.value_or(0)); });
  return all;
}

std::string join_cells(const std::vector<Cell>& all, std::string Cell::* text) {
  std::string line;
  for (const Cell& cell : all) {
    const std::size_t width = std::max(cell.title.size() + (line.empty() ? 0 : 4), cell.least_width);
    const std::string& shown = cell.*text;
    line.append(width > shown.size() ? width - shown.size() : 1, ' ').append(shown);
  }
  return line;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') out += '\\';
    out += letter;
  }
  return out + '"';
}

std::string json_number(double value) {
  char text[64];
  (void)std::snprintf(text, sizeof text, "%.10g", value);
  return text;
}

std::string json_config(const Options& options) {
  std::string operations;
  for (const Operation operation : options.operations)
    operations += (operations.empty() ? "" : ", ") + quoted(operation_name(operation));
  const char* check = !options.check ? "off" : *options.check == InputValues::kRandom ? "random" : "all_ones";
  std::string text = "{\"emulated\": true, \"operations\": [" + operations + "]";
  const auto add = [&text](std::string_view name, const std::string& value) {
    text += ", " + quoted(name) + ": " + value;
  };
  add("nworkers", std::to_string(options.workers));
  add("ranks", quoted(options.threads ? "threads" : "processes"));
  add("minbytes", std::to_string(options.min_bytes));
  add("maxbytes", std::to_string(options.max_bytes));
  if (options.step_bytes) add("stepbytes", std::to_string(*options.step_bytes));
  if (options.step_factor) add("stepfactor", std::to_string(*options.step_factor));
  add("iters", std::to_string(options.iterations));
  add("warmup_iters", std::to_string(options.warmup));
  add("datatype", quoted(short_dtype_name(options.dtype)));
  add("op", quoted(reduce_op_name(options.op)));
  add("root", std::to_string(options.root));
  add("check", quoted(check));
  add("seed", std::to_string(options.seed));
  return text + "}";
}

std::string json_row(const Options& options, const Row& row) {
  std::string text = "{\"operation\": " + quoted(operation_name(row.operation));
  const auto add = [&text](const std::string& name, const std::string& value) {
    text += ", " + quoted(name) + ": " + value;
  };
  add("size(B)", std::to_string(row.size));
  add("count(elems)", std::to_string(row.count));
  if (options.show_sizes) {
    add("total_input_size(B)", std::to_string(row.input_size));
    add("total_output_size(B)", std::to_string(row.output_size));
  }
  add("type", quoted(short_dtype_name(options.dtype)));
  add("algbw(GB/s)", json_number(algbw(row)));
  add("busbw(GB/s)", json_number(busbw(row, options.workers)));
  add("time:avg(us)", json_number(row.times_us.mean()));
  for (const Statistic& statistic : options.statistics) {
    if (statistic.percent)
      add("time:" + statistic.name + "(us)", json_number(value_of(statistic, row.times_us)));
  }
  if (row.wrong) add("wrong(elems)", std::to_string(*row.wrong));
  return text + "}";
}

}  // namespace

double algbw(const Row& row) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  return static_cast<double>(row.size) / kGiB / (row.times_us.mean() / 1e6);
}

double busbw(const Row& row, int workers) { return algbw(row) * bus_factor(row.operation, workers); }

std::string table_header(const Options& options) { return join_cells(cells(options, nullptr), &Cell::title); }

std::string table_line(const Options& options, const Row& row) {
  return join_cells(cells(options, &row), &Cell::text);
}

std::string average_line(const Options& options, const std::vector<Row>& rows) {
  double sum = 0;
  for (const Row& row : rows) sum += busbw(row, options.workers);
  return "Avg bus bandwidth:\t" + fixed(rows.empty() ? 0 : sum / static_cast<double>(rows.size()), 4) +
         "GB/s";
}

std::string json_report(const Options& options, const std::vector<Row>& rows) {
  std::string text = "{\"config\": " + json_config(options) + ",\n \"results\": [";
  for (std::size_t i = 0; i < rows.size(); ++i)
    text += (i == 0 ? "\n  " : ",\n  ") + json_row(options, rows[i]);
  return text + "]}\n";
}

}  // namespace neuron::nccom_test
