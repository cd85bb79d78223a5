// Benchmark of the engine's collectives, without Python and torch.
//
//   collectives_bench [options]
//     --op NAME      all_reduce (default), all_gather, reduce_scatter, all_to_all, broadcast, reduce,
//                    gather, scatter, barrier, or all
//     -b, -e BYTES   smallest and largest size (8, 64M); -f FACTOR between sizes (4)
//     -d NAME        dtype: float32 (default), bfloat16, float16, float64, int64, int32, uint8
//     -r RANKS       number of ranks (2)
//     -n, -w COUNT   timed batches (15) and warm-up batches (2); a batch is one call, or many small ones
//     --processes    ranks as processes (default: threads)
//     --pin          rank r stays on processor r
//     --stream       submit to a stream and wait (default: run on the caller's thread)
//     --bare         also time a plain loop over the same bytes, in alternation (threads only)
//     --inline BYTES, --segment BYTES   tuning
//     --json FILE    write the rows there too
//
// A row: size of the larger of one rank's input and output, elements, dtype, then the time of the slowest
// rank: best, median and 99th percentile over the batches, in microseconds; algbw and busbw of the median in
// GB/s; wrong elements; with --bare the plain loop's median and its ratio to ours (1 = as fast, below 1 =
// slower).
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "bench/bare_loops.h"
#include "bench/bus_factor.h"
#include "engine/base/clock.h"
#include "engine/collectives/communicator.h"
#include "engine/testing/exact_values.h"

namespace neuron {
namespace {

struct Options {
  std::string op = "all_reduce";
  std::size_t smallest = 8, largest = std::size_t{64} << 20, factor = 4;
  std::string dtype = "float32";
  int ranks = 2;
  int batches = 15, warmup = 2;
  bool processes = false, stream = false, bare = false, pin = false;
  std::string json;
  CommunicatorTuning tuning;
};

[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "collectives_bench: %s\n", why.c_str());
  std::_Exit(2);
}

template <typename T>
T take(Result<T> result) {
  if (!result.is_ok()) stop(result.status().message());
  return std::move(result).value();
}

void check(const Status& status) {
  if (!status.is_ok()) stop(status.message());
}

std::size_t parse_size(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  switch (*end) {
    case 'K':
      return static_cast<std::size_t>(value * 1024);
    case 'M':
      return static_cast<std::size_t>(value * 1024 * 1024);
    case 'G':
      return static_cast<std::size_t>(value * 1024 * 1024 * 1024);
    case '\0':
      return static_cast<std::size_t>(value);
    default:
      stop("not a size: " + text);
  }
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&] {
      return ++i < argc ? std::string(argv[i]) : (stop(name + " needs a value"), std::string());
    };
    if (name == "--op")
      options.op = value();
    else if (name == "-b")
      options.smallest = parse_size(value());
    else if (name == "-e")
      options.largest = parse_size(value());
    else if (name == "-f")
      options.factor = std::max<std::size_t>(parse_size(value()), 2);
    else if (name == "-d")
      options.dtype = value();
    else if (name == "-r")
      options.ranks = std::stoi(value());
    else if (name == "-n")
      options.batches = std::max(std::stoi(value()), 1);
    else if (name == "-w")
      options.warmup = std::stoi(value());
    else if (name == "--processes")
      options.processes = true;
    else if (name == "--stream")
      options.stream = true;
    else if (name == "--bare")
      options.bare = true;
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
  if (options.bare && options.processes) stop("--bare works with threads only");
  return options;
}

DType dtype_of(const std::string& name) {
  for (const DType dtype : all_dtypes()) {
    if (name == dtype_name(dtype)) return dtype;
  }
  stop("unknown dtype " + name);
}

std::vector<CollectiveKind> kinds_of(const std::string& name) {
  std::vector<CollectiveKind> kinds;
  for (int i = 0; i <= static_cast<int>(CollectiveKind::kBarrier); ++i) {
    const auto kind = static_cast<CollectiveKind>(i);
    if (name == "all" || name == collective_name(kind)) kinds.push_back(kind);
  }
  if (kinds.empty()) stop("unknown collective " + name);
  return kinds;
}

// Where thread ranks find each other's buffers, for the bare loops.
std::vector<std::byte*> shared_inputs, shared_outputs;

struct Row {
  std::size_t bytes, count;
  double best_us, median_us, p99_us, bare_us;
  std::size_t wrong;
};

class RankBench {
 public:
  RankBench(const Options& options, int rank, Bootstrap& bootstrap) : options_(options), rank_(rank) {
    CoreOptions core;
    core.index = options.processes ? 0 : rank;
    core.logical_core = rank;
    core.memory_limit = std::size_t{8} << 30;
    core_ = take(Core::create(core));
    CommunicatorOptions group;
    group.group_name = "bench";
    group.rank = rank;
    group.size = options.ranks;
    group.core = core_.get();
    group.tuning = options.tuning;
    communicator_ = take(Communicator::create(group, bootstrap));
    scratch_ = allocate(64);
  }

