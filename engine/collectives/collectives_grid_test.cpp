// Every collective against a plain reference: world size x dtype x op x count x in place or not.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/collectives/collective.h"
#include "engine/collectives/reduce/reduce.h"
#include "engine/testing/exact_values.h"
#include "engine/testing/rank_threads.h"

namespace neuron {
namespace {

using Bytes = std::vector<std::byte>;

// Small segments and payloads, so that small inputs take every path: 0, 1 and odd counts go through the
// control block, the others in several segments.
constexpr CommunicatorTuning kSmall{.segment_bytes = 256, .inline_bytes = 64};
constexpr std::size_t kCounts[] = {0, 1, 7, 1500};

class CollectivesGrid : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    CommunicatorOptions options;
    options.tuning = kSmall;
    ranks_ = std::make_unique<RankThreads>(GetParam(), options);
  }

  std::size_t size() const { return static_cast<std::size_t>(ranks_->size()); }

  std::vector<Bytes> inputs(DType dtype, ReduceOp op, std::size_t count) const {
    std::vector<Bytes> out;
    for (std::size_t rank = 0; rank < size(); ++rank) {
      out.push_back(op == ReduceOp::kNone ? any_bytes(dtype, count, rank)
                                          : exact_values(dtype, op, count, rank));
    }
    return out;
  }

  // Submits on the default stream, waits, and wants success.
  static void complete(RankContext& context, CollectiveRequest request) {
    Result<std::shared_ptr<Work>> work =
        context.communicator.submit(context.core.default_stream(), std::move(request));
    ASSERT_TRUE(work.is_ok()) << work.status().message();
    const Status status = work.value()->wait(Deadline::after(std::chrono::seconds(60)));
    ASSERT_TRUE(status.is_ok()) << status.message();
  }

  std::unique_ptr<RankThreads> ranks_;
};

Bytes slice(const Bytes& all, std::size_t part, std::size_t nbytes) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(part * nbytes);
  return {begin, begin + static_cast<std::ptrdiff_t>(nbytes)};
}

