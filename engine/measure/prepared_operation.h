// PreparedOperation: an operation of one rank with its buffers, ready to be run any number of times.
//
// Used by the rank's own thread. Throws RankFailure when memory is short or the group fails. Peers must have
// ended their runs before it goes: put a barrier in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/collectives/point_to_point.h"
#include "engine/measure/operation_spec.h"
#include "engine/measure/rank_member.h"

namespace neuron {

enum class Submission : std::uint8_t {
  kDirect,  // on the caller's thread
  kStream,  // to the core's default stream, and waited for
};

class PreparedOperation {
 public:
  // `in_place`: one buffer is input and output. all_reduce, reduce and broadcast only.
  PreparedOperation(const RankMember& member, const OperationSpec& spec, bool in_place,
                    Submission submission);
  ~PreparedOperation();
  PreparedOperation(const PreparedOperation&) = delete;
  PreparedOperation& operator=(const PreparedOperation&) = delete;

  const OperationSpec& spec() const { return spec_; }
  std::byte* input() const { return input_->data; }
  std::byte* output() const { return output_->data; }

  // Puts the known values into the input, and into the output none that is right.
  void fill();
  // Zeros for the input: runs in place would otherwise reduce results again and again.
  void clear_input();
  void run();
  // Elements of this rank's output that are not what the last fill() and one run() give.
  std::uint64_t count_wrong() const;

 private:
  void make_request();
  void make_messages();
  void run_messages();

  const RankMember& member_;
  const OperationSpec spec_;
  const Submission submission_;
  const std::vector<ExpectedPart> expected_;
  Block* input_;
  Block* output_;
  CollectiveRequest request_;
  std::vector<PointToPointRequest> messages_;
};

}  // namespace neuron
