#include "engine/nccom_test/options.h"

#include <algorithm>
#include <string_view>

#include "engine/collectives/reduce/reduce.h"
#include "engine/measure/names.h"
#include "engine/nccom_test/argument_list.h"
#include "engine/nccom_test/option_table.h"

namespace neuron::nccom_test {

namespace {

template <typename... Parts>
Status invalid(const Parts&... parts) {
  return {StatusCode::kInvalidArgument, detail::concatenate(parts...)};
}

Status unknown_option(std::string_view word) {
  for (const ForeignOption& foreign : foreign_options()) {
    if (word == foreign.name || word == foreign.short_name)
      return invalid(word, " (", foreign.name, "): ", foreign.reason);
  }
  std::vector<std::string_view> known;
  for (const OptionEntry& entry : option_table()) {
    known.push_back(entry.name);
    if (!entry.short_name.empty()) known.push_back(entry.short_name);
  }
  return unknown_name(word, "option", known);
}

Status apply_option(Options& options, ArgumentList& rest) {
  const std::string word = rest.take();
  for (const OptionEntry& entry : option_table()) {
    if (word == entry.name || word == entry.short_name) return entry.apply(options, rest, word);
  }
  return unknown_option(word);
}

Status add_operation(Options& options, const std::string& word) {
  if (word == "alltoallv")
    return invalid("alltoallv: uneven splits are not measured here; alltoall has even ones");
  const Result<Operation> operation = find_operation(word);
  if (!operation.is_ok()) return operation.status();
  if (operation.value() == Operation::kBarrier)
    return invalid("barrier moves no bytes, so it has no row here; give another operation");
  options.operations.push_back(operation.value());
  return Status::ok();
}

// What no option can see alone.
Status check_together(const Options& options) {
  if (options.operations.empty()) return invalid("no operation is given; say for example: -r 2 allr");
  if (options.workers == 0) return invalid("the number of workers is missing; say for example: -r 2");
  if (options.min_bytes > options.max_bytes)
    return invalid("--minbytes ", options.min_bytes, " is above --maxbytes ", options.max_bytes);
  if (options.step_bytes && options.step_factor)
    return invalid("--stepbytes and --stepfactor exclude each other; give one");
  if (options.root >= options.workers)
    return invalid("--root ", options.root, ": with ", options.workers, " workers it is at most ",
                   options.workers - 1);
  const bool reduction = std::any_of(options.operations.begin(), options.operations.end(),
                                     [](Operation operation) { return reduces(operation); });
  if (reduction && find_reduce_kernel(options.dtype, options.op) == nullptr)
    return invalid("--op ", reduce_op_name(options.op), ": datatype ", short_dtype_name(options.dtype),
                   " has no such reduction; give another --op or --datatype");
  return Status::ok();
}

// One bound given beyond the other's default takes that along.
void complete_bounds(Options& options, std::size_t given_min, std::size_t given_max) {
  if (given_min == 0) options.min_bytes = std::min(options.min_bytes, options.max_bytes);
  if (given_max == 0) options.max_bytes = std::max(options.min_bytes, options.max_bytes);
}

}  // namespace

Result<Options> parse_options(std::span<const std::string> arguments) {
  Options options;
  // 0 cannot be given.
  const std::size_t usual_min = std::exchange(options.min_bytes, 0);
  const std::size_t usual_max = std::exchange(options.max_bytes, 0);
  ArgumentList rest(arguments);
  while (!rest.empty()) {
    const Status status =
        is_option(rest.peek()) ? apply_option(options, rest) : add_operation(options, rest.take());
    if (options.help) return options;
    if (!status.is_ok()) return status;
  }
  const std::size_t given_min = options.min_bytes;
  const std::size_t given_max = options.max_bytes;
  if (given_min == 0) options.min_bytes = usual_min;
  if (given_max == 0) options.max_bytes = usual_max;
  complete_bounds(options, given_min, given_max);
  const Status status = check_together(options);
  if (!status.is_ok()) return status;
  return options;
}

std::string help_text() {
  std::string text =
      "usage: neuron-emu nccom-test -r N [options] OPERATION…\n\n"
      "Times collectives between software NeuronCores (emulated): the figures are this machine's, not a\n"
      "Trainium's. Options and output are those of AWS's nccom-test, as far as they mean something here.\n\n"
      "operations:\n";
  for (const Operation operation : kAllOperations) {
    if (operation != Operation::kBarrier) text += "  " + operation_spellings(operation) + "\n";
  }
  text += "\noptions:\n";
  constexpr std::size_t kColumn = 34;
  for (const OptionEntry& entry : option_table()) {
    std::string line = "  ";
    if (!entry.short_name.empty()) line.append(entry.short_name).append(", ");
    line.append(entry.name);
    if (!entry.value.empty()) line.append(" ").append(entry.value);
    // "…" has three bytes and one column.
    const std::size_t width = line.size() - (entry.value.find("…") != std::string_view::npos ? 2 : 0);
    line.append(width < kColumn ? kColumn - width : 1, ' ');
    for (const char letter : entry.help) {
      line += letter;
      if (letter == '\n') line.append(kColumn, ' ');
    }
    text += line + "\n";
  }
  return text +
         "\nSizes take K, M, G, T (powers of 1024), also as KB or KiB. A size is that of the larger of one\n"
         "rank's input and output, and is rounded down to whole elements for each rank. algbw is size / avg\n"
         "time in GiB/s; busbw is algbw times 2(r-1)/r for all-reduce, (r-1)/r where each rank has a part, "
         "else "
         "1.\n"
         "A time is that of the slowest rank. Exit status: 0, 1 after a failure or a wrong result, 2 for "
         "bad\n"
         "options.\n";
}

}  // namespace neuron::nccom_test