Bytes join(const std::vector<Bytes>& parts) {
  Bytes out;
  for (const Bytes& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

std::string label(const char* what, DType dtype, ReduceOp op, std::size_t count, bool in_place) {
  return std::string(what) + " " + dtype_name(dtype) + " " + reduce_op_name(op) + " count " +
         std::to_string(count) + (in_place ? " in place" : "");
}

// Calls body for every dtype and op that have a reduction.
template <typename Body>
void for_each_reduction(const Body& body) {
  for (const DType dtype : all_dtypes()) {
    for (const ReduceOp op : all_reduce_ops()) {
      if (find_reduce_kernel(dtype, op) != nullptr) body(dtype, op);
    }
  }
}

double factor_of(int rank) { return rank % 2 == 0 ? 2.0 : 0.5; }

std::vector<double> factors(std::size_t size) {
  std::vector<double> out;
  for (std::size_t rank = 0; rank < size; ++rank) out.push_back(factor_of(static_cast<int>(rank)));
  return out;
}

TEST_P(CollectivesGrid, AllReduce) {
  for_each_reduction([&](DType dtype, ReduceOp op) {
    for (const std::size_t count : kCounts) {
      const std::vector<Bytes> given = inputs(dtype, op, count);
      const Bytes expected = plain_reduce(dtype, op, given, factors(size()));
      for (const bool in_place : {false, true}) {
        ranks_->run([&](RankContext& context) {
          const auto rank = static_cast<std::size_t>(context.rank);
          const DeviceBuffer input = context.buffer(given[rank]);
          const DeviceBuffer output = context.buffer(given[rank].size());
          CollectiveRequest request{
              .kind = CollectiveKind::kAllReduce, .dtype = dtype, .op = op, .count = count};
          request.input = input.data();
          request.output = in_place ? input.data() : output.data();
          request.factor = factor_of(context.rank);
          complete(context, request);
          EXPECT_EQ((in_place ? input : output).read(), expected)
              << label("all_reduce", dtype, op, count, in_place);
          if (!in_place) {
            EXPECT_EQ(input.read(), given[rank]) << "the input changed";
          }
        });
      }
    }
  });
}

TEST_P(CollectivesGrid, Reduce) {
  for_each_reduction([&](DType dtype, ReduceOp op) {
    for (const std::size_t count : kCounts) {
      const std::vector<Bytes> given = inputs(dtype, op, count);
      const Bytes expected = plain_reduce(dtype, op, given, factors(size()));
      const int root = static_cast<int>(count % size());
      for (const bool in_place : {false, true}) {
        ranks_->run([&](RankContext& context) {
          const auto rank = static_cast<std::size_t>(context.rank);
          const DeviceBuffer input = context.buffer(given[rank]);
          const DeviceBuffer output = context.buffer(given[rank].size());
          output.fill(std::byte{0x5A});
          CollectiveRequest request{
              .kind = CollectiveKind::kReduce, .dtype = dtype, .op = op, .root = root, .count = count};
          request.input = input.data();
          request.output = in_place ? input.data() : output.data();
          request.factor = factor_of(context.rank);
          complete(context, request);
          if (context.rank == root) {
            EXPECT_EQ((in_place ? input : output).read(), expected)
                << label("reduce", dtype, op, count, in_place);
          } else {
            EXPECT_EQ(input.read(), given[rank]) << "an input that is no output changed";
            EXPECT_EQ(output.read(), Bytes(output.nbytes(), std::byte{0x5A}));
          }
        });
      }
    }
  });
}

TEST_P(CollectivesGrid, ReduceScatter) {
  for_each_reduction([&](DType dtype, ReduceOp op) {
    for (const std::size_t count : kCounts) {
      const std::vector<Bytes> given = inputs(dtype, op, count * size());
      const Bytes expected = plain_reduce(dtype, op, given, factors(size()));
      const std::size_t nbytes = count * dtype_size(dtype);
      for (const bool in_place : {false, true}) {
        ranks_->run([&](RankContext& context) {
          const auto rank = static_cast<std::size_t>(context.rank);
          const DeviceBuffer input = context.buffer(given[rank]);
          const DeviceBuffer output = context.buffer(nbytes);
          CollectiveRequest request{
              .kind = CollectiveKind::kReduceScatter, .dtype = dtype, .op = op, .count = count};
          request.input = input.data();
          request.output = in_place ? input.data() + rank * nbytes : output.data();
          request.factor = factor_of(context.rank);
          complete(context, request);
          EXPECT_EQ(in_place ? slice(input.read(), rank, nbytes) : output.read(),
                    slice(expected, rank, nbytes))
              << label("reduce_scatter", dtype, op, count, in_place);
        });
      }
    }
  });
}

TEST_P(CollectivesGrid, ReduceScatterOfUnevenLists) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64}) {
    for (const std::size_t count : kCounts) {
      // Rank r gets r * count elements: one rank none.
      std::vector<std::vector<Bytes>> given(size());  // [part][rank]
      for (std::size_t part = 0; part < size(); ++part)
        given[part] = inputs(dtype, ReduceOp::kSum, part * count);
      ranks_->run([&](RankContext& context) {
        const auto rank = static_cast<std::size_t>(context.rank);
        std::vector<DeviceBuffer> parts;
        CollectiveRequest request{
            .kind = CollectiveKind::kReduceScatter, .dtype = dtype, .op = ReduceOp::kSum};
        for (std::size_t part = 0; part < size(); ++part) {
          parts.push_back(context.buffer(given[part][rank]));
          request.input_parts.push_back({parts.back().data(), part * count});
        }
        const DeviceBuffer output = context.buffer(given[rank][rank].size());
        request.count = rank * count;
        request.output = output.data();
        complete(context, request);
        EXPECT_EQ(output.read(), plain_reduce(dtype, ReduceOp::kSum, given[rank]))
            << label("uneven reduce_scatter", dtype, ReduceOp::kSum, count, false);
      });
    }
  }
}

