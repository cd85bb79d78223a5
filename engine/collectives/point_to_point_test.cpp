// Point-to-point messages, with ranks as threads.
#include "engine/collectives/point_to_point.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "engine/testing/device_fixtures.h"
#include "engine/testing/exact_values.h"
#include "engine/testing/gate.h"
#include "engine/testing/rank_threads.h"

namespace neuron {
namespace {

using Direction = PointToPointRequest::Direction;
using Works = std::vector<std::shared_ptr<Work>>;
constexpr auto kPatience = std::chrono::seconds(60);
constexpr std::size_t kLarge = 300'000;

PointToPointRequest message(Direction direction, int peer, const DeviceBuffer& buffer,
                            std::uint64_t tag = 0) {
  PointToPointRequest request{.direction = direction, .peer = peer, .tag = tag};
  request.count = buffer.nbytes();
  request.buffer = buffer.data();
  return request;
}
PointToPointRequest to(int peer, const DeviceBuffer& buffer, std::uint64_t tag = 0) {
  return message(Direction::kSend, peer, buffer, tag);
}
PointToPointRequest from(int peer, const DeviceBuffer& buffer, std::uint64_t tag = 0) {
  return message(Direction::kReceive, peer, buffer, tag);
}

Works post(RankContext& context, std::vector<PointToPointRequest> requests, Stream* stream = nullptr) {
  auto works = context.communicator.submit_messages(
      stream != nullptr ? *stream : context.core.default_stream(), std::move(requests));
  NEURON_CHECK(works.is_ok(), works.status().message());
  return std::move(works).value();
}

void complete(const Works& works) {
  for (const auto& work : works) {
    const Status status = work->wait(Deadline::after(kPatience));
    ASSERT_TRUE(status.is_ok()) << status.message();
  }
}

// What rank `source` sends to rank `target` as its `index`-th message.
std::vector<std::byte> contents(int source, int target, std::size_t nbytes, std::size_t index = 0) {
  return any_bytes(DType::kUint8, nbytes,
                   static_cast<std::uint64_t>(source * 1000 + target) * 10'000 + index);
}

void expect_in(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in: " << text;
}

TEST(PointToPointTest, EveryPairInOneBatchInAnyOrder) {
  for (const int size : {1, 2, 3, 5}) {
    const RankThreads ranks(size);
    ranks.run([&](RankContext& context) {
      for (const std::size_t nbytes : {std::size_t{0}, std::size_t{1}, PointToPointRequest::kEagerBytes,
                                       PointToPointRequest::kEagerBytes + 1, kLarge}) {
        std::vector<DeviceBuffer> sent;
        std::vector<DeviceBuffer> received;
        std::vector<PointToPointRequest> requests;
        for (int peer = 0; peer < size; ++peer) {
          sent.push_back(context.buffer(contents(context.rank, peer, nbytes)));
          received.push_back(context.buffer(nbytes));
          // The ranks list sends and receives in different orders; the own rank is a peer like the others.
          requests.push_back(to(peer, sent.back()));
          requests.insert(context.rank % 2 == 0 ? requests.begin() : requests.end(),
                          from(peer, received.back()));
        }
        complete(post(context, std::move(requests)));
        for (int peer = 0; peer < size; ++peer) {
          EXPECT_EQ(received[static_cast<std::size_t>(peer)].read(), contents(peer, context.rank, nbytes));
        }
      }
    });
  }
}

TEST(PointToPointTest, TagsKeepMessagesApartAndOrderHoldsWithinATag) {
  const RankThreads ranks(2);
  ranks.run([](RankContext& context) {
    for (const std::size_t nbytes : {std::size_t{16}, kLarge}) {
      std::vector<DeviceBuffer> buffers;
      for (std::size_t i = 0; i < 4; ++i) {
        buffers.push_back(context.rank == 0 ? context.buffer(contents(0, 1, nbytes, i))
                                            : context.buffer(nbytes));
      }
      if (context.rank == 0) {
        Works works = post(context, {to(1, buffers[0], 7), to(1, buffers[1], 8)});
        for (const auto& work : post(context, {to(1, buffers[2], 7), to(1, buffers[3], 8)}))
          works.push_back(work);
        complete(works);
        continue;
      }
      // Tag 8 first, though it was sent later.
      Works works = post(context, {from(0, buffers[1], 8)});
      complete(works);
      works = post(context, {from(0, buffers[3], 8), from(0, buffers[0], 7), from(0, buffers[2], 7)});
      complete(works);
      for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(buffers[i].read(), contents(0, 1, nbytes, i)) << i;
    }
  });
}

TEST(PointToPointTest, AReceiveFromAnyRankTellsWhoseMessageItGot) {
  const RankThreads ranks(4);
  ranks.run([](RankContext& context) {
    if (context.rank != 0) {
      const DeviceBuffer buffer = context.buffer(contents(context.rank, 0, 5000));
      complete(post(context, {to(0, buffer, 3)}));
      return;
    }
    std::vector<bool> seen(4, false);
    for (int i = 0; i < 3; ++i) {
      const DeviceBuffer buffer = context.buffer(std::size_t{5000});
      const Works works = post(context, {from(PointToPointRequest::kAnyPeer, buffer, 3)});
      complete(works);
      const int source = works[0]->source();
      ASSERT_GT(source, 0);
      EXPECT_FALSE(seen[static_cast<std::size_t>(source)]);
      seen[static_cast<std::size_t>(source)] = true;
      EXPECT_EQ(buffer.read(), contents(source, 0, 5000));
    }
  });
}

TEST(PointToPointTest, AThousandMessagesInOneBatchTwice) {
  const RankThreads ranks(2);
  ranks.run([](RankContext& context) {
    const int peer = 1 - context.rank;
    for (int round = 0; round < 2; ++round) {
      std::mt19937 random(static_cast<unsigned>(round));  // the same sizes on both ranks
      std::vector<DeviceBuffer> sent;
      std::vector<DeviceBuffer> received;
      std::vector<PointToPointRequest> requests;
      for (std::size_t i = 0; i < 1000; ++i) {
        const std::size_t nbytes = 8192 + random() % (15 * 8192);
        sent.push_back(context.buffer(contents(context.rank, peer, nbytes, i)));
        received.push_back(context.buffer(nbytes));
        requests.push_back(to(peer, sent.back()));
        requests.push_back(from(peer, received.back()));
      }
      complete(post(context, std::move(requests)));
      for (std::size_t i = 0; i < 1000; ++i)
        ASSERT_EQ(received[i].read(), contents(peer, context.rank, received[i].nbytes(), i)) << i;
    }
  });
}

TEST(PointToPointTest, MessagesWaitForTheirStreamAndStreamsForTheirMessages) {
  const RankThreads ranks(2);
  ranks.run([](RankContext& context) {
    for (const std::size_t nbytes : {std::size_t{100}, kLarge}) {
      Stream& stream = context.core.default_stream();
      Stream& reader = context.core.acquire_stream(0);
      const DeviceBuffer buffer = context.buffer(nbytes);
      const auto data = contents(0, 1, nbytes);
      Gate gate;
      stream.submit(gate.command());
      Works works;
      std::vector<std::byte> seen;
      if (context.rank == 0) {
        // Produced by the stream, sent afterwards, overwritten after that.
        submit(stream, [&] { buffer.write(data); });
        works = post(context, {to(1, buffer)});
        works[0]->order(stream);
        submit(stream, [&] { buffer.fill(std::byte{0}); });
      } else {
        // The stream still uses the buffer when the message comes.
        submit(stream, [&] { buffer.fill(std::byte{1}); });
        works = post(context, {from(0, buffer)});
        works[0]->order(reader);
        submit(reader, [&] { seen = buffer.read(); });
      }
      EXPECT_FALSE(works[0]->is_completed());
      gate.open();
      complete(works);
      ASSERT_TRUE(stream.wait_until(stream.submitted(), Deadline::after(kPatience)).is_ok());
      ASSERT_TRUE(reader.wait_until(reader.submitted(), Deadline::after(kPatience)).is_ok());
      if (context.rank == 1) {
        EXPECT_EQ(seen, data);
      }
    }
  });
}

// Each rank sends first, and its receive stands behind the send in the stream.
TEST(PointToPointTest, AnUnbatchedExchangeOfSmallMessagesFinishes) {
  const RankThreads ranks(2);
  ranks.run([](RankContext& context) {
    Stream& stream = context.core.default_stream();
    const int peer = 1 - context.rank;
    const DeviceBuffer sent = context.buffer(contents(context.rank, peer, 1000));
    const DeviceBuffer received = context.buffer(std::size_t{1000});
    const Works sends = post(context, {to(peer, sent)});
    sends[0]->order(stream);
    complete(post(context, {from(peer, received)}));
    EXPECT_EQ(received.read(), contents(peer, context.rank, 1000));
  });
}

TEST(PointToPointTest, AnUnbatchedExchangeOfLargeMessagesIsNamed) {
  const RankThreads ranks(2, {.timeout = std::chrono::milliseconds(300)});
  ranks.run([](RankContext& context) {
    Stream& stream = context.core.default_stream();
    const int peer = 1 - context.rank;
    const DeviceBuffer sent = context.buffer(kLarge);
    const DeviceBuffer received = context.buffer(kLarge);
    const Works sends = post(context, {to(peer, sent)});
    sends[0]->order(stream);
    const auto receives = context.communicator.submit_messages(stream, {from(peer, received)});
    const Status status = sends[0]->wait(Deadline::after(kPatience));
    EXPECT_EQ(status.code(), StatusCode::kTimeout);
    expect_in(status.message(), "not received within the timeout of 0.3 s");
    expect_in(status.message(), "both ranks send and neither receives");
    static_cast<void>(stream.wait_until(stream.submitted(), Deadline::after(kPatience)).is_ok());
    if (receives.is_ok()) {
      EXPECT_FALSE(receives.value()[0]->wait(Deadline::after(kPatience)).is_ok());
    }
  });
}

TEST(PointToPointTest, SizesThatDifferAreNamed) {
  const RankThreads ranks(2);
  ranks.run([](RankContext& context) {
    const DeviceBuffer buffer = context.buffer(std::size_t{kLarge});
    PointToPointRequest request = context.rank == 0 ? to(1, buffer, 5) : from(0, buffer, 5);
    if (context.rank == 1) request.count = 10;
    request.origin = "pipeline.py:8";
    const Works works = post(context, {request});
    const Status status = works[0]->wait(Deadline::after(kPatience));
    EXPECT_EQ(status.code(), StatusCode::kMismatch);
    expect_in(status.message(), "rank 1 called recv(uint8[10] from rank 0, tag 5) at pipeline.py:8");
    expect_in(status.message(), "got uint8[300000] from rank 0, tag 5");
  });
}

TEST(PointToPointTest, AMessageThatDoesNotComeIsNamed) {
  const RankThreads ranks(2, {.timeout = std::chrono::milliseconds(300)});
  ranks.run([](RankContext& context) {
    const DeviceBuffer buffer = context.buffer(std::size_t{8});
    if (context.rank == 0) {
      complete(post(context, {to(1, buffer, 1)}));
      return;
    }
    const Works works = post(context, {from(0, buffer, 2)});
    const Status status = works[0]->wait(Deadline::after(kPatience));
    EXPECT_EQ(status.code(), StatusCode::kTimeout);
    expect_in(status.message(),
              "recv(uint8[8] from rank 0, tag 2) #1 of rank 1: nothing came within the timeout of 0.3 s");
  });
}

TEST(PointToPointTest, APeerThatHasLeftIsNamed) {
  const RankThreads ranks(2);
  ranks.run([](RankContext& context) {
    const DeviceBuffer buffer = context.buffer(std::size_t{8});
    if (context.rank == 0) {
      buffer.fill(std::byte{9});
      complete(post(context, {to(1, buffer)}));
      EXPECT_TRUE(context.communicator.destroy().is_ok());
      return;
    }
    // What it sent before it left still arrives.
    complete(post(context, {from(0, buffer)}));
    EXPECT_EQ(buffer.read(), std::vector<std::byte>(8, std::byte{9}));
    for (const int peer : {0, PointToPointRequest::kAnyPeer}) {
      const auto works =
          context.communicator.submit_messages(context.core.default_stream(), {from(peer, buffer)});
      const Status status =
          works.is_ok() ? works.value()[0]->wait(Deadline::after(kPatience)) : works.status();
      EXPECT_EQ(status.code(), StatusCode::kAborted);
      expect_in(status.message(), "rank 0 has left the group");
    }
  });
}

TEST(PointToPointTest, AbortAndDestroyEndWhatIsOnItsWay) {
  for (const bool abort : {true, false}) {
    const RankThreads ranks(2);
    ranks.run([&](RankContext& context) {
      if (context.rank == 1) return;
      const DeviceBuffer buffer = context.buffer(kLarge);
      const Works works = post(context, {to(1, buffer), from(1, buffer)});
      if (abort) {
        context.communicator.abort("enough");
      } else {
        EXPECT_TRUE(context.communicator.destroy(std::chrono::milliseconds(50)).is_ok());
      }
      for (const auto& work : works)
        EXPECT_EQ(work->wait(Deadline::after(kPatience)).code(), StatusCode::kAborted);
    });
  }
}

TEST(PointToPointTest, AFailureOfComputeReachesThePeerByName) {
  const RankThreads ranks(2);
  std::atomic<bool> posted{false};
  ranks.run([&](RankContext& context) {
    const DeviceBuffer buffer = context.buffer(std::size_t{8});
    if (context.rank == 0) {
      while (!posted.load()) std::this_thread::yield();
      context.core.default_stream().submit(make_command(
          []() -> Status { return {StatusCode::kExecution, "bad shape"}; }, RunMode::kQueued, "mm"));
    }
    const Works works = post(context, {context.rank == 0 ? to(1, buffer) : from(0, buffer)});
    posted.store(true);
    const Status status = works[0]->wait(Deadline::after(kPatience));
    EXPECT_EQ(status.code(), StatusCode::kAborted);
    expect_in(status.message(),
              "rank 0 failed in mm and cannot take part in send(uint8[8] to rank 1, tag 0)");
    // The error of the work reaches the streams that are ordered after it.
    Stream& side = context.core.acquire_stream(0);
    works[0]->order(side);
    const StreamErrorPtr error = side.synchronize();
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->status.code(), StatusCode::kAborted);
  });
}

TEST(PointToPointTest, InvalidRequestsAreRefused) {
  const RankThreads ranks(2);
  const DeviceBuffer buffer(ranks.core(0), std::size_t{64});
  std::vector<std::byte> host(64);
  const auto code = [&](PointToPointRequest request) {
    return ranks.communicator(0).submit_messages(ranks.core(0).default_stream(), {request}).status().code();
  };
  EXPECT_EQ(code(to(2, buffer)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(to(PointToPointRequest::kAnyPeer, buffer)), StatusCode::kInvalidArgument);
  PointToPointRequest request = to(1, buffer);
  request.buffer = host.data();
  EXPECT_EQ(code(request), StatusCode::kInvalidArgument);
  request = to(1, buffer);
  request.count = std::size_t{1} << 40;
  EXPECT_EQ(code(request), StatusCode::kInvalidArgument);
}

TEST(PointToPointTest, CollectivesAndMessagesOfOneGroupDoNotDisturbEachOther) {
  const RankThreads ranks(3);
  ranks.run([](RankContext& context) {
    const int next = (context.rank + 1) % 3;
    const int previous = (context.rank + 2) % 3;
    for (std::size_t i = 0; i < 100; ++i) {
      const std::size_t nbytes = i % 2 == 0 ? 64 : 50'000;
      const DeviceBuffer sent = context.buffer(contents(context.rank, next, nbytes, i));
      const DeviceBuffer received = context.buffer(nbytes);
      const Works works = post(context, {to(next, sent), from(previous, received)});
      ASSERT_TRUE(context.communicator.run({.kind = CollectiveKind::kBarrier}).is_ok());
      complete(works);
      ASSERT_EQ(received.read(), contents(previous, context.rank, nbytes, i));
    }
  });
}

}  // namespace
}  // namespace neuron
