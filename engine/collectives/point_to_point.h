// PointToPointRequest: one message of one rank to one other. Open collective.h first.
//
// Messages match by (sender, tag), in the order in which the host posted them; different tags and peers do
// not wait for each other. They never stand in a stream's queue: a request is *ready* when the stream has
// reached its place, and whoever needs its outcome orders itself after the Work. So the requests of one call
// may be listed in any order. Up to kEagerBytes a send is complete once the message is under way; a larger
// one when it has been received.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/base/dtype.h"
#include "engine/base/status.h"

namespace neuron {

struct PointToPointRequest {
  enum class Direction : std::uint8_t { kSend, kReceive };
  static constexpr int kAnyPeer = -1;  // of a receive: from whichever rank comes first
  static constexpr std::size_t kEagerBytes = 4096;

  Direction direction = Direction::kSend;
  int peer = 0;  // rank in the group; may be the own one
  std::uint64_t tag = 0;
  DType dtype = DType::kUint8;
  std::size_t count = 0;
  void* buffer = nullptr;  // a send only reads it

  std::chrono::nanoseconds timeout{0};  // 0: the group's; starts when the request is ready
  const char* name = nullptr;           // a literal; null: "send" or "recv"
  std::string origin{};                 // "file.py:12", or empty
  // Kept until the work is done. Its destruction must not need Python's lock.
  std::shared_ptr<const void> holds{};
};

// kInvalidArgument says what is wrong.
Status validate(const PointToPointRequest& request, int size);
// "send(float32[16] to rank 1, tag 0)", for messages.
std::string describe(const PointToPointRequest& request);

}  // namespace neuron
