// The runtime reads the environment once in a process; so each case here is a process of its own.
#include "engine/device/device.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "engine/device/stream.h"
#include "engine/testing/device_fixtures.h"
#include "engine/testing/gate.h"

namespace neuron {
namespace {

using Variables = std::vector<std::pair<const char*, const char*>>;

// In a child of the test: true for each expectation, or the line goes to stderr and the child fails.
#define EXPECT_IN_CHILD(condition)                                               \
  do {                                                                           \
    if (!(condition)) {                                                          \
      std::fprintf(stderr, "line %d does not hold: %s\n", __LINE__, #condition); \
      std::_Exit(1);                                                             \
    }                                                                            \
  } while (false)

[[noreturn]] void run_case(const Variables& variables, const std::function<void(DeviceRuntime&)>& body) {
  for (const char* name :
       {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "NEURON_RT_VISIBLE_CORES", "NEURON_EMU_INSTANCE"}) {
    unsetenv(name);
  }
  setenv("NEURON_EMU_HBM_BYTES", "16M", 1);
  for (const auto& [name, value] : variables) setenv(name, value, 1);
  body(DeviceRuntime::get());
  std::_Exit(0);
}

class DeviceRuntimeDeathTest : public ::testing::Test {
 protected:
  DeviceRuntimeDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

#define RUNTIME_CASE(variables, body) EXPECT_EXIT(run_case(variables, body), ::testing::ExitedWithCode(0), "")

bool contains(const Status& status, const char* part) {
  return status.message().find(part) != std::string::npos;
}

TEST_F(DeviceRuntimeDeathTest, LookingDoesNotStart) {
  const auto body = [](DeviceRuntime& runtime) {
    EXPECT_IN_CHILD(runtime.status().is_ok());
    EXPECT_IN_CHILD(runtime.device_count() == 64);
    EXPECT_IN_CHILD(runtime.instance().name == "trn2.48xlarge");
    EXPECT_IN_CHILD(!runtime.bound_index().has_value());
    EXPECT_IN_CHILD(!runtime.core_started(0) && !runtime.core_started(-1) && !runtime.core_started(1 << 20));
    EXPECT_IN_CHILD(!runtime.started() && !runtime.in_bad_fork());
    const auto core = runtime.core(1);
    EXPECT_IN_CHILD(core.is_ok());
    EXPECT_IN_CHILD(runtime.started() && runtime.core_started(1) && !runtime.core_started(0));
    EXPECT_IN_CHILD(runtime.core(1).value() == core.value());
    EXPECT_IN_CHILD(core.value()->heap().limit() == std::size_t{16} << 20);
  };
  RUNTIME_CASE(Variables{}, body);
}

TEST_F(DeviceRuntimeDeathTest, IndicesBeyondTheCountAreRefused) {
  const auto body = [](DeviceRuntime& runtime) {
    EXPECT_IN_CHILD(runtime.device_count() == 2);
    EXPECT_IN_CHILD(runtime.core(1).value()->logical_core() == 5);
    for (const int index : {-1, 2, 64}) {
      const Status status = runtime.core(index).status();
      EXPECT_IN_CHILD(status.code() == StatusCode::kInvalidArgument);
      EXPECT_IN_CHILD(
          contains(status, ("Device index " + std::to_string(index) + " is out of range").c_str()));
    }
  };
  RUNTIME_CASE((Variables{{"NEURON_RT_VISIBLE_CORES", "4-5"}}), body);
}

TEST_F(DeviceRuntimeDeathTest, AWorkerHasItsOwnCoreOnly) {
  const auto body = [](DeviceRuntime& runtime) {
    EXPECT_IN_CHILD(runtime.device_count() == 2);
    EXPECT_IN_CHILD(runtime.bound_index() == 1);
    EXPECT_IN_CHILD(contains(runtime.core(0).status(),
                             "Attempted to have more than one device per process in distributed setup"));
    EXPECT_IN_CHILD(contains(runtime.core(2).status(), "Device index 2 is out of range"));
    EXPECT_IN_CHILD(runtime.core(1).value()->logical_core() == 9);
  };
  RUNTIME_CASE(
      (Variables{{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}, {"NEURON_RT_VISIBLE_CORES", "8-15"}}), body);
}

TEST_F(DeviceRuntimeDeathTest, WhatIsWrongIsKeptAndNothingStarts) {
  const auto body = [](DeviceRuntime& runtime) {
    EXPECT_IN_CHILD(!runtime.status().is_ok());
    EXPECT_IN_CHILD(runtime.device_count() == 0);
    EXPECT_IN_CHILD(runtime.core(0).status().message() == runtime.status().message());
    EXPECT_IN_CHILD(!runtime.started());
  };
  RUNTIME_CASE((Variables{{"NEURON_RT_VISIBLE_CORES", "3-1"}}), body);
  RUNTIME_CASE((Variables{{"NEURON_EMU_INSTANCE", "trn9"}}), body);
  RUNTIME_CASE((Variables{{"NEURON_EMU_HBM_BYTES", "much"}}), body);
  RUNTIME_CASE(
      (Variables{{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "3"}, {"NEURON_RT_VISIBLE_CORES", "4-5"}}), body);
}

TEST_F(DeviceRuntimeDeathTest, BindingByTheProcessGroup) {
  const auto body = [](DeviceRuntime& runtime) {
    EXPECT_IN_CHILD(contains(runtime.bind(64), "Device index 64 is out of range"));
    EXPECT_IN_CHILD(runtime.bind(3).is_ok());
    EXPECT_IN_CHILD(runtime.bound_index() == 3);
    EXPECT_IN_CHILD(contains(runtime.core(0).status(), "more than one device per process"));
    EXPECT_IN_CHILD(runtime.core(3).is_ok());
    EXPECT_IN_CHILD(contains(runtime.bind(4), "more than one device per process"));
    EXPECT_IN_CHILD(runtime.bind(3).is_ok());
    runtime.unbind();
    EXPECT_IN_CHILD(!runtime.bound_index().has_value());
    EXPECT_IN_CHILD(runtime.core(0).is_ok());
  };
  RUNTIME_CASE(Variables{}, body);
}

TEST_F(DeviceRuntimeDeathTest, TheEnvironmentMayBeReadAgainUntilTheStart) {
  const auto body = [](DeviceRuntime& runtime) {
    const CoreAllocation& old = runtime.allocation();
    EXPECT_IN_CHILD(runtime.device_count() == 64);
    setenv("LOCAL_RANK", "1", 1);
    setenv("LOCAL_WORLD_SIZE", "4", 1);
    runtime.reload_environment();
    EXPECT_IN_CHILD(runtime.device_count() == 4);
    EXPECT_IN_CHILD(runtime.bound_index() == 1);
    EXPECT_IN_CHILD(old.visible.size() == 64);  // what was given out stays
    EXPECT_IN_CHILD(runtime.core(1).is_ok());
    setenv("LOCAL_WORLD_SIZE", "8", 1);
    runtime.reload_environment();
    EXPECT_IN_CHILD(runtime.device_count() == 4);
  };
  RUNTIME_CASE(Variables{}, body);
}

TEST_F(DeviceRuntimeDeathTest, InlinePolicyFollowsTheNumberOfWorkers) {
  const auto always = [](DeviceRuntime& runtime) {
    (void)runtime;
    EXPECT_IN_CHILD(inline_policy() == InlinePolicy::kAlways);
  };
  const auto never = [](DeviceRuntime& runtime) {
    (void)runtime;
    EXPECT_IN_CHILD(inline_policy() == InlinePolicy::kNever);
  };
  RUNTIME_CASE((Variables{{"NEURON_EMU_INLINE", "always"}}), always);
  RUNTIME_CASE((Variables{{"NEURON_EMU_INLINE", "never"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "64"}}),
               never);
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (std::size_t cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  RUNTIME_CASE((Variables{{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}}), always);
  ASSERT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
}

TEST_F(DeviceRuntimeDeathTest, MoreCoresThanDeviceNumbers) {
  const Variables large{{"NEURON_EMU_INSTANCE", "trn3-gen2"}, {"NEURON_LOGICAL_NC_CONFIG", "1"}};
  RUNTIME_CASE(large, [](DeviceRuntime& runtime) { EXPECT_IN_CHILD(runtime.device_count() == 127); });
  Variables workers = large;
  workers.push_back({"LOCAL_RANK", "0"});
  workers.push_back({"LOCAL_WORLD_SIZE", "128"});
  RUNTIME_CASE(workers, [](DeviceRuntime& runtime) {
    EXPECT_IN_CHILD(contains(runtime.status(), "LOCAL_WORLD_SIZE=128: at most 127 workers"));
  });
}

TEST_F(DeviceRuntimeDeathTest, AForkedChildOfAStartedRuntimeIsRefused) {
  const auto body = [](DeviceRuntime& runtime) {
    EXPECT_IN_CHILD(runtime.core(0).is_ok());
    Core* core = runtime.core(0).value();
    Block* block = core->pool().allocate(4096, core->default_stream()).value();
    const pid_t child = fork();
    if (child == 0) {
      EXPECT_IN_CHILD(runtime.in_bad_fork());
      EXPECT_IN_CHILD(runtime.core(0).status().code() == StatusCode::kUnavailable);
      EXPECT_IN_CHILD(contains(runtime.core(0).status(), "forked subprocess"));
      EXPECT_IN_CHILD(runtime.device_count() == 64);
      core->pool().free(block);
      runtime.shutdown(std::chrono::seconds(10));
      std::_Exit(0);
    }
    int status = 1;
    EXPECT_IN_CHILD(waitpid(child, &status, 0) == child && status == 0);
    EXPECT_IN_CHILD(!runtime.in_bad_fork());
    core->pool().free(block);
  };
  RUNTIME_CASE(Variables{}, body);
}

TEST_F(DeviceRuntimeDeathTest, AChildForkedBeforeTheStartMayStart) {
  const auto body = [](DeviceRuntime& runtime) {
    EXPECT_IN_CHILD(runtime.device_count() == 64);
    const pid_t child = fork();
    if (child == 0) {
      EXPECT_IN_CHILD(!runtime.in_bad_fork());
      EXPECT_IN_CHILD(runtime.core(0).is_ok());
      std::_Exit(0);
    }
    int status = 1;
    EXPECT_IN_CHILD(waitpid(child, &status, 0) == child && status == 0);
  };
  RUNTIME_CASE(Variables{}, body);
}

TEST_F(DeviceRuntimeDeathTest, ShutdownDrainsForABoundedTimeThenRefuses) {
  const auto body = [](DeviceRuntime& runtime) {
    Core* core = runtime.core(0).value();
    bool ran = false;
    submit(core->default_stream(), [&] { ran = true; });
    Gate gate;  // never opened
    core->acquire_stream(0).submit(gate.command());
    runtime.shutdown(std::chrono::milliseconds(50));
    EXPECT_IN_CHILD(core->default_stream().query() && ran);
    bool late = false;
    submit(core->default_stream(), [&] { late = true; });
    EXPECT_IN_CHILD(core->default_stream().query() && !late);
    EXPECT_IN_CHILD(runtime.core(0).is_ok());
    EXPECT_IN_CHILD(runtime.core(1).status().code() == StatusCode::kUnavailable);
  };
  RUNTIME_CASE(Variables{}, body);
}

}  // namespace
}  // namespace neuron
