// Benchmark of the engine's collectives, without Python and torch.
//
//   collectives_bench [options]
//     --op NAME      all_reduce (default), all_gather, reduce_scatter, all_to_all, broadcast, reduce,
//                    gather, scatter, send_receive, barrier, or all
//     -b, -e BYTES   smallest and largest size (8, 64M); -f FACTOR between sizes (4)
//     -d NAME        dtype: float32 (default), bfloat16, float16, float64, int64, int32, uint8
//     -r RANKS       number of ranks (2)
//     -n, -w COUNT   timed batches (15) and warm-up batches (2); a batch is one call, or many small ones
//     --processes    ranks as processes (default: threads)
//     --pin          rank r stays on processor r
//     --stream       submit to a stream and wait (default: run on the caller's thread)
//     --bare         also time a plain loop over the same bytes, in alternation (threads only)
//     --mpi          under mpirun: its processes are the ranks, and MPI is timed, too, in alternation
//     --inline BYTES, --segment BYTES   tuning
//     --json FILE    write the rows there too
//
// A row: size of the larger of one rank's input and output, elements, dtype, then the time of the slowest
// rank: best, median and 99th percentile over the batches, in microseconds; algbw and busbw of the median in
// GB/s; wrong elements; with a peer (--bare or --mpi) its median, and the median over the pairs of batches of
// its time divided by ours (above 1: we are faster).
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/bare_loops.h"
#include "bench/mpi_peer.h"
#include "engine/base/env.h"
#include "engine/measure/names.h"
#include "engine/measure/prepared_operation.h"
#include "engine/measure/rank_failure.h"
#include "engine/measure/rank_member.h"
#include "engine/measure/run_ranks.h"
#include "engine/measure/sample_statistics.h"
#include "engine/measure/timing.h"

namespace neuron {
namespace {

struct Options {
  std::vector<Operation> operations{Operation::kAllReduce};
  std::size_t smallest = 8, largest = std::size_t{64} << 20, factor = 4;
  DType dtype = DType::kFloat32;
  int ranks = 2;
  int batches = 15, warmup = 2;
  bool processes = false, stream = false, bare = false, mpi = false, pin = false;
  std::string json;
  CommunicatorTuning tuning;
};

[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "collectives_bench: %s\n", why.c_str());
  std::_Exit(2);
}

std::size_t parse_size(const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes) stop("not a size: " + text);
  return *bytes;
}

int parse_count(const std::string& text) {
  const auto count = parse_integer(text);
  if (!count || *count < 0 || *count > 1'000'000) stop("not a count: " + text);
  return static_cast<int>(*count);
}

template <typename T>
T named(const Result<T>& found) {
  if (!found.is_ok()) stop(found.status().message());
  return found.value();
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&] {
      return ++i < argc ? std::string(argv[i]) : (stop(name + " needs a value"), std::string());
    };
    if (name == "--op") {
      const std::string which = value();
      options.operations.assign(kAllOperations.begin(), kAllOperations.end());
      if (which != "all") options.operations = {named(find_operation(which))};
    } else if (name == "-b")
      options.smallest = std::max<std::size_t>(parse_size(value()), 1);
    else if (name == "-e")
      options.largest = parse_size(value());
    else if (name == "-f")
      options.factor = std::max<std::size_t>(parse_size(value()), 2);
    else if (name == "-d")
      options.dtype = named(find_dtype(value()));
    else if (name == "-r")
      options.ranks = std::max(parse_count(value()), 1);
    else if (name == "-n")
      options.batches = std::max(parse_count(value()), 1);
    else if (name == "-w")
      options.warmup = parse_count(value());
    else if (name == "--processes")
      options.processes = true;
    else if (name == "--stream")
      options.stream = true;
    else if (name == "--bare")
      options.bare = true;
    else if (name == "--mpi")
      options.mpi = true;
    else if (name == "--inline")
      options.tuning.inline_bytes = parse_size(value());
    else if (name == "--segment")
      options.tuning.segment_bytes = parse_size(value());
    else if (name == "--pin")
      options.pin = true;
    else if (name == "--json")
      options.json = value();
    else
      stop("unknown option " + name +
           "; the options are described at the top of bench/collectives_bench.cpp");
  }
  if (options.bare && (options.processes || options.mpi)) stop("--bare works with threads only");
  return options;
}