  ~RankBench() { check(communicator_->destroy()); }

  Row measure(CollectiveKind kind, std::size_t size) {
    prepare(kind, size);
    const std::size_t wrong = count_wrong();
    const int calls = size <= (std::size_t{256} << 10) ? (size <= 16384 ? 200 : 20) : 1;
    std::vector<double> ours, bare;
    for (int batch = -options_.warmup; batch < options_.batches; ++batch) {
      const double time = timed(calls, [&] { call(); });
      const double plain = options_.bare ? timed(calls, [&] { bare_call(); }) : 0;
      if (batch < 0) continue;
      ours.push_back(time);
      bare.push_back(plain);
    }
    std::sort(ours.begin(), ours.end());
    std::sort(bare.begin(), bare.end());
    const auto at = [](const std::vector<double>& sorted, double quantile) {
      return sorted[static_cast<std::size_t>(quantile * static_cast<double>(sorted.size() - 1) + 0.5)];
    };
    release();
    return {size, request_.count, ours.front(), at(ours, 0.5), at(ours, 0.99), at(bare, 0.5), wrong};
  }

 private:
  bool is_root() const { return rank_ == 0; }

  Block* allocate(std::size_t nbytes) {
    return take(core_->pool().allocate(nbytes, core_->default_stream()));
  }

  void prepare(CollectiveKind kind, std::size_t size) {
    const DType dtype = dtype_of(options_.dtype);
    const auto n = static_cast<std::size_t>(options_.ranks);
    const std::size_t part = payload_bytes(kind, options_.ranks, 1) > 1 ? size / n : size;
    request_ = {};
    request_.kind = kind;
    if (kind != CollectiveKind::kBarrier) {
      request_.dtype = dtype;
      request_.count = part / dtype_size(dtype);
    }
    const bool reduces = kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
                         kind == CollectiveKind::kReduceScatter;
    if (reduces) request_.op = ReduceOp::kSum;
    const bool in_place = kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
                          kind == CollectiveKind::kBroadcast;
    input_ = allocate(size);
    output_ = in_place ? input_ : allocate(size);
    std::memset(output_->data, 0, size);
    fill_input();
    request_.input = input_->data;
    request_.output = output_->data;
    if (kind == CollectiveKind::kGather && !is_root()) request_.output = nullptr;
    shared_inputs[static_cast<std::size_t>(rank_)] = input_->data;
    shared_outputs[static_cast<std::size_t>(rank_)] = output_->data;
  }

  void fill_input() {
    const auto values =
        exact_values(dtype_of(options_.dtype), ReduceOp::kSum, 4096, static_cast<std::uint64_t>(rank_));
    for (std::size_t at = 0; at < input_->requested; at += values.size())
      std::memcpy(input_->data + at, values.data(), std::min(values.size(), input_->requested - at));
  }

  void release() {
    barrier();
    if (output_ != input_) core_->pool().free(output_);
    core_->pool().free(input_);
  }

  void call() {
    if (!options_.stream) return check(communicator_->run(request_));
    const auto work = take(communicator_->submit(core_->default_stream(), request_));
    check(work->wait());
  }

  void bare_call() {
    run_bare_loop(request_.kind, dtype_of(options_.dtype), static_cast<std::size_t>(rank_), shared_inputs,
                  shared_outputs, request_.count);
  }

  void barrier() {
    CollectiveRequest request;
    check(communicator_->run(request));
  }

  // Microseconds per call, of the slowest rank.
  template <typename Call>
  double timed(int calls, const Call& body) {
    barrier();
    const std::int64_t start = steady_ns();
    for (int i = 0; i < calls; ++i) body();
    const std::int64_t end = steady_ns();
    const double own = static_cast<double>(end - start) / calls / 1000;
    std::memcpy(scratch_->data, &own, sizeof own);
    CollectiveRequest slowest;
    slowest.kind = CollectiveKind::kAllReduce;
    slowest.dtype = DType::kFloat64;
    slowest.op = ReduceOp::kMax;
    slowest.count = 1;
    slowest.input = slowest.output = scratch_->data;
    check(communicator_->run(slowest));
    double result = 0;
    std::memcpy(&result, scratch_->data, sizeof result);
    return result;
  }