TEST_P(CollectivesGrid, Broadcast) {
  for (const DType dtype : all_dtypes()) {
    for (const std::size_t count : kCounts) {
      const std::vector<Bytes> given = inputs(dtype, ReduceOp::kNone, count);
      const int root = static_cast<int>((count + 1) % size());
      for (const bool in_place : {false, true}) {
        ranks_->run([&](RankContext& context) {
          const DeviceBuffer input = context.buffer(given[static_cast<std::size_t>(context.rank)]);
          const DeviceBuffer output = context.buffer(input.nbytes());
          CollectiveRequest request{
              .kind = CollectiveKind::kBroadcast, .dtype = dtype, .root = root, .count = count};
          request.input = context.rank == root || in_place ? input.data() : nullptr;
          request.output = in_place ? input.data() : output.data();
          complete(context, request);
          EXPECT_EQ((in_place ? input : output).read(), given[static_cast<std::size_t>(root)])
              << label("broadcast", dtype, ReduceOp::kNone, count, in_place);
        });
      }
    }
  }
}

TEST_P(CollectivesGrid, AllGather) {
  for (const DType dtype : all_dtypes()) {
    for (const std::size_t count : kCounts) {
      const std::vector<Bytes> given = inputs(dtype, ReduceOp::kNone, count);
      const std::size_t nbytes = count * dtype_size(dtype);
      for (const bool in_place : {false, true}) {
        ranks_->run([&](RankContext& context) {
          const auto rank = static_cast<std::size_t>(context.rank);
          const DeviceBuffer input = context.buffer(given[rank]);
          const DeviceBuffer output = context.buffer(nbytes * size());
          if (in_place) output.write(given[rank], rank * nbytes);
          CollectiveRequest request{.kind = CollectiveKind::kAllGather, .dtype = dtype, .count = count};
          request.input = in_place ? output.data() + rank * nbytes : input.data();
          request.output = output.data();
          complete(context, request);
          EXPECT_EQ(output.read(), join(given))
              << label("all_gather", dtype, ReduceOp::kNone, count, in_place);
        });
      }
    }
  }
}

TEST_P(CollectivesGrid, AllGatherToUnevenLists) {
  for (const std::size_t count : kCounts) {
    std::vector<Bytes> given;
    for (std::size_t rank = 0; rank < size(); ++rank)
      given.push_back(any_bytes(DType::kInt16, rank * count, rank));
    ranks_->run([&](RankContext& context) {
      const auto rank = static_cast<std::size_t>(context.rank);
      const DeviceBuffer input = context.buffer(given[rank]);
      std::vector<DeviceBuffer> outputs;
      CollectiveRequest request{
          .kind = CollectiveKind::kAllGather, .dtype = DType::kInt16, .count = rank * count};
      for (std::size_t from = 0; from < size(); ++from) {
        outputs.push_back(context.buffer(given[from].size()));
        request.output_parts.push_back({outputs.back().data(), from * count});
      }
      request.input = input.data();
      complete(context, request);
      for (std::size_t from = 0; from < size(); ++from)
        EXPECT_EQ(outputs[from].read(), given[from]) << "count " << count;
    });
  }
}

