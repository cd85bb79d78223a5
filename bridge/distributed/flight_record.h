// FlightRecord: one call of this rank as the flight recorder keeps it. Plain values; holds no tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bridge/runtime/python_stack.h"
#include "engine/collectives/communicator.h"
#include "engine/collectives/work.h"

namespace neuron::bridge {

// Shapes and types of some tensors, in PyTorch's form: all sizes in one row, the number of them for each.
struct TensorShapes {
  c10::SmallVector<std::int64_t, 4> sizes;
  c10::SmallVector<std::uint32_t, 1> dimensions;
  c10::SmallVector<c10::ScalarType, 1> dtypes;

  bool empty() const { return dimensions.empty(); }
  void add(const at::Tensor& tensor);
  // Parts of one buffer, as PyTorch's analyzer expects them: equal ones as one tensor (n, …). Unequal ones
  // one by one or, when only their sum means something there, as one row of all elements.
  enum class Uneven { kOneByOne, kOneRow };
  void add_parts(const std::vector<at::Tensor>& parts, Uneven uneven);
};

// What the calls of one group have in common. Shared by the group and its records.
struct RecordedGroup {
  std::string name;
  std::string description;
  std::int64_t id = 0;  // in this process, from 0
  int rank = 0;
  std::vector<int> global_ranks;         // of the members, in rank order
  std::chrono::milliseconds timeout{0};  // of calls that bring none
  // For what only a dump wants to know; a record does not keep its group alive.
  std::weak_ptr<const Communicator> communicator;
  // Calls so far, counting each message of a batch.
  std::atomic<std::int64_t> operations{0};

  int global_rank() const { return global_ranks[static_cast<std::size_t>(rank)]; }
};

struct FlightRecord {
  using ThreadName = std::array<char, 16>;

  std::shared_ptr<const RecordedGroup> group;
  // What runs: one work, or all those of a batch of messages for its end.
  c10::SmallVector<std::shared_ptr<const Work>, 1> works;
  std::string name;  // as PyTorch's analyzer knows it: "all_reduce", "send 0->1", "coalesced"
  // Numbers as in the engine's messages. Of a message, `collective` is that of the collective before it.
  std::uint64_t collective = 0;
  std::uint64_t message = 0;  // 0: none
  std::int64_t operation = 0;
  bool point_to_point = false;
  TensorShapes inputs;
  TensorShapes outputs;
  PythonStack stack;
  std::chrono::milliseconds timeout{0};  // 0 or less: the group's
  std::thread::id thread;
  ThreadName thread_name{};
};

}  // namespace neuron::bridge
