// The communicator's contract on good days: numbers, streams, units, routing, order, life and end.
#include "engine/collectives/communicator.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/testing/device_fixtures.h"
#include "engine/testing/exact_values.h"
#include "engine/testing/gate.h"
#include "engine/testing/rank_threads.h"

namespace neuron {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

CollectiveRequest sum_of(const DeviceBuffer& buffer) {
  CollectiveRequest request{
      .kind = CollectiveKind::kAllReduce, .dtype = DType::kFloat32, .op = ReduceOp::kSum};
  request.count = buffer.nbytes() / sizeof(float);
  request.input = request.output = buffer.data();
  return request;
}

std::vector<std::byte> bytes_of(std::vector<float> values) {
  std::vector<std::byte> out(values.size() * sizeof(float));
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

std::vector<float> floats_in(const DeviceBuffer& buffer) {
  std::vector<float> out(buffer.nbytes() / sizeof(float));
  std::memcpy(out.data(), buffer.data(), buffer.nbytes());
  return out;
}

std::shared_ptr<Work> must(Result<std::shared_ptr<Work>> work) {
  NEURON_CHECK(work.is_ok(), work.status().message());
  return std::move(work).value();
}

void must(const Status& status) { NEURON_CHECK(status.is_ok(), status.message()); }

TEST(CommunicatorTest, WorkTellsWhatWasSubmittedAndWhenItRan) {
  const RankThreads ranks(2);
  ranks.run([](RankContext& context) {
    const DeviceBuffer buffer = context.buffer(bytes_of({1, 2, 3}));
    CollectiveRequest request = sum_of(buffer);
    request.name = "all_reduce_of_a_test";
    request.origin = "train.py:12";
    EXPECT_EQ(context.communicator.next_sequence(), 1U);
    const auto work = must(context.communicator.submit(context.core.default_stream(), request));
    EXPECT_EQ(context.communicator.next_sequence(), 2U);
    must(work->wait(Deadline::after(kPatience)));
    EXPECT_TRUE(work->is_completed());
    EXPECT_TRUE(work->status().is_ok());
    EXPECT_EQ(work->sequence(), 1U);
    EXPECT_EQ(work->requests(), 1U);
    EXPECT_EQ(work->group_name(), "test");
    EXPECT_EQ(work->stream(), &context.core.default_stream());
    EXPECT_STREQ(work->summary().name, "all_reduce_of_a_test");
    EXPECT_EQ(work->summary().origin, "train.py:12");
    EXPECT_EQ(work->summary().count, 3U);
    EXPECT_LE(work->submitted_ns(), work->started_ns());
    EXPECT_LE(work->started_ns(), work->ended_ns());
    EXPECT_EQ(floats_in(buffer), (std::vector<float>{2, 4, 6}));
  });
}

Status nothing_found() { return Status::ok(); }

TEST(CommunicatorTest, NobodyLeavesAnAssemblyBeforeAllHaveCome) {
  const RankThreads ranks(4);
  std::atomic<int> came{0};
  ranks.run([&](RankContext& context) {
    for (int turn = 1; turn <= 50; ++turn) {
      if (turn % 4 == context.rank) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++came;
      must(context.communicator.assemble(Deadline::after(kPatience), nothing_found));
      EXPECT_GE(came.load(), 4 * turn);
    }
    EXPECT_EQ(context.communicator.next_sequence(), 1U);
  });
}

TEST(CommunicatorTest, AnAssemblyNamesWhoDoesNotCome) {
  const RankThreads ranks(3);
  const Status late =
      ranks.communicator(1).assemble(Deadline::after(std::chrono::milliseconds(50)), nothing_found);
  EXPECT_EQ(late.code(), StatusCode::kTimeout);
  EXPECT_NE(late.message().find("rank 0, rank 2 did not come in time"), std::string::npos) << late.message();
}

TEST(CommunicatorTest, WhatIsFoundElsewhereEndsAnAssemblyOnAllMembers) {
  const RankThreads ranks(3);
  ranks.run([](RankContext& context) {
    if (context.rank == 2) return;
    const auto look = [&] {
      return context.rank == 0 ? Status(StatusCode::kAborted, "rank 2 has no memory") : Status::ok();
    };
    const Status told = context.communicator.assemble(Deadline::after(kPatience), look);
    EXPECT_EQ(told.code(), StatusCode::kAborted);
    EXPECT_NE(told.message().find("rank 2 has no memory"), std::string::npos) << told.message();
  });
}

TEST(CommunicatorTest, AnInvalidRequestTakesNoNumber) {
  const RankThreads ranks(2);
  ranks.run([](RankContext& context) {
    Communicator& group = context.communicator;
    Stream& stream = context.core.default_stream();
    const DeviceBuffer buffer = context.buffer(64);
    const auto rejects = [&](const CollectiveRequest& request, const char* word) {
      const auto result = group.submit(stream, request);
      ASSERT_FALSE(result.is_ok()) << word;
      EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
      EXPECT_NE(result.status().message().find(word), std::string::npos) << result.status().message();
      EXPECT_EQ(group.run(request).code(), StatusCode::kInvalidArgument);
    };
    std::vector<float> host(16);
    CollectiveRequest request = sum_of(buffer);
    request.input = host.data();
    rejects(request, "input is not memory of this rank's core");
    request = sum_of(buffer);
    request.count = std::size_t{1} << 40;
    rejects(request, "not memory");
    request.count = std::size_t{1} << 62;
    rejects(request, "too many elements");
    request = sum_of(buffer);
    request.op = ReduceOp::kBand;
    rejects(request, "float32 has no reduction band");
    request = sum_of(buffer);
    request.output = nullptr;
    rejects(request, "output buffer is null");
    request = {.kind = CollectiveKind::kBroadcast, .root = 2, .count = 1};
    request.input = request.output = buffer.data();
    rejects(request, "root 2");
    request = {.kind = CollectiveKind::kAllToAll};
    request.input_parts = {{buffer.data(), 1}};
    rejects(request, "1 entries for 2 ranks");
    request = sum_of(buffer);
    request.input_parts = {{buffer.data(), 1}, {buffer.data(), 1}};
    rejects(request, "takes no list of input parts");
    EXPECT_EQ(group.next_sequence(), 1U);
    must(group.run(sum_of(buffer)));
  });
}

TEST(CommunicatorTest, PremulFactorMayLieInDeviceMemory) {
  const RankThreads ranks(2);
  ranks.run([](RankContext& context) {
    const DeviceBuffer buffer = context.buffer(bytes_of({1, 10}));
    const DeviceBuffer factor = context.buffer(bytes_of({context.rank == 0 ? 3.0F : 0.5F}));
    CollectiveRequest request = sum_of(buffer);
    request.op = ReduceOp::kPremulSum;
    request.factor_element = factor.data();
    must(context.communicator.run(request));
    EXPECT_EQ(floats_in(buffer), (std::vector<float>{3.5F, 35}));
  });
}

TEST(CommunicatorTest, AUnitOfSeveralRequestsHasOneWorkAndConsecutiveNumbers) {
  const RankThreads ranks(3);
  ranks.run([](RankContext& context) {
    Stream& stream = context.core.default_stream();
    const DeviceBuffer small = context.buffer(bytes_of({1}));
    const DeviceBuffer large = context.buffer(bytes_of(std::vector<float>(100'000, 2)));
    const DeviceBuffer other = context.buffer(exact_values(DType::kInt64, ReduceOp::kMax, 33, 7));
    CollectiveRequest integers{
        .kind = CollectiveKind::kAllReduce, .dtype = DType::kInt64, .op = ReduceOp::kMax};
    integers.count = 33;
    integers.input = integers.output = other.data();
    const auto work =
        must(context.communicator.submit_coalesced(stream, stream, {sum_of(small), sum_of(large), integers}));
    EXPECT_EQ(work->requests(), 3U);
    EXPECT_EQ(context.communicator.next_sequence(), 4U);
    must(work->wait(Deadline::after(kPatience)));
    EXPECT_EQ(floats_in(small), (std::vector<float>{3}));
    EXPECT_EQ(floats_in(large), std::vector<float>(100'000, 6));
    EXPECT_EQ(other.read(), exact_values(DType::kInt64, ReduceOp::kMax, 33, 7));
  });
}

// The request waits for what the submitting stream had, and holds what it gets afterwards.
TEST(CommunicatorTest, ARoutedRequestIsOrderedWithTheSubmittingStream) {
  const RankThreads ranks(2);
  ranks.run([](RankContext& context) {
    Stream& side = context.core.acquire_stream(0);
    Stream& target = context.core.default_stream();
    const DeviceBuffer buffer = context.buffer(bytes_of({0}));
    Gate gate;
    side.submit(gate.command());
    submit(side, [&] { buffer.write(bytes_of({5})); });
    const auto work = must(context.communicator.submit_routed(side, target, sum_of(buffer)));
    EXPECT_EQ(work->stream(), &target);
    std::vector<float> seen;
    submit(side, [&] { seen = floats_in(buffer); });
    EXPECT_FALSE(work->is_completed());
    EXPECT_FALSE(side.query());
    gate.open();
    must(side.wait_until(side.submitted(), Deadline::after(kPatience)));
    EXPECT_EQ(seen, (std::vector<float>{10}));
    EXPECT_TRUE(work->is_completed());
  });
}

// FSDP2's way: one group, gathers on one stream and reductions on another.
TEST(CommunicatorTest, RequestsOfOneGroupRunOnSeveralStreamsAtOnce) {
  const RankThreads ranks(3);
  ranks.run([](RankContext& context) {
    constexpr int kRounds = 300;
    Stream* streams[] = {&context.core.default_stream(), &context.core.acquire_stream(0),
                         &context.core.acquire_stream(-1)};
    std::vector<DeviceBuffer> buffers;
    std::vector<std::shared_ptr<Work>> works;
    for (int i = 0; i < kRounds; ++i) {
      const std::size_t count = i % 3 == 0 ? 1 : i % 3 == 1 ? 5'000 : 70'000;
      buffers.push_back(context.buffer(bytes_of(std::vector<float>(count, static_cast<float>(i)))));
      works.push_back(must(context.communicator.submit(*streams[i % 3], sum_of(buffers.back()))));
    }
    for (int i = 0; i < kRounds; ++i) {
      const auto at = static_cast<std::size_t>(i);
      must(works[at]->wait(Deadline::after(kPatience)));
      EXPECT_EQ(floats_in(buffers[at]),
                std::vector<float>(buffers[at].nbytes() / 4, static_cast<float>(3 * i)));
    }
  });
}

TEST(CommunicatorTest, TwoGroupsMayBeUsedInOppositeOrderOnTwoStreams) {
  const RankThreads ranks(2);
  const auto others = ranks.make_group({.group_name = "other"});
  ranks.run([&](RankContext& context) {
    Communicator& first = context.communicator;
    Communicator& second = *others[static_cast<std::size_t>(context.rank)];
    Stream& one = context.core.acquire_stream(0);
    Stream& two = context.core.acquire_stream(0);
    for (int round = 0; round < 200; ++round) {
      const DeviceBuffer a = context.buffer(bytes_of(std::vector<float>(3000, 1)));
      const DeviceBuffer b = context.buffer(bytes_of(std::vector<float>(3000, 2)));
      const auto submit_a = [&] { return must(first.submit(one, sum_of(a))); };
      const auto submit_b = [&] { return must(second.submit(two, sum_of(b))); };
      std::shared_ptr<Work> works[2];
      if ((context.rank + round) % 2 == 0) {
        works[0] = submit_a();
        works[1] = submit_b();
      } else {
        works[0] = submit_b();
        works[1] = submit_a();
      }
      for (const auto& work : works) must(work->wait(Deadline::after(kPatience)));
      EXPECT_EQ(floats_in(a), std::vector<float>(3000, 2));
      EXPECT_EQ(floats_in(b), std::vector<float>(3000, 4));
    }
  });
  for (const auto& group : others) must(group->destroy());
}

// A number may be used again only when every rank has finished the one that had its slot: with #1 held back,
// another stream gets as far as the ring of slots reaches, and no further.
TEST(CommunicatorTest, SlotsAreNotReusedBeforeEveryRankHasFinished) {
  constexpr std::size_t kCalls = 3000;
  const RankThreads ranks(2);
  Gate gate;
  std::atomic<int> checked{0};
  ranks.run([&](RankContext& context) {
    Stream& held = context.core.acquire_stream(0);
    Stream& free = context.core.acquire_stream(0);
    if (context.rank == 1) held.submit(gate.command());
    const DeviceBuffer first = context.buffer(bytes_of({1}));
    const auto first_work = must(context.communicator.submit(held, sum_of(first)));
    const DeviceBuffer values = context.buffer(bytes_of(std::vector<float>(kCalls, 1)));
    std::vector<std::shared_ptr<Work>> works;
    // More than the run-ahead limit: submitted by a thread of its own.
    std::thread submitter([&] {
      for (std::size_t i = 0; i < kCalls; ++i) {
        CollectiveRequest request = sum_of(values);
        request.count = 1;
        request.input = request.output = values.data() + i * sizeof(float);
        auto work = must(context.communicator.submit(free, request));
        if (i < 100) works.push_back(std::move(work));
        if (i == 99) checked.fetch_add(1);
      }
    });
    while (checked.load() < 2) std::this_thread::yield();
    must(works[20]->wait(Deadline::after(kPatience)));
    EXPECT_FALSE(works[99]->is_completed());
    EXPECT_FALSE(first_work->is_completed());
    checked.fetch_add(1);
    while (checked.load() < 4) std::this_thread::yield();
    if (context.rank == 1) gate.open();
    submitter.join();
    must(first_work->wait(Deadline::after(kPatience)));
    must(free.wait_until(free.submitted(), Deadline::after(kPatience)));
    EXPECT_EQ(floats_in(values), std::vector<float>(kCalls, 2));
  });
}

TEST(CommunicatorTest, ManySmallCallsWithOneSlowRank) {
  const RankThreads ranks(4);
  ranks.run([](RankContext& context) {
    const DeviceBuffer buffer = context.buffer(bytes_of({1}));
    for (int i = 0; i < 4000; ++i) {
      if (context.rank == 3 && i % 64 == 0) std::this_thread::yield();
      buffer.write(bytes_of({static_cast<float>(i)}));
      must(context.communicator.run(sum_of(buffer)));
      ASSERT_EQ(floats_in(buffer), (std::vector<float>{static_cast<float>(4 * i)}));
    }
  });
}

TEST(CommunicatorTest, NoRankLeavesACallBeforeItsBuffersAreFree) {
  // The owner writes to its input at once when the call returns: no peer may still be reading it.
  const RankThreads ranks(4, {.tuning = {.segment_bytes = 4096, .inline_bytes = 0}});
  ranks.run([](RankContext& context) {
    const auto size = static_cast<std::size_t>(context.size);
    const DeviceBuffer input = context.buffer(std::size_t{40'000});
    const DeviceBuffer output = context.buffer(std::size_t{40'000} * size);
    for (int i = 0; i < 300; ++i) {
      input.fill(static_cast<std::byte>(i + context.rank));
      CollectiveRequest request{.kind = CollectiveKind::kAllGather, .count = input.nbytes()};
      request.input = input.data();
      request.output = output.data();
      must(context.communicator.run(request));
      input.fill(std::byte{0xEE});
      for (std::size_t from = 0; from < size; ++from) {
        const auto expected = static_cast<std::byte>(i + static_cast<int>(from));
        ASSERT_EQ(output.data()[from * input.nbytes()], expected);
        ASSERT_EQ(output.data()[(from + 1) * input.nbytes() - 1], expected);
      }
    }
  });
}

struct Footprint {
  std::ptrdiff_t descriptors, maps, threads;
  bool operator==(const Footprint&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Footprint& footprint) {
  return out << footprint.descriptors << " descriptors, " << footprint.maps << " maps of groups and heaps, "
             << footprint.threads << " threads";
}

Footprint measure() {
  const auto entries = [](const char* path) {
    const std::filesystem::directory_iterator all(path);
    return std::distance(begin(all), end(all));
  };
  std::ifstream file("/proc/self/maps");
  std::string line;
  std::ptrdiff_t maps = 0;
  while (std::getline(file, line)) maps += line.find("memfd:neuron_") != std::string::npos ? 1 : 0;
  return {entries("/proc/self/fd"), maps, entries("/proc/self/task")};
}

TEST(CommunicatorTest, MakingAndDestroyingGroupsLeavesNothingBehind) {
  const RankThreads ranks(3);
  const auto round = [&] {
    const auto group = ranks.make_group({.group_name = "again"});
    ranks.run([&](RankContext& context) {
      Communicator& own = *group[static_cast<std::size_t>(context.rank)];
      const DeviceBuffer buffer = context.buffer(bytes_of(std::vector<float>(500, 1)));
      must(must(own.submit(context.core.default_stream(), sum_of(buffer)))->wait(Deadline::after(kPatience)));
      must(own.destroy());
      must(own.destroy());
      EXPECT_EQ(own.submit(context.core.default_stream(), sum_of(buffer)).status().code(),
                StatusCode::kAborted);
    });
  };
  round();
  const Footprint before = measure();
  for (int i = 0; i < 100; ++i) round();
  EXPECT_EQ(measure(), before);
}

TEST(CommunicatorTest, DestroyWaitsForWhatIsInFlight) {
  const RankThreads ranks(2);
  ranks.run([](RankContext& context) {
    Stream& stream = context.core.default_stream();
    Gate gate;
    stream.submit(gate.command());
    const DeviceBuffer buffer = context.buffer(bytes_of({4}));
    const auto work = must(context.communicator.submit(stream, sum_of(buffer)));
    std::thread opener([&] { gate.open(); });
    must(context.communicator.destroy());
    opener.join();
    EXPECT_TRUE(work->is_completed());
    EXPECT_EQ(floats_in(buffer), (std::vector<float>{8}));
  });
}

TEST(CommunicatorTest, AForkedChildIsRefusedAndHarmsNobody) {
  const RankThreads ranks(2);
  const DeviceBuffer buffer(ranks.core(0), bytes_of({1}));
  const pid_t child = fork();
  if (child == 0) {
    Communicator& group = ranks.communicator(0);
    const bool refused = group.run({.kind = CollectiveKind::kBarrier}).code() == StatusCode::kUnavailable &&
                         group.submit(ranks.core(0).default_stream(), sum_of(buffer)).status().code() ==
                             StatusCode::kUnavailable &&
                         group.aborted() && group.status().code() == StatusCode::kUnavailable;
    group.abort("a child");
    (void)group.destroy().is_ok();
    std::_Exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ranks.run([](RankContext& context) { must(context.communicator.run({.kind = CollectiveKind::kBarrier})); });
}

// As many as a trn2.48xlarge has logical cores; small calls and large ones.
TEST(CommunicatorTest, SixtyFourRanks) {
  constexpr std::size_t kRanks = 64;
  const RankThreads ranks(kRanks);
  ranks.run([](RankContext& context) {
    const auto own = static_cast<float>(context.rank);
    for (const std::size_t count : {std::size_t{1}, std::size_t{20'000}}) {
      const DeviceBuffer part = context.buffer(bytes_of(std::vector<float>(count, own)));
      const DeviceBuffer whole = context.buffer(kRanks * part.nbytes());
      const auto run = [&](CollectiveKind kind, const DeviceBuffer& input, const DeviceBuffer& output) {
        CollectiveRequest request{.kind = kind, .dtype = DType::kFloat32, .count = count};
        if (kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter)
          request.op = ReduceOp::kSum;
        if (kind == CollectiveKind::kBroadcast) request.root = kRanks - 1;
        request.input = input.data();
        request.output = output.data();
        must(context.communicator.run(request));
      };
      const auto expect_ranks = [&](const DeviceBuffer& buffer) {
        const std::vector<float> got = floats_in(buffer);
        for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], static_cast<float>(i / count)) << i;
      };
      run(CollectiveKind::kAllGather, part, whole);
      expect_ranks(whole);
      // Everybody has the same: rank r gives r to everybody, part r of the sum is 64 r.
      const DeviceBuffer exchanged = context.buffer(whole.nbytes());
      run(CollectiveKind::kAllToAll, whole, exchanged);
      EXPECT_EQ(floats_in(exchanged), std::vector<float>(kRanks * count, own));
      run(CollectiveKind::kReduceScatter, whole, part);
      EXPECT_EQ(floats_in(part), std::vector<float>(count, kRanks * own));
      run(CollectiveKind::kAllReduce, part, part);
      EXPECT_EQ(floats_in(part), std::vector<float>(count, kRanks * (kRanks * (kRanks - 1) / 2)));
      std::memcpy(part.data(), bytes_of(std::vector<float>(count, own)).data(), part.nbytes());
      run(CollectiveKind::kBroadcast, part, part);
      EXPECT_EQ(floats_in(part), std::vector<float>(count, kRanks - 1));
      must(context.communicator.run({.kind = CollectiveKind::kBarrier}));
    }
  });
}

}  // namespace
}  // namespace neuron
