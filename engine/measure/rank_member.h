// RankMember: one rank of a measuring program: its core and its place in the group.
//
// Used by the rank's own thread only. Every function is collective over the members, in the same order, and
// throws RankFailure when the group fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/collectives/communicator.h"
#include "engine/device/core.h"

namespace neuron {

struct MemberOptions {
  int ranks = 1;
  std::chrono::nanoseconds timeout = std::chrono::minutes(5);  // of each call
  CommunicatorTuning tuning{};
};

class RankMember {
 public:
  // Takes core number `rank` of the process's runtime, with the memory that the environment says.
  RankMember(const MemberOptions& options, int rank, Bootstrap& bootstrap);
  // Leaves the group: peers that still wait for this rank are told.
  ~RankMember();
  RankMember(const RankMember&) = delete;
  RankMember& operator=(const RankMember&) = delete;

  int rank() const { return communicator_->rank(); }
  int ranks() const { return communicator_->size(); }
  Core& core() const { return *core_; }
  Communicator& communicator() const { return *communicator_; }

  Block* allocate(std::size_t nbytes) const;
  void free(Block* block) const;

  void barrier() const;
  // Each element becomes the largest that any rank has there.
  void largest(std::span<double> values) const;
  std::uint64_t total(std::uint64_t value) const;

 private:
  void reduce(std::span<std::byte> values, DType dtype, ReduceOp op) const;

  Core* core_;
  std::shared_ptr<Communicator> communicator_;
};

}  // namespace neuron
