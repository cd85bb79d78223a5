// CollectiveRequest: what one rank asks of its group. Open this header first.
//
// Pointers lie in the heap of the communicator's core (checked at submission). Counts are elements of
// `dtype`. Members of a group match by the order of their requests in the group, never by name or stream.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/status.h"

namespace neuron {

enum class CollectiveKind : std::uint8_t {
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kBarrier,
};

enum class ReduceOp : std::uint8_t {
  kSum,
  kAvg,
  kProduct,
  kMin,
  kMax,
  kBand,
  kBor,
  kBxor,
  kPremulSum,
  kNone
};

const char* collective_name(CollectiveKind kind);  // "all_reduce"
bool is_rooted(CollectiveKind kind);               // has a root
bool reduces(CollectiveKind kind);                 // has a ReduceOp
const char* reduce_op_name(ReduceOp op);           // "sum"

// One part of a scattered buffer. A part of 0 elements may have any pointer.
struct BufferPart {
  void* data = nullptr;
  std::size_t count = 0;
};

// n is the size of the group, r a rank in it, S = count.
//
//   kind            input                      output                     count
//   kAllReduce      S                          S                          the same on all ranks
//   kBroadcast      S, on the root only        S, root: may be null       the same on all ranks
//   kReduce         S                          S, on the root only        the same on all ranks
//   kAllGather      S                          n parts, r's has S of r    elements that this rank gives
//   kGather         S                          n parts, on the root only  elements that this rank gives
//   kScatter        n parts, on the root only  S                          elements that this rank gets
//   kReduceScatter  n parts, reduced part by   S                          elements that this rank gets
//                   part over the ranks
//   kAllToAll       n parts, one for each rank n parts, one of each rank  elements of one part; 0 with
//   explicit parts kBarrier        -                          -                          0
//
// "n parts" is `input` or `output` as one buffer of n * S elements in rank order or, when `input_parts` or
// `output_parts` is not empty, these n parts, which may differ in size (uneven forms) and lie anywhere in the
// heap (lists without a copy; adjacent slices for split sizes). Uneven parts must fit together across ranks:
// what i gives to j is what j gets from i. In place, as NCCL: output == input; all-gather: input == output +
// r * S; reduce-scatter: output == input + r * S; gather and scatter at the root likewise. Other overlaps
// give undefined contents.
struct CollectiveRequest {
  CollectiveKind kind = CollectiveKind::kBarrier;
  DType dtype = DType::kUint8;
  ReduceOp op = ReduceOp::kNone;  // reductions only
  int root = 0;                   // rank in the group; rooted kinds only
  std::size_t count = 0;

  const void* input = nullptr;
  void* output = nullptr;
  std::vector<BufferPart> input_parts{};   // input is ignored; only read from
  std::vector<BufferPart> output_parts{};  // output is ignored

  // kPremulSum: this rank's input is multiplied by it first. `factor_element`, when given, points to one
  // element of `dtype` in the heap that is read when the collective runs.
  double factor = 1.0;
  const void* factor_element = nullptr;

  std::chrono::nanoseconds timeout{0};  // 0: the group's
  const char* name = nullptr;           // for messages and the timeline; a literal. Null: the kind's name
  std::string origin{};                 // "file.py:12", or empty

  // Kept until no rank can touch the buffers any more, also after an abort. Its destruction must not need
  // Python's lock.
  std::shared_ptr<const void> holds{};
};

// kInvalidArgument says what is wrong: root out of range, op that the dtype does not have, wrong number of
// parts, null buffer with a count, … Heap membership is checked by the communicator.
Status validate(const CollectiveRequest& request, int rank, int size);

// "all_reduce(float32[1024], sum)", for messages.
std::string describe(const CollectiveRequest& request);

}  // namespace neuron
