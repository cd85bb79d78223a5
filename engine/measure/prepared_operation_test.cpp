// Every operation gives what the reference says, and what is wrong is counted.
#include "engine/measure/prepared_operation.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "engine/measure/run_ranks.h"
#include "engine/measure/timing.h"

namespace neuron {
namespace {

constexpr int kRanks = 3;

OperationSpec spec_of(Operation operation, DType dtype, std::size_t count) {
  OperationSpec spec;
  spec.operation = operation;
  spec.ranks = kRanks;
  spec.dtype = dtype;
  spec.root = 1;
  spec.count = operation == Operation::kBarrier ? 0 : count;
  spec.seed = 5;
  return spec;
}

// body(member) on a thread for each rank.
template <typename Body>
void on_ranks(const Body& body) {
  RankLaunch launch;
  launch.program = "test";
  launch.ranks = kRanks;
  launch.processes = false;
  EXPECT_TRUE(run_ranks(launch, [&](int rank, Bootstrap& bootstrap) {
    const RankMember member({kRanks}, rank, bootstrap);
    body(member);
    member.barrier();
    return true;
  }));
}

TEST(PreparedOperationTest, EveryOperationIsRight) {
  on_ranks([](const RankMember& member) {
    for (const Operation operation : kAllOperations) {
      for (const DType dtype : {DType::kUint8, DType::kBFloat16, DType::kFloat32}) {
        for (const std::size_t count : {std::size_t{1}, std::size_t{40'000}}) {
          for (const InputValues values : {InputValues::kRandom, InputValues::kOnes}) {
            OperationSpec spec = spec_of(operation, dtype, count);
            spec.values = values;
            PreparedOperation prepared(member, spec, false, Submission::kDirect);
            member.barrier();
            prepared.run();
            EXPECT_EQ(prepared.count_wrong(), 0U) << operation_name(operation) << dtype_name(dtype) << count;
            member.barrier();
          }
        }
      }
    }
  });
}

TEST(PreparedOperationTest, InPlaceAndOnAStream) {
  on_ranks([](const RankMember& member) {
    for (const Operation operation : {Operation::kAllReduce, Operation::kReduce, Operation::kBroadcast}) {
      PreparedOperation prepared(member, spec_of(operation, DType::kFloat32, 5000), true,
                                 Submission::kStream);
      for (int round = 0; round < 2; ++round) {
        prepared.fill();
        member.barrier();
        prepared.run();
        EXPECT_EQ(prepared.count_wrong(), 0U) << operation_name(operation);
        prepared.clear_input();
        prepared.run();
      }
      member.barrier();
    }
  });
}

TEST(PreparedOperationTest, AnOutputThatIsNotWrittenIsWrongInEveryElement) {
  on_ranks([](const RankMember& member) {
    for (const Operation operation : kAllOperations) {
      const OperationSpec spec = spec_of(operation, DType::kInt16, 777);
      const PreparedOperation prepared(member, spec, false, Submission::kDirect);
      EXPECT_EQ(prepared.count_wrong(), output_count(spec, member.rank())) << operation_name(operation);
    }
  });
}

TEST(PreparedOperationTest, SwappedPartsAndOneBadElementAreCounted) {
  on_ranks([](const RankMember& member) {
    const std::size_t count = 512;
    PreparedOperation prepared(member, spec_of(Operation::kAllToAll, DType::kInt32, count), false,
                               Submission::kDirect);
    member.barrier();
    prepared.run();
    prepared.output()[4 * 700] ^= std::byte{1};
    EXPECT_EQ(prepared.count_wrong(), 1U);
    prepared.output()[4 * 700] ^= std::byte{1};
    std::vector<std::byte> first(prepared.output(), prepared.output() + 4 * count);
    std::memcpy(prepared.output(), prepared.output() + 4 * count, 4 * count);
    std::memcpy(prepared.output() + 4 * count, first.data(), 4 * count);
    EXPECT_EQ(prepared.count_wrong(), 2 * count);
    member.barrier();
  });
}

TEST(TimingTest, TimesAreTheSlowestRanks) {
  on_ranks([](const RankMember& member) {
    const std::vector<double> times = time_each(member, 4, [] {});
    EXPECT_EQ(times.size(), 4U);
    std::vector<double> largest = times;
    member.largest(largest);
    EXPECT_EQ(largest, times);
    double batch = time_batch(member, 3, [] {});
    const double own = batch;
    member.largest({&batch, 1});
    EXPECT_EQ(batch, own);
    EXPECT_EQ(member.total(static_cast<std::uint64_t>(member.rank())), 3U);
  });
}

}  // namespace
}  // namespace neuron
