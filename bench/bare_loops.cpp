#include "bench/bare_loops.h"

#include <cstring>

#if defined(__x86_64__)
#define EACH_INSTRUCTION_SET __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define EACH_INSTRUCTION_SET
#endif

namespace neuron {

namespace {

EACH_INSTRUCTION_SET void add_both(float* __restrict a, float* __restrict b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) a[i] = b[i] = a[i] + b[i];
}

EACH_INSTRUCTION_SET void add_to(float* __restrict out, const float* __restrict a, const float* __restrict b,
                                 std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

float* floats(std::byte* bytes) { return reinterpret_cast<float*>(bytes); }

}  // namespace

void run_bare_loop(CollectiveKind kind, DType dtype, std::size_t rank, const std::vector<std::byte*>& inputs,
                   const std::vector<std::byte*>& outputs, std::size_t count) {
  const std::size_t ranks = inputs.size();
  const std::size_t part = count * dtype_size(dtype);
  switch (kind) {
    case CollectiveKind::kAllReduce: {
      const std::size_t half = part / 4 / ranks;
      return add_both(floats(inputs[0]) + rank * half, floats(inputs[1]) + rank * half, half);
    }
    case CollectiveKind::kReduceScatter: {
      const std::size_t offset = rank * part / 4;
      return add_to(floats(outputs[rank]), floats(inputs[0]) + offset, floats(inputs[1]) + offset, part / 4);
    }
    case CollectiveKind::kAllGather:
      for (std::size_t from = 0; from < ranks; ++from)
        std::memcpy(outputs[rank] + from * part, inputs[from], part);
      return;
    case CollectiveKind::kAllToAll:
      for (std::size_t from = 0; from < ranks; ++from)
        std::memcpy(outputs[rank] + from * part, inputs[from] + rank * part, part);
      return;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce: {
      const std::size_t share = part / ranks;
      for (std::size_t to = 1; to < ranks; ++to)
        std::memcpy(inputs[to] + rank * share, inputs[0] + rank * share, share);
      return;
    }
    case CollectiveKind::kGather:
      std::memcpy(outputs[0] + rank * part, inputs[rank], part);
      return;
    case CollectiveKind::kScatter:
      std::memcpy(outputs[rank], inputs[0] + rank * part, part);
      return;
    case CollectiveKind::kBarrier:
      return;
  }
}

}  // namespace neuron
