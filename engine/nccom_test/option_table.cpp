#include "engine/nccom_test/option_table.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "engine/base/env.h"
#include "engine/collectives/communicator.h"
#include "engine/measure/names.h"

namespace neuron::nccom_test {

namespace {

constexpr std::string_view kDefaultJson = "nccom-test.json";

template <typename... Parts>
Status invalid(const Parts&... parts) {
  return {StatusCode::kInvalidArgument, detail::concatenate(parts...)};
}

// Sets `out` to what `convert(value)` gives, a Result.
template <typename Out, typename Convert>
Status take(Out& out, ArgumentList& rest, std::string_view name, const Convert& convert) {
  const Result<std::string> value = rest.take_value(name);
  if (!value.is_ok()) return value.status();
  auto converted = convert(value.value());
  if (!converted.is_ok()) return invalid(name, " ", value.value(), ": ", converted.status().message());
  out = converted.value();
  return Status::ok();
}

template <typename Out>
Status take_integer(Out& out, ArgumentList& rest, std::string_view name, std::int64_t least,
                    std::int64_t most) {
  return take(out, rest, name, [&](const std::string& text) -> Result<Out> {
    const auto value = parse_integer(text);
    if (!value || *value < least || *value > most)
      return invalid("a whole number from ", least, " to ", most, " is needed");
    return static_cast<Out>(*value);
  });
}

template <typename Out>
Status take_bytes(Out& out, ArgumentList& rest, std::string_view name, std::size_t least) {
  return take(out, rest, name, [&](const std::string& text) -> Result<std::size_t> {
    const auto value = parse_bytes(text);
    if (!value || *value < least || *value > std::size_t{1} << 46)
      return invalid("a size from ", least, " to 64T is needed, such as 4096, 1K, 32MB or 1GiB");
    return *value;
  });
}

// Only a word that names a mode belongs to --check: the operation may follow it.
Status take_check(Options& options, ArgumentList& rest, std::string_view /*name*/) {
  options.check = InputValues::kRandom;
  if (rest.empty()) return Status::ok();
  const std::string& mode = rest.peek();
  if (mode == "all_ones") options.check = InputValues::kOnes;
  if (mode == "off") options.check.reset();
  if (mode == "all_ones" || mode == "off" || mode == "random") (void)rest.take();
  return Status::ok();
}

std::optional<Statistic> find_statistic(const std::string& name) {
  if (name == "avg") return Statistic{name, std::nullopt};
  if (!name.starts_with('p')) return std::nullopt;
  const auto percent = parse_integer(name.substr(1));
  if (!percent || *percent < 0 || *percent > 100) return std::nullopt;
  return Statistic{name, static_cast<double>(*percent)};
}

Status take_statistics(Options& options, ArgumentList& rest, std::string_view name) {
  options.statistics.clear();
  while (!rest.empty() && !is_option(rest.peek())) {
    const auto statistic = find_statistic(rest.peek());
    if (!statistic) {
      if (find_operation(rest.peek()).is_ok()) break;
      return invalid(name, " ", rest.peek(), ": avg or a percentile from p0 to p100 is needed");
    }
    options.statistics.push_back(*statistic);
    (void)rest.take();
  }
  if (!options.statistics.empty()) return Status::ok();
  for (const char* usual : {"avg", "p50", "p90", "p99", "p100"})
    options.statistics.push_back(*find_statistic(usual));
  return Status::ok();
}

// A word that follows is the file, unless it can only be the operation.
Status take_json(Options& options, ArgumentList& rest, std::string_view /*name*/) {
  options.json_path = kDefaultJson;
  if (!rest.empty() && !is_option(rest.peek()) && !find_operation(rest.peek()).is_ok())
    options.json_path = rest.take();
  return Status::ok();
}

Status take_nodes(Options& /*options*/, ArgumentList& rest, std::string_view name) {
  int nodes = 1;
  const Status status = take_integer(nodes, rest, name, 1, std::numeric_limits<int>::max());
  if (status.is_ok() && nodes != 1)
    return invalid(name, " ", nodes, ": only the cores of one machine are emulated; leave it out, or say 1");
  return status;
}

Status nothing(Options& /*options*/, ArgumentList& /*rest*/, std::string_view /*name*/) {
  return Status::ok();
}

constexpr int kMostIterations = 10'000'000;

constexpr std::array kTable{
    OptionEntry{"--nworkers", "-r", "N", "workers (ranks), each on a software core of its own; required",
                [](Options& options, ArgumentList& rest, std::string_view name) {
                  return take_integer(options.workers, rest, name, 1, Communicator::kMaxSize);
                }},
    OptionEntry{"--minbytes", "-b", "SIZE", "smallest size (32M)",
                [](Options& options, ArgumentList& rest, std::string_view name) {
                  return take_bytes(options.min_bytes, rest, name, 1);
                }},
    OptionEntry{"--maxbytes", "-e", "SIZE", "largest size (32M)",
                [](Options& options, ArgumentList& rest, std::string_view name) {
                  return take_bytes(options.max_bytes, rest, name, 1);
                }},
    OptionEntry{"--stepbytes", "-i", "SIZE", "added from size to size (a tenth of the range)",
                [](Options& options, ArgumentList& rest, std::string_view name) {
                  return take_bytes(options.step_bytes, rest, name, 1);
                }},
    OptionEntry{"--stepfactor", "-f", "N", "or: factor from size to size",
                [](Options& options, ArgumentList& rest, std::string_view name) {
                  return take_bytes(options.step_factor, rest, name, 2);
                }},
    OptionEntry{"--iters", "-n", "N", "timed calls (20)",
                [](Options& options, ArgumentList& rest, std::string_view name) {
                  return take_integer(options.iterations, rest, name, 1, kMostIterations);
                }},
    OptionEntry{"--warmup_iters", "-w", "N", "calls before them (5)",
                [](Options& options, ArgumentList& rest, std::string_view name) {
                  return take_integer(options.warmup, rest, name, 0, kMostIterations);
                }},
    OptionEntry{"--datatype", "-d", "NAME", "uint8 (default), int8, fp16, bf16, int32, fp32, …",
                [](Options& options, ArgumentList& rest, std::string_view name) {
                  return take(options.dtype, rest, name, find_dtype);
                }},
    OptionEntry{"--op", "-o", "NAME", "reduction: sum (default), prod, min, max, avg, band, bor, bxor",
                [](Options& options, ArgumentList& rest, std::string_view name) {
                  return take(options.op, rest, name, find_reduce_op);
                }},
    OptionEntry{"--root", "", "RANK", "of broadcast, reduce, gather, scatter (0)",
                [](Options& options, ArgumentList& rest, std::string_view name) {
                  return take_integer(options.root, rest, name, 0, Communicator::kMaxSize - 1);
                }},
    OptionEntry{"--check", "-c", "[MODE]",
                "compare results with a plain reference; on unless MODE is off. MODE: random (default) or\n"
                "all_ones values",
                take_check},
    OptionEntry{"--no-check", "", "", "the same as --check off",
                [](Options& options, ArgumentList& /*rest*/, std::string_view /*name*/) {
                  options.check.reset();
                  return Status::ok();
                }},
    OptionEntry{"--seed", "", "N", "of the random values (0)",
                [](Options& options, ArgumentList& rest, std::string_view name) {
                  return take_integer(options.seed, rest, name, 0, std::numeric_limits<std::int32_t>::max());
                }},
    OptionEntry{"--stats", "-t", "[NAME…]",
                "times to show: avg, p0 to p100; without names avg p50 p90 p99 p100", take_statistics},
    OptionEntry{"--report-to-json-file", "", "[FILE]",
                "write configuration and results there, too (nccom-test.json)", take_json},
    OptionEntry{"--show-input-output-size", "", "", "show the bytes of one rank's input and output",
                [](Options& options, ArgumentList& /*rest*/, std::string_view /*name*/) {
                  options.show_sizes = true;
                  return Status::ok();
                }},
    OptionEntry{"--threads", "", "", "ranks are threads of one process (default: processes)",
                [](Options& options, ArgumentList& /*rest*/, std::string_view /*name*/) {
                  options.threads = true;
                  return Status::ok();
                }},
    OptionEntry{"--timeout", "", "SECONDS", "for one call; then the run fails, and says who is missing (300)",
                [](Options& options, ArgumentList& rest, std::string_view name) {
                  std::int64_t seconds = 0;
                  const Status status = take_integer(seconds, rest, name, 1, 86'400);
                  options.timeout = std::chrono::seconds(seconds);
                  return status;
                }},
    OptionEntry{"--nnodes", "-N", "1", "accepted: there is one node", take_nodes},
    OptionEntry{"--non-interactive", "", "", "accepted: there is no progress display", nothing},
    OptionEntry{"--help", "-h", "", "this text",
                [](Options& options, ArgumentList& /*rest*/, std::string_view /*name*/) {
                  options.help = true;
                  return Status::ok();
                }},
};

constexpr std::string_view kOneMachine = "only the cores of one machine are emulated; leave it out";
constexpr std::string_view kNoPrograms = "no NEFF is made here; -n and -w say how many calls there are";
constexpr std::string_view kNoSbuf = "there is no SBUF here; leave it out";
constexpr std::string_view kWholeGroup = "an operation always runs over all workers here; leave it out";
constexpr std::string_view kOneAlgorithm = "the algorithms here are not the product's; leave it out";

constexpr std::array kForeign{
    ForeignOption{"--hosts", "-s", "only the cores of one machine are emulated; --stats is -t"},
    ForeignOption{"--hosts-file", "", kOneMachine},
    ForeignOption{"--mpi-log-dir", "", kOneMachine},
    ForeignOption{"--slurm-mode", "-S", kOneMachine},
    ForeignOption{"--slurm-vcpus-per-node", "-u", kOneMachine},
    ForeignOption{"--slurm-setup-script", "", kOneMachine},
    ForeignOption{"--slurm-job-id", "", kOneMachine},
    ForeignOption{"--slurm-use-head-node-neuron-bench", "", kOneMachine},
    ForeignOption{"--data-collector-port", "", kOneMachine},
    ForeignOption{"--data-collector-host", "", kOneMachine},
    ForeignOption{"--neff_iters", "-I", kNoPrograms},
    ForeignOption{"--neff_warmup_iters", "-W", kNoPrograms},
    ForeignOption{"--unique-buff", "", "every call uses the same buffers here; leave it out"},
    ForeignOption{"--shared-output-buff", "", "each rank has an output of its own here; leave it out"},
    ForeignOption{"--coalesced-cc-size-ratio", "", "calls are not coalesced here; leave it out"},
    ForeignOption{"--alltoallv-metadata", "", "uneven splits are not measured here; alltoall has even ones"},
    ForeignOption{"--sb2sb", "", kNoSbuf},
    ForeignOption{"--input-shape", "", kNoSbuf},
    ForeignOption{"--output-shape", "", kNoSbuf},
    ForeignOption{"--cc-dim", "", kNoSbuf},
    ForeignOption{"--data-parallel-dimension", "", kWholeGroup},
    ForeignOption{"--custom-replica-group", "", kWholeGroup},
    ForeignOption{"--custom-src-target-pairs", "",
                  "permute always sends to the next rank here; leave it out"},
    ForeignOption{"--show-algorithm", "", kOneAlgorithm},
    ForeignOption{"--vcpu-pin-mode", "", "ranks are not pinned here; use taskset, or leave it out"},
    ForeignOption{"--debug", "", "NEURON_RT_LOG_LEVEL=DEBUG shows the engine's log"},
};

}  // namespace

std::span<const OptionEntry> option_table() { return kTable; }
std::span<const ForeignOption> foreign_options() { return kForeign; }

}  // namespace neuron::nccom_test
