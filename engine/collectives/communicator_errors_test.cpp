// What a group says and does on bad days, with ranks as threads; process_faults_test.cpp has the deaths.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/collectives/communicator.h"
#include "engine/testing/device_fixtures.h"
#include "engine/testing/exact_values.h"
#include "engine/testing/gate.h"
#include "engine/testing/rank_threads.h"

namespace neuron {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

CollectiveRequest request_of(const DeviceBuffer& buffer, CollectiveKind kind = CollectiveKind::kAllReduce) {
  CollectiveRequest request{.kind = kind, .dtype = DType::kFloat32};
  if (kind == CollectiveKind::kAllReduce) request.op = ReduceOp::kSum;
  request.count = 4;
  request.input = request.output = buffer.data();
  return request;
}

std::shared_ptr<Work> must(Result<std::shared_ptr<Work>> work) {
  NEURON_CHECK(work.is_ok(), work.status().message());
  return std::move(work).value();
}

void expect_in(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
}

// Both ranks of two call; every member gets kMismatch with one message, and the group stays in error.
void expect_mismatch(const std::function<CollectiveRequest(const RankContext&, const DeviceBuffer&)>& make,
                     const std::vector<std::string>& parts, CommunicatorTuning tuning = {}) {
  const RankThreads ranks(2, {.tuning = tuning});
  std::string messages[2];
  ranks.run([&](RankContext& context) {
    const DeviceBuffer buffer = context.buffer(std::size_t{4096});
    const auto work = must(context.communicator.submit(context.core.default_stream(), make(context, buffer)));
    const Status status = work->wait(Deadline::after(kPatience));
    EXPECT_EQ(status.code(), StatusCode::kMismatch);
    messages[context.rank] = status.message();
    EXPECT_TRUE(context.communicator.aborted());
    EXPECT_EQ(context.communicator.run(request_of(buffer)).code(), StatusCode::kMismatch);
    EXPECT_EQ(
        context.communicator.submit(context.core.default_stream(), request_of(buffer)).status().message(),
        status.message());
    const StreamErrorPtr error = context.core.synchronize();
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->status.message(), status.message());
  });
  EXPECT_EQ(messages[0], messages[1]);
  for (const std::string& part : parts) expect_in(messages[0], part);
}

TEST(CommunicatorErrorsTest, DifferentOperations) {
  expect_mismatch(
      [](const RankContext& context, const DeviceBuffer& buffer) {
        CollectiveRequest request =
            request_of(buffer, context.rank == 0 ? CollectiveKind::kAllReduce : CollectiveKind::kBroadcast);
        request.origin = context.rank == 0 ? "train.py:12" : "train.py:34";
        return request;
      },
      {"group 'test' (2 ranks)", "call #1", "operations are not the same",
       "rank 0: all_reduce(float32[4], sum) at train.py:12",
       "rank 1: broadcast(float32[4], root 0) at train.py:34"});
}

TEST(CommunicatorErrorsTest, DifferentDtypes) {
  expect_mismatch(
      [](const RankContext& context, const DeviceBuffer& buffer) {
        CollectiveRequest request = request_of(buffer);
        if (context.rank == 1) request.dtype = DType::kInt32;
        return request;
      },
      {"dtypes are not the same", "float32[4]", "int32[4]"});
}

TEST(CommunicatorErrorsTest, DifferentReduceOps) {
  expect_mismatch(
      [](const RankContext& context, const DeviceBuffer& buffer) {
        CollectiveRequest request = request_of(buffer);
        if (context.rank == 1) request.op = ReduceOp::kMax;
        return request;
      },
      {"reduce ops are not the same", "sum", "max"});
}

TEST(CommunicatorErrorsTest, DifferentRoots) {
  expect_mismatch(
      [](const RankContext& context, const DeviceBuffer& buffer) {
        CollectiveRequest request = request_of(buffer, CollectiveKind::kBroadcast);
        request.root = context.rank;
        return request;
      },
      {"roots are not the same", "root 0", "root 1"});
}

// Also when one side is small enough for the control block and the other is not.
TEST(CommunicatorErrorsTest, DifferentCounts) {
  for (const std::size_t inline_bytes : {0UL, 20UL, 256UL}) {
    expect_mismatch(
        [](const RankContext& context, const DeviceBuffer& buffer) {
          CollectiveRequest request = request_of(buffer);
          request.count = context.rank == 0 ? 4 : 8;
          return request;
        },
        {"numbers of elements are not the same", "float32[4]", "float32[8]"}, {.inline_bytes = inline_bytes});
  }
}

