// What a stream's queue costs: nanoseconds for each call, median and best of the repetitions.
//
//   burst, held       submit() while a gate holds the stream: the submitter's share alone
//   burst             the same with the stream's thread awake and draining
//   sustained         submit() far beyond the run-ahead limit: the slower of the two sides
//   inline            submit() of a command that runs on the caller, and the same command called directly
//   query, event, …   calls that need no command
//   allocate          allocate() and free() of one block, and of a mix of sizes
//
// Commands are recycled, as the dispatcher's are, so that no allocation is measured but where it says "new".
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/device/event.h"
#include "engine/testing/device_fixtures.h"
#include "engine/testing/gate.h"

namespace neuron {
namespace {

constexpr int kRepetitions = 41;

class EmptyCommand final : public Command {
 public:
  explicit EmptyCommand(RunMode mode) : Command(CommandKind::kCompute, mode, "empty") {}
  Status run(Stream& /*stream*/) override { return Status::ok(); }
  void retire() noexcept override {}  // owned by the benchmark
};

class Commands {
 public:
  Commands(std::size_t count, RunMode mode) {
    for (std::size_t i = 0; i < count; ++i) owned_.push_back(std::make_unique<EmptyCommand>(mode));
  }
  // The queue takes the pointer; retire() leaves it to us.
  std::unique_ptr<Command> operator[](std::size_t i) {
    return std::unique_ptr<Command>(owned_[i % owned_.size()].get());
  }
  EmptyCommand& at(std::size_t i) { return *owned_[i % owned_.size()]; }

 private:
  std::vector<std::unique_ptr<EmptyCommand>> owned_;
};

void report(const char* name, std::vector<double> ns) {
  std::sort(ns.begin(), ns.end());
  std::printf("%-28s %10.1f %10.1f\n", name, ns[ns.size() / 2], ns.front());
}

// Times `calls` calls of `body`; `before` and `after` are outside the clock.
void measure(
    const char* name, std::size_t calls, const std::function<void(std::size_t)>& body,
    const std::function<void()>& before = [] {}, const std::function<void()>& after = [] {}) {
  std::vector<double> ns;
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    before();
    const std::int64_t start = steady_ns();
    for (std::size_t i = 0; i < calls; ++i) body(i);
    const std::int64_t end = steady_ns();
    after();
    ns.push_back(static_cast<double>(end - start) / static_cast<double>(calls));
  }
  report(name, std::move(ns));
}

void bench_queued(Core& core) {
  constexpr std::size_t kBurst = 512;
  constexpr std::size_t kSustained = 100'000;
  const InlinePolicyScope policy(InlinePolicy::kNever);
  Stream& stream = core.default_stream();
  Commands commands(2048, RunMode::kQueued);
  const auto drain = [&] { (void)stream.synchronize(); };
  drain();
  std::unique_ptr<Gate> gate;
  const auto hold = [&] {
    gate = std::make_unique<Gate>();
    stream.submit(gate->command());
    gate->wait_for_arrival();
  };
  const auto release = [&] {
    gate->open();
    drain();
  };
  measure("submit, burst, held", kBurst, [&](std::size_t i) { stream.submit(commands[i]); }, hold, release);
  measure("submit new, burst, held", kBurst, [&](std::size_t) { submit(stream, [] {}); }, hold, release);
  measure("submit, burst", kBurst, [&](std::size_t i) { stream.submit(commands[i]); }, drain, drain);
  measure("submit, sustained", kSustained, [&](std::size_t i) { stream.submit(commands[i]); }, drain, drain);
  measure("submit and wait", 200, [&](std::size_t i) {
    stream.submit(commands[i]);
    drain();
  });
}

void bench_inline(Core& core) {
  constexpr std::size_t kCalls = 20'000;
  const InlinePolicyScope policy(InlinePolicy::kAlways);
  Stream& stream = core.default_stream();
  Commands commands(64, RunMode::kMayInline);
  measure("submit, inline", kCalls, [&](std::size_t i) { stream.submit(commands[i]); });
  measure("the command alone", kCalls, [&](std::size_t i) { (void)commands.at(i).run(stream); });
}

void bench_calls(Core& core) {
  constexpr std::size_t kCalls = 20'000;
  Stream& stream = core.default_stream();
  Stream& side = core.acquire_stream(0);
  (void)core.synchronize();
  bool done = true;
  measure("query", kCalls, [&](std::size_t) { done = done && stream.query(); });
  Event event(false);
  measure("event record", kCalls, [&](std::size_t) { event.record(stream); });
  measure("event wait, done", kCalls, [&](std::size_t) { event.wait(side); });
  if (!done) std::printf("a stream was busy: the figures mean little\n");
}

void bench_pool(Core& core) {
  constexpr std::size_t kCalls = 20'000;
  Stream& stream = core.default_stream();
  BlockPool& pool = core.pool();
  measure("allocate and free 4 KiB", kCalls,
          [&](std::size_t) { pool.free(pool.allocate(4096, stream).value()); });
  // A window of live blocks of many sizes, as in a training step.
  std::vector<Block*> window(64, nullptr);
  measure("allocate and free, mixed", kCalls, [&](std::size_t i) {
    Block*& slot = window[i * 29 % window.size()];
    pool.free(slot);
    slot = pool.allocate(256 + i * 7919 % 200'000, stream).value();
  });
  for (Block* block : window) pool.free(block);
}

}  // namespace
}  // namespace neuron

int main() {
  const auto core = neuron::make_test_core(std::size_t{256} << 20);
  std::printf("%-28s %10s %10s   (ns a call)\n", "", "median", "best");
  neuron::bench_queued(*core);
  neuron::bench_inline(*core);
  neuron::bench_calls(*core);
  neuron::bench_pool(*core);
  return 0;
}
