#include "engine/collectives/collective.h"

#include "engine/base/check.h"
#include "engine/collectives/reduce/reduce.h"

namespace neuron {

namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 62;

template <typename... Parts>
Status invalid(const CollectiveRequest& request, const Parts&... parts) {
  return Status(StatusCode::kInvalidArgument, detail::concatenate(describe(request), ": ", parts...));
}

// What a rank must bring: `parts` buffers of count elements each; 0: nothing.
struct Side {
  std::size_t parts = 0;
  bool splittable = false;  // may be given as a list of parts
};

Side input_side(const CollectiveRequest& request, int rank, std::size_t size) {
  const bool root = rank == request.root;
  switch (request.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather:
      return {1, false};
    case CollectiveKind::kBroadcast:
      return {root ? 1U : 0U, false};
    case CollectiveKind::kScatter:
      return {root ? size : 0, root};
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return {size, true};
    case CollectiveKind::kBarrier:
      return {};
  }
  return {};
}

Side output_side(const CollectiveRequest& request, int rank, std::size_t size) {
  const bool root = rank == request.root;
  switch (request.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kScatter:
      return {1, false};
    case CollectiveKind::kBroadcast:
      return {root ? 0U : 1U, false};
    case CollectiveKind::kReduce:
      return {root ? 1U : 0U, false};
    case CollectiveKind::kGather:
      return {root ? size : 0, root};
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll:
      return {size, true};
    case CollectiveKind::kBarrier:
      return {};
  }
  return {};
}

Status validate_side(const CollectiveRequest& request, const char* name, const Side& side, const void* buffer,
                     const std::vector<BufferPart>& parts, std::size_t size) {
  if (!parts.empty()) {
    if (!side.splittable) return invalid(request, "takes no list of ", name, " parts here");
    if (parts.size() != size)
      return invalid(request, "the list of ", name, " parts has ", parts.size(), " entries for ", size,
                     " ranks");
    for (const BufferPart& part : parts) {
      if (part.count != 0 && part.data == nullptr) return invalid(request, "an ", name, " part is null");
      if (part.count > kMaxBytes / dtype_size(request.dtype))
        return invalid(request, "an ", name, " part is too large");
    }
    return Status::ok();
  }
  if (side.parts != 0 && request.count != 0 && buffer == nullptr)
    return invalid(request, "the ", name, " buffer is null");
  return Status::ok();
}

}  // namespace

bool is_rooted(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kGather || kind == CollectiveKind::kScatter;
}

bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kReduceScatter;
}

const char* collective_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kReduce:
      return "reduce";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kGather:
      return "gather";
    case CollectiveKind::kScatter:
      return "scatter";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "unknown";
}

const char* reduce_op_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAvg:
      return "avg";
    case ReduceOp::kProduct:
      return "product";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kBand:
      return "band";
    case ReduceOp::kBor:
      return "bor";
    case ReduceOp::kBxor:
      return "bxor";
    case ReduceOp::kPremulSum:
      return "premul_sum";
    case ReduceOp::kNone:
      return "none";
  }
  return "unknown";
}

std::string describe(const CollectiveRequest& request) {
  std::string out = request.name != nullptr ? request.name : collective_name(request.kind);
  if (request.kind == CollectiveKind::kBarrier) return out;
  out += detail::concatenate("(", dtype_name(request.dtype), "[", request.count, "]");
  if (reduces(request.kind)) out += detail::concatenate(", ", reduce_op_name(request.op));
  if (is_rooted(request.kind)) out += detail::concatenate(", root ", request.root);
  return out + ")";
}

Status validate(const CollectiveRequest& request, int rank, int size) {
  const auto n = static_cast<std::size_t>(size);
  if (is_rooted(request.kind) && (request.root < 0 || request.root >= size))
    return invalid(request, "root ", request.root, " is not a rank of a group of ", size);
  if (request.count > kMaxBytes / n / dtype_size(request.dtype)) return invalid(request, "too many elements");
  if (reduces(request.kind)) {
    if (find_reduce_kernel(request.dtype, request.op) == nullptr)
      return invalid(request, dtype_name(request.dtype), " has no reduction ", reduce_op_name(request.op));
  } else if (request.op != ReduceOp::kNone) {
    return invalid(request, "takes no reduction");
  }
  Status status =
      validate_side(request, "input", input_side(request, rank, n), request.input, request.input_parts, n);
  if (!status.is_ok()) return status;
  return validate_side(request, "output", output_side(request, rank, n), request.output, request.output_parts,
                       n);
}

}  // namespace neuron