  // One call with exact values against plain arithmetic, over the first elements. Fresh values afterwards:
  // sums of sums would overflow.
  std::size_t count_wrong() {
    if (request_.kind != CollectiveKind::kAllReduce) {
      call();
      return 0;
    }
    std::vector<std::vector<std::byte>> inputs;
    for (int rank = 0; rank < options_.ranks; ++rank)
      inputs.push_back(exact_values(request_.dtype, ReduceOp::kSum, 4096, static_cast<std::uint64_t>(rank)));
    const auto expected = plain_reduce(request_.dtype, ReduceOp::kSum, inputs);
    call();
    const std::size_t element = dtype_size(request_.dtype);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < request_.count; ++i) {
      const std::size_t at = i % 4096 * element;
      wrong += std::memcmp(output_->data + i * element, expected.data() + at, element) != 0 ? 1U : 0U;
    }
    std::memset(input_->data, 0, input_->requested);
    return wrong;
  }

  const Options& options_;
  const int rank_;
  std::unique_ptr<Core> core_;
  std::shared_ptr<Communicator> communicator_;
  CollectiveRequest request_;
  Block* input_ = nullptr;
  Block* output_ = nullptr;
  Block* scratch_ = nullptr;
};

void print_row(const Options& options, CollectiveKind kind, const Row& row, std::FILE* json) {
  const double algbw = static_cast<double>(row.bytes) / row.median_us / 1000;
  const double busbw = algbw * bus_factor(kind, options.ranks);
  std::printf("%12zu %12zu %9s %10.2f %10.2f %10.2f %8.2f %8.2f %6zu", row.bytes, row.count,
              options.dtype.c_str(), row.best_us, row.median_us, row.p99_us, algbw, busbw, row.wrong);
  if (options.bare) std::printf(" %10.2f %6.2f", row.bare_us, row.bare_us / row.median_us);
  std::printf("\n");
  std::fflush(stdout);
  if (json == nullptr) return;
  std::fprintf(
      json,
      "{\"op\": \"%s\", \"size\": %zu, \"count\": %zu, \"dtype\": \"%s\", \"ranks\": %d, \"best_us\": %.3f, "
      "\"median_us\": %.3f, \"p99_us\": %.3f, \"algbw\": %.3f, \"busbw\": %.3f, \"wrong\": %zu, "
      "\"bare_us\": %.3f}\n",
      collective_name(kind), row.bytes, row.count, options.dtype.c_str(), options.ranks, row.best_us,
      row.median_us, row.p99_us, algbw, busbw, row.wrong, row.bare_us);
}

void pin_to(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(processor), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0)
    stop("cannot pin to processor " + std::to_string(processor));
}

void run_rank(const Options& options, int rank, Bootstrap& bootstrap) {
  RankBench bench(options, rank, bootstrap);
  if (options.pin) pin_to(rank % static_cast<int>(std::thread::hardware_concurrency()));
  std::FILE* json = rank == 0 && !options.json.empty() ? std::fopen(options.json.c_str(), "we") : nullptr;
  for (const CollectiveKind kind : kinds_of(options.op)) {
    if (rank == 0) {
      std::printf("# %s, %d ranks as %s, %s\n%12s %12s %9s %10s %10s %10s %8s %8s %6s%s\n",
                  collective_name(kind), options.ranks, options.processes ? "processes" : "threads",
                  options.stream ? "on a stream" : "on the caller's thread", "size(B)", "count", "type",
                  "best(us)", "p50(us)", "p99(us)", "algbw", "busbw", "#wrong",
                  options.bare ? "   bare(us)  ratio" : "");
    }
    const bool sized = kind != CollectiveKind::kBarrier;
    for (std::size_t size = sized ? options.smallest : 1; size <= (sized ? options.largest : 1);
         size *= options.factor) {
      const Row row = bench.measure(kind, size);
      if (rank == 0) print_row(options, kind, row, json);
    }
  }
  if (json != nullptr) std::fclose(json);
}

int run_threads(const Options& options) {
  LocalBootstrap bootstrap;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.ranks; ++rank)
    threads.emplace_back([&, rank] { run_rank(options, rank, bootstrap); });
  for (std::thread& thread : threads) thread.join();
  return 0;
}

int run_processes(const Options& options) {
  std::string directory = (std::filesystem::temp_directory_path() / "neuron-bench-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) stop("no temporary directory");
  for (int rank = 0; rank < options.ranks; ++rank) {
    if (fork() != 0) continue;
    DirectoryBootstrap bootstrap(directory);
    run_rank(options, rank, bootstrap);
    std::fflush(stdout);
    std::_Exit(0);
  }
  int failures = 0;
  int status = 0;
  while (wait(&status) > 0) failures += status != 0 ? 1 : 0;
  std::filesystem::remove_all(directory);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace neuron

int main(int argc, char** argv) {
  using namespace neuron;
  const Options options = parse(argc, argv);
  shared_inputs.resize(static_cast<std::size_t>(options.ranks));
  shared_outputs.resize(static_cast<std::size_t>(options.ranks));
  return options.processes ? run_processes(options) : run_threads(options);
}