// Where thread ranks find each other's buffers, for the bare loops.
std::vector<std::byte*> shared_inputs, shared_outputs;

struct Row {
  Operation operation;
  std::size_t bytes, count;
  std::vector<double> ours, peer;  // peer: empty without one
  std::uint64_t wrong;
};

// Calls of a batch: enough for the clock.
int calls_for(std::size_t bytes) {
  if (bytes > std::size_t{256} << 10) return 1;
  return bytes <= 16384 ? 200 : 20;
}

// What is timed beside ours; empty: nothing.
using PeerRun = std::function<void()>;

PeerRun bare_loop(const OperationSpec& spec, std::size_t rank) {
  const std::optional<CollectiveKind> kind = collective_of(spec.operation);
  if (!kind) return {};  // send_receive
  return [=] { run_bare_loop(*kind, spec.dtype, rank, shared_inputs, shared_outputs, spec.count); };
}

PeerRun mpi_run(const RankMember& member, const OperationSpec& spec) {
  const auto operation = std::make_shared<MpiOperation>(spec, member.rank(), works_in_place(spec.operation));
  operation->run();
  if (operation->count_wrong() != 0)
    stop(std::string("MPI's result is wrong: ") + operation_name(spec.operation));
  operation->clear_input();
  return [operation] { operation->run(); };
}

Row measure(const Options& options, const RankMember& member, Operation operation, std::size_t size) {
  OperationSpec spec;
  spec.operation = operation;
  spec.ranks = options.ranks;
  spec.dtype = options.dtype;
  spec.count = size / part_count(operation, options.ranks) / dtype_size(options.dtype);
  if (operation == Operation::kBarrier) spec.count = 0;
  PreparedOperation prepared(member, spec, works_in_place(operation),
                             options.stream ? Submission::kStream : Submission::kDirect);
  const auto rank = static_cast<std::size_t>(member.rank());
  shared_inputs[rank] = prepared.input();
  shared_outputs[rank] = prepared.output();
  member.barrier();
  prepared.run();
  const std::uint64_t wrong = member.total(prepared.count_wrong());
  prepared.clear_input();
  PeerRun peer;
  if (options.bare) peer = bare_loop(spec, rank);
  if (options.mpi) peer = mpi_run(member, spec);
  Row row{operation, size, spec.count, {}, {}, wrong};
  for (int batch = -options.warmup; batch < options.batches; ++batch) {
    const double time = time_batch(member, calls_for(size), [&] { prepared.run(); });
    const double peer_time = peer ? time_batch(member, calls_for(size), peer) : 0;
    if (batch < 0) continue;
    row.ours.push_back(time);
    if (peer) row.peer.push_back(peer_time);
  }
  member.barrier();
  return row;
}

double median_ratio(const Row& row) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < row.peer.size(); ++i) ratios.push_back(row.peer[i] / row.ours[i]);
  return SampleStatistics(ratios).percentile(50);
}