TEST(CommunicatorErrorsTest, SplitsThatDoNotFit) {
  expect_mismatch(
      [](const RankContext& context, const DeviceBuffer& buffer) {
        CollectiveRequest request{.kind = CollectiveKind::kAllToAll, .dtype = DType::kFloat32};
        request.input_parts = {{buffer.data(), 1}, {buffer.data() + 64, 3}};
        request.output_parts = {{buffer.data() + 128, 1}, {buffer.data() + 256, context.rank == 0 ? 1U : 3U}};
        return request;
      },
      {"rank 0 gives 3 elements to rank 1, which expects 1", "gives {1 3}"});
}

TEST(CommunicatorErrorsTest, ARankThatDoesNotComeEndsInATimeoutThatNamesIt) {
  const RankThreads ranks(3, {.timeout = std::chrono::milliseconds(300)});
  std::atomic<int> waited{0};
  ranks.run([&](RankContext& context) {
    const DeviceBuffer buffer = context.buffer(std::size_t{64});
    EXPECT_TRUE(context.communicator.run(request_of(buffer, CollectiveKind::kBroadcast)).is_ok());
    if (context.rank == 1) {
      while (waited.load() < 2) std::this_thread::yield();
      // Coming late it learns the same.
      EXPECT_EQ(context.communicator.run(request_of(buffer)).code(), StatusCode::kTimeout);
      return;
    }
    const auto work = must(context.communicator.submit(context.core.default_stream(), request_of(buffer)));
    const Status status = work->wait(Deadline::after(kPatience));
    EXPECT_EQ(status.code(), StatusCode::kTimeout);
    expect_in(status.message(), "all_reduce #2: not all ranks came within the timeout of 0.3 s");
    expect_in(status.message(), "rank 0: all_reduce(float32[4], sum)");
    expect_in(status.message(), "rank 1: not here; its last call was #1 broadcast (finished)");
    waited.fetch_add(1);
  });
}

TEST(CommunicatorErrorsTest, TheClockStartsAtTheHeadOfTheStream) {
  const RankThreads ranks(2, {.timeout = std::chrono::milliseconds(200)});
  ranks.run([&](RankContext& context) {
    Gate gate;
    Stream& stream = context.core.default_stream();
    stream.submit(gate.command());
    const DeviceBuffer buffer = context.buffer(std::size_t{64});
    const auto work = must(context.communicator.submit(stream, request_of(buffer)));
    // Longer than the timeout, behind other work of the stream.
    EXPECT_EQ(work->wait(Deadline::after(std::chrono::milliseconds(300))).code(), StatusCode::kTimeout);
    EXPECT_FALSE(context.communicator.aborted());
    gate.open();
    EXPECT_TRUE(work->wait(Deadline::after(kPatience)).is_ok());
  });
}

TEST(CommunicatorErrorsTest, AbortWakesWhoWaitsAndTheFirstReasonStays) {
  const RankThreads ranks(2);
  std::atomic<bool> waiting{false};
  ranks.run([&](RankContext& context) {
    const DeviceBuffer buffer = context.buffer(std::size_t{64});
    if (context.rank == 1) {
      while (!waiting.load()) std::this_thread::yield();
      context.communicator.abort("enough");
      context.communicator.abort("too late");
      EXPECT_EQ(context.communicator.status().code(), StatusCode::kAborted);
      return;
    }
    const auto work = must(context.communicator.submit(context.core.default_stream(), request_of(buffer)));
    waiting.store(true);
    const Status status = work->wait(Deadline::after(kPatience));
    EXPECT_EQ(status.code(), StatusCode::kAborted);
    expect_in(status.message(), "group 'test' (2 ranks): enough");
  });
}

// Rank 1 comes after the others have given up and may have freed their buffers: it must not write to them.
TEST(CommunicatorErrorsTest, ALatePeerDoesNotTouchTheBuffersOfAnAbortedGroup) {
  const RankThreads ranks(2);
  std::atomic<bool> gave_up{false};
  std::atomic<bool> came{false};
  ranks.run([&](RankContext& context) {
    const DeviceBuffer buffer = context.buffer(std::size_t{1} << 20);
    buffer.fill(std::byte{1});
    CollectiveRequest request = request_of(buffer);
    request.count = buffer.nbytes() / sizeof(float);
    if (context.rank == 1) {
      while (!gave_up.load()) std::this_thread::yield();
      EXPECT_EQ(context.communicator.run(request).code(), StatusCode::kAborted);
      came.store(true);
      return;
    }
    const auto work = must(context.communicator.submit(context.core.default_stream(), request));
    context.communicator.abort("the test gives up");
    EXPECT_EQ(work->wait(Deadline::after(kPatience)).code(), StatusCode::kAborted);
    buffer.fill(std::byte{2});
    gave_up.store(true);
    while (!came.load()) std::this_thread::yield();
    EXPECT_EQ(buffer.read(), std::vector<std::byte>(buffer.nbytes(), std::byte{2}));
  });
}

