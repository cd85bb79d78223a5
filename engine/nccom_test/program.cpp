#include "engine/nccom_test/program.h"

#include <cstdio>
#include <cstdlib>

#include "engine/base/env.h"
#include "engine/device/device.h"
#include "engine/measure/run_ranks.h"
#include "engine/nccom_test/options.h"
#include "engine/nccom_test/rank_run.h"
#include "engine/nccom_test/report.h"

namespace neuron::nccom_test {

namespace {

constexpr int kGood = 0, kFailed = 1, kBadOptions = 2;

int refuse(const Status& status) {
  std::fprintf(stderr, "nccom-test: %s\n(neuron-emu nccom-test --help lists everything)\n",
               status.message().c_str());
  return kBadOptions;
}

// The workers are ours: where a launcher has put this process means nothing to them. Before the environment
// is read.
void forget_launcher() {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) (void)unsetenv(name);
}

Status check_cores(const Options& options) {
  const DeviceRuntime& runtime = DeviceRuntime::get();
  if (!runtime.status().is_ok()) return runtime.status();
  const int cores = runtime.device_count();
  if (options.workers <= cores) return Status::ok();
  return {StatusCode::kInvalidArgument,
          detail::concatenate("--nworkers ", options.workers, ": ", cores, " logical core",
                              cores == 1 ? " is" : "s are", " visible (", runtime.instance().name, ", LNC ",
                              runtime.allocation().lnc, "); give at most ", cores,
                              ", or change NEURON_EMU_INSTANCE, NEURON_RT_VISIBLE_CORES, NEURON_RT_NUM_CORES "
                              "or NEURON_LOGICAL_NC_CONFIG")};
}

}  // namespace

int run_program(std::span<const std::string> arguments) {
  forget_launcher();
  const Result<Options> parsed = parse_options(arguments);
  if (!parsed.is_ok()) return refuse(parsed.status());
  const Options& options = parsed.value();
  if (options.help) {
    std::fputs(help_text().c_str(), stdout);
    return kGood;
  }
  if (const Status status = check_cores(options); !status.is_ok()) return refuse(status);
  // Before the first call, so that a long run does not end at a missing folder.
  if (const Status status = write_json(options, json_report(options, {})); !status.is_ok())
    return refuse(status);
  if (!env().quiet) {
    std::fprintf(stderr, "nccom-test: %d software NeuronCores (emulated) as %s; times are this machine's\n",
                 options.workers, options.threads ? "threads" : "processes");
  }
  RankLaunch launch;
  launch.program = "nccom-test";
  launch.ranks = options.workers;
  launch.processes = !options.threads;
  const bool good = run_ranks(launch, [&options](int rank, Bootstrap& bootstrap) {
    return run_operations(options, rank, bootstrap);
  });
  return good ? kGood : kFailed;
}

}  // namespace neuron::nccom_test