void print_row(const Options& options, const Row& row, std::FILE* json) {
  const SampleStatistics ours(row.ours);
  const double best = ours.percentile(0), median = ours.percentile(50), p99 = ours.percentile(99);
  const double algbw = static_cast<double>(row.bytes) / median / 1000;
  const double busbw = algbw * bus_factor(row.operation, options.ranks);
  const double peer = row.peer.empty() ? 0 : SampleStatistics(row.peer).percentile(50);
  const double ratio = row.peer.empty() ? 0 : median_ratio(row);
  std::printf("%12zu %12zu %9s %10.2f %10.2f %10.2f %8.2f %8.2f %6zu", row.bytes, row.count,
              dtype_name(options.dtype), best, median, p99, algbw, busbw, row.wrong);
  if (!row.peer.empty()) std::printf(" %10.2f %6.2f", peer, ratio);
  std::printf("\n");
  std::fflush(stdout);
  if (json == nullptr) return;
  std::fprintf(
      json,
      "{\"op\": \"%s\", \"size\": %zu, \"count\": %zu, \"dtype\": \"%s\", \"ranks\": %d, \"best_us\": %.3f, "
      "\"median_us\": %.3f, \"p99_us\": %.3f, \"algbw\": %.3f, \"busbw\": %.3f, \"wrong\": %zu, "
      "\"peer_us\": %.3f, \"ratio\": %.3f}\n",
      operation_name(row.operation), row.bytes, row.count, dtype_name(options.dtype), options.ranks, best,
      median, p99, algbw, busbw, row.wrong, peer, ratio);
}

void pin_to(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(processor), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0)
    stop("cannot pin to processor " + std::to_string(processor));
}

bool run_rank(const Options& options, int rank, Bootstrap& bootstrap) {
  MemberOptions group;
  group.ranks = options.ranks;
  group.tuning = options.tuning;
  const RankMember member(group, rank, bootstrap);
  if (options.pin) pin_to(rank % static_cast<int>(std::thread::hardware_concurrency()));
  std::FILE* json = rank == 0 && !options.json.empty() ? std::fopen(options.json.c_str(), "we") : nullptr;
  bool good = true;
  for (const Operation operation : options.operations) {
    if (rank == 0) {
      std::printf("# %s, %d ranks as %s, %s\n%12s %12s %9s %10s %10s %10s %8s %8s %6s%s\n",
                  operation_name(operation), options.ranks, options.processes ? "processes" : "threads",
                  options.stream ? "on a stream" : "on the caller's thread", "size(B)", "count", "type",
                  "best(us)", "p50(us)", "p99(us)", "algbw", "busbw", "#wrong",
                  options.bare  ? "   bare(us)  ratio"
                  : options.mpi ? "    MPI(us)  ratio"
                                : "");
    }
    const bool sized = operation != Operation::kBarrier;
    for (std::size_t size = sized ? options.smallest : 1; size <= (sized ? options.largest : 1);
         size *= options.factor) {
      const Row row = measure(options, member, operation, size);
      good = good && row.wrong == 0;
      if (rank == 0) print_row(options, row, json);
    }
  }
  if (json != nullptr) std::fclose(json);
  return good;
}

void make_room(int ranks) {
  shared_inputs.resize(static_cast<std::size_t>(ranks));
  shared_outputs.resize(static_cast<std::size_t>(ranks));
}

// Each process is a rank of mpirun's.
int run_under_mpi(Options options) {
  const MpiJob job;
  options.ranks = job.ranks();
  options.processes = true;
  make_room(options.ranks);
  DirectoryBootstrap bootstrap(job.directory());
  return run_rank(options, job.rank(), bootstrap) ? 0 : 1;
}

int run_on_own_ranks(const Options& options) {
  make_room(options.ranks);
  RankLaunch launch;
  launch.program = "collectives_bench";
  launch.ranks = options.ranks;
  launch.processes = options.processes;
  const auto body = [&](int rank, Bootstrap& bootstrap) { return run_rank(options, rank, bootstrap); };
  return run_ranks(launch, body) ? 0 : 1;
}

}  // namespace
}  // namespace neuron

int main(int argc, char** argv) {
  using namespace neuron;
  const Options options = parse(argc, argv);
  try {
    return options.mpi ? run_under_mpi(options) : run_on_own_ranks(options);
  } catch (const std::exception& error) {
    stop(error.what());
  }
}