// Aborts at any moment of a stream of large collectives: whoever has returned owns its buffer again.
TEST(CommunicatorErrorsTest, AfterAnAbortNobodyWritesToABufferThatWasGivenBack) {
  for (int round = 0; round < 30; ++round) {
    const RankThreads ranks(3, {.tuning = {.segment_bytes = 16384, .inline_bytes = 0}});
    std::atomic<int> given_up{0};
    ranks.run([&](RankContext& context) {
      const DeviceBuffer buffer = context.buffer(std::size_t{1} << 20);
      CollectiveRequest request = request_of(buffer);
      request.count = buffer.nbytes() / sizeof(float);
      int calls = 0;
      for (Status status; status.is_ok(); ++calls) {
        if (context.rank == 0 && calls == round % 7) context.communicator.abort("in the middle");
        buffer.fill(std::byte{0});
        status = context.communicator.run(request);
      }
      buffer.fill(std::byte{7});
      given_up.fetch_add(1);
      while (given_up.load() < context.size) std::this_thread::yield();
      EXPECT_EQ(buffer.read(), std::vector<std::byte>(buffer.nbytes(), std::byte{7}));
    });
  }
}

TEST(CommunicatorErrorsTest, AFailureOfComputeReachesTheGroupByName) {
  const RankThreads ranks(2);
  std::atomic<bool> submitted{false};
  ranks.run([&](RankContext& context) {
    Stream& stream = context.core.default_stream();
    const DeviceBuffer buffer = context.buffer(std::size_t{64});
    if (context.rank == 1) {
      while (!submitted.load()) std::this_thread::yield();
      stream.submit(make_command([]() -> Status { return {StatusCode::kExecution, "shapes do not fit"}; },
                                 RunMode::kQueued, "mm"));
    }
    const auto work = must(context.communicator.submit(stream, request_of(buffer)));
    submitted.store(true);
    const Status status = work->wait(Deadline::after(kPatience));
    EXPECT_EQ(status.code(), StatusCode::kAborted);
    expect_in(status.message(),
              "rank 1 failed in mm and cannot take part in all_reduce #1: shapes do not fit");
  });
}

TEST(CommunicatorErrorsTest, ARankThatHasLeftIsNamed) {
  const RankThreads ranks(2, {.global_ranks = {4, 6}});
  ranks.run([&](RankContext& context) {
    const DeviceBuffer buffer = context.buffer(std::size_t{64});
    EXPECT_TRUE(context.communicator.run(request_of(buffer)).is_ok());
    if (context.rank == 1) {
      EXPECT_TRUE(context.communicator.destroy().is_ok());
      return;
    }
    const Status status = context.communicator.run(request_of(buffer));
    EXPECT_EQ(status.code(), StatusCode::kAborted);
    expect_in(status.message(), "all_reduce #2: rank 1 (global rank 6) has left the group");
  });
}

TEST(CommunicatorErrorsTest, DestroyIsBoundedAndAbortsWhatStillRuns) {
  const RankThreads ranks(2);
  std::atomic<bool> destroyed{false};
  ranks.run([&](RankContext& context) {
    const DeviceBuffer buffer = context.buffer(std::size_t{64});
    if (context.rank == 1) {
      while (!destroyed.load()) std::this_thread::yield();
      EXPECT_EQ(context.communicator.run(request_of(buffer)).code(), StatusCode::kAborted);
      return;
    }
    const auto work = must(context.communicator.submit(context.core.default_stream(), request_of(buffer)));
    EXPECT_TRUE(context.communicator.destroy(std::chrono::milliseconds(50)).is_ok());
    EXPECT_TRUE(work->is_completed());
    expect_in(work->status().message(), "rank 0 left the group while its calls were still in flight");
    destroyed.store(true);
  });
}

TEST(CommunicatorErrorsTest, AGroupIsMadeAgainAfterAnError) {
  const RankThreads ranks(2);
  ranks.communicator(0).abort("first life");
  const auto second = ranks.make_group({.group_name = "second life"});
  ranks.run([&](RankContext& context) {
    const DeviceBuffer buffer = context.buffer(std::size_t{64});
    Communicator& group = *second[static_cast<std::size_t>(context.rank)];
    EXPECT_EQ(context.communicator.run(request_of(buffer)).code(), StatusCode::kAborted);
    EXPECT_TRUE(group.run(request_of(buffer)).is_ok());
    EXPECT_TRUE(group.destroy().is_ok());
  });
}

}  // namespace
}  // namespace neuron