TEST_P(CollectivesGrid, GatherAndScatter) {
  for (const DType dtype : all_dtypes()) {
    for (const std::size_t count : kCounts) {
      const std::vector<Bytes> given = inputs(dtype, ReduceOp::kNone, count);
      const std::size_t nbytes = count * dtype_size(dtype);
      const int root = static_cast<int>((count + 2) % size());
      for (const bool in_place : {false, true}) {
        ranks_->run([&](RankContext& context) {
          const auto rank = static_cast<std::size_t>(context.rank);
          const bool is_root = context.rank == root;
          const DeviceBuffer one = context.buffer(given[rank]);
          const DeviceBuffer all = context.buffer(nbytes * size());
          if (in_place) all.write(given[rank], rank * nbytes);
          CollectiveRequest gather{
              .kind = CollectiveKind::kGather, .dtype = dtype, .root = root, .count = count};
          gather.input = in_place && is_root ? all.data() + rank * nbytes : one.data();
          gather.output = is_root ? all.data() : nullptr;
          complete(context, gather);
          if (is_root) {
            EXPECT_EQ(all.read(), join(given)) << label("gather", dtype, ReduceOp::kNone, count, in_place);
          }
          one.fill(std::byte{0});
          CollectiveRequest scatter{
              .kind = CollectiveKind::kScatter, .dtype = dtype, .root = root, .count = count};
          scatter.input = is_root ? all.data() : nullptr;
          scatter.output = in_place && is_root ? all.data() + rank * nbytes : one.data();
          complete(context, scatter);
          const Bytes got = in_place && is_root ? slice(all.read(), rank, nbytes) : one.read();
          EXPECT_EQ(got, given[rank]) << label("scatter", dtype, ReduceOp::kNone, count, in_place);
        });
      }
    }
  }
}

TEST_P(CollectivesGrid, AllToAll) {
  for (const DType dtype : all_dtypes()) {
    for (const std::size_t count : kCounts) {
      const std::vector<Bytes> given = inputs(dtype, ReduceOp::kNone, count * size());
      const std::size_t nbytes = count * dtype_size(dtype);
      ranks_->run([&](RankContext& context) {
        const auto rank = static_cast<std::size_t>(context.rank);
        const DeviceBuffer input = context.buffer(given[rank]);
        const DeviceBuffer output = context.buffer(input.nbytes());
        CollectiveRequest request{.kind = CollectiveKind::kAllToAll, .dtype = dtype, .count = count};
        request.input = input.data();
        request.output = output.data();
        complete(context, request);
        for (std::size_t from = 0; from < size(); ++from) {
          EXPECT_EQ(slice(output.read(), from, nbytes), slice(given[from], rank, nbytes))
              << label("all_to_all", dtype, ReduceOp::kNone, count, false);
        }
      });
    }
  }
}

TEST_P(CollectivesGrid, AllToAllOfUnevenParts) {
  for (const std::size_t unit : kCounts) {
    // i gives (i + 2 j) % 3 units to j: zeros among them. Rank 0 says so by one buffer when its parts happen
    // to be equal.
    const auto units = [&](std::size_t from, std::size_t to) { return (from + 2 * to) % 3 * unit; };
    ranks_->run([&](RankContext& context) {
      const auto rank = static_cast<std::size_t>(context.rank);
      std::vector<DeviceBuffer> inputs;
      std::vector<DeviceBuffer> outputs;
      CollectiveRequest request{.kind = CollectiveKind::kAllToAll, .dtype = DType::kFloat32};
      for (std::size_t other = 0; other < size(); ++other) {
        inputs.push_back(context.buffer(any_bytes(DType::kFloat32, units(rank, other), rank * 100 + other)));
        outputs.push_back(context.buffer(units(other, rank) * 4));
        request.input_parts.push_back({inputs.back().data(), units(rank, other)});
        request.output_parts.push_back({outputs.back().data(), units(other, rank)});
      }
      complete(context, request);
      for (std::size_t from = 0; from < size(); ++from) {
        EXPECT_EQ(outputs[from].read(), any_bytes(DType::kFloat32, units(from, rank), from * 100 + rank))
            << "unit " << unit << " from " << from << " to " << rank;
      }
    });
  }
}

TEST_P(CollectivesGrid, BarrierHoldsEveryoneUntilTheLast) {
  std::atomic<int> arrived{0};
  ranks_->run([&](RankContext& context) {
    for (int round = 1; round <= 50; ++round) {
      arrived.fetch_add(1);
      complete(context, {.kind = CollectiveKind::kBarrier});
      EXPECT_GE(arrived.load(), round * context.size);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, CollectivesGrid, testing::Values(1, 2, 3, 4, 7, 8),
                         [](const auto& instance) { return "ranks" + std::to_string(instance.param); });

}  // namespace
}  // namespace neuron
