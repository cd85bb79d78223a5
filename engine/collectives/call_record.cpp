#include "engine/collectives/call_record.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/base/check.h"
#include "engine/collectives/reduce/element_value.h"
#include "engine/collectives/wait_elsewhere.h"

namespace neuron {

namespace {

std::size_t sum_of(const std::vector<BufferPart>& parts) {
  std::size_t total = 0;
  for (const BufferPart& part : parts) total += part.count;
  return total;
}

std::uint64_t offset_in(const DeviceHeap& heap, const void* pointer) {
  return pointer != nullptr && heap.contains(pointer) ? heap.offset_of(pointer) : kNoOffset;
}

void publish_parts(const DeviceHeap& heap, const std::vector<BufferPart>& parts, PublishedPart* out) {
  for (std::size_t i = 0; i < parts.size(); ++i) out[i] = {offset_in(heap, parts[i].data), parts[i].count};
}

// The input, in one piece.
void fill_payload(const CollectiveRequest& request, std::size_t bytes, std::byte* payload) {
  if (request.input_parts.empty()) {
    if (bytes != 0) std::memcpy(payload, request.input, bytes);
    return;
  }
  for (const BufferPart& part : request.input_parts) {
    const std::size_t n = part.count * dtype_size(request.dtype);
    if (n != 0) std::memcpy(payload, part.data, n);
    payload += n;
  }
}

double factor_of(const CollectiveRequest& request) {
  if (request.factor_element == nullptr) return request.factor;
  return read_element(request.dtype, static_cast<const std::byte*>(request.factor_element));
}

bool writes_output(const CollectiveRequest& request, int rank) {
  return request.kind != CollectiveKind::kReduce || rank == request.root;
}

void copy_text(std::string_view text, char* out, std::size_t size) {
  const std::size_t n = std::min(text.size(), size - 1);
  // Of a path the end says more than the beginning.
  std::memcpy(out, text.data() + (text.size() - n), n);
  out[n] = '\0';
}

}  // namespace

std::uint64_t PackedCall::pack(const CollectiveRequest& request) {
  std::uint64_t call = static_cast<std::uint64_t>(request.kind);
  if (request.kind == CollectiveKind::kBarrier) return call;
  call |= static_cast<std::uint64_t>(request.dtype) << 8;
  call |= static_cast<std::uint64_t>(request.op) << 16;
  if (is_rooted(request.kind)) call |= static_cast<std::uint64_t>(request.root) << 24;
  return call;
}

std::string in_seconds(std::chrono::nanoseconds time) {
  const std::string text = std::to_string(std::chrono::duration<double>(time).count());
  return text.substr(0, text.find('.') + 2) + " s";
}

std::size_t contribution_bytes(const CollectiveRequest& request, int rank, int size) {
  const std::size_t element = dtype_size(request.dtype);
  if (!request.input_parts.empty()) return sum_of(request.input_parts) * element;
  const bool root = rank == request.root;
  switch (request.kind) {
    case CollectiveKind::kBroadcast:
      return root ? request.count * element : 0;
    case CollectiveKind::kScatter:
      return root ? request.count * element * static_cast<std::size_t>(size) : 0;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return request.count * element * static_cast<std::size_t>(size);
    default:
      return request.count * element;
  }
}

void publish_call(Group& group, std::uint64_t sequence, const CollectiveRequest& request) {
  const ControlBlock& control = group.control();
  const DeviceHeap& heap = group.options().core->heap();
  const RecordView record = control.record(sequence, group.rank());
  std::uint64_t call = PackedCall::pack(request);
  const std::size_t bytes = contribution_bytes(request, group.rank(), group.size());
  if (bytes <= control.geometry().inline_bytes) {
    call |= bytes <= CallRecord::kTinyBytes ? PackedCall::kInline | PackedCall::kTiny : PackedCall::kInline;
    fill_payload(request, bytes, bytes <= CallRecord::kTinyBytes ? record.call->tiny : record.payload);
  } else {
    record.call->input_offset = offset_in(heap, request.input);
  }
  if (!request.input_parts.empty()) {
    call |= PackedCall::kInputParts;
    publish_parts(heap, request.input_parts, record.input_parts);
  }
  if (!request.output_parts.empty()) {
    call |= PackedCall::kOutputParts;
    publish_parts(heap, request.output_parts, record.output_parts);
  }
  if (request.name != nullptr || !request.origin.empty()) {
    call |= PackedCall::kHasText;
    copy_text(request.name != nullptr ? request.name : collective_name(request.kind), record.text->name,
              sizeof record.text->name);
    copy_text(request.origin, record.text->origin, sizeof record.text->origin);
  }
  record.claim->store(0, std::memory_order_relaxed);
  if (group.rank() == 0) control.done(sequence).store(0, std::memory_order_relaxed);
  CallRecord& out = *record.call;
  out.call.store(call, std::memory_order_relaxed);
  out.count.store(request.count, std::memory_order_relaxed);
  out.finished_below.store(group.own().finished_below.load(std::memory_order_relaxed),
                           std::memory_order_relaxed);
  out.output_offset = writes_output(request, group.rank()) ? offset_in(heap, request.output) : kNoOffset;
  out.factor = factor_of(request);
  out.sequence.store(sequence, std::memory_order_seq_cst);
  Member& own = group.own();
  own.last_published.store(sequence, std::memory_order_relaxed);
  own.last_call.store(call, std::memory_order_relaxed);
}

namespace {

// A record as read, once it is there.
struct Call {
  std::uint64_t call;
  std::size_t count;
  const PublishedPart* input_parts;  // or null
  const PublishedPart* output_parts;
  const CallText* text;

  CollectiveKind kind() const { return PackedCall::kind(call); }
  bool is_root(std::size_t rank) const { return static_cast<int>(rank) == PackedCall::root(call); }

  // Elements that this rank (`own`) gives to `to`, as it sees it.
  std::size_t gives(std::size_t own, std::size_t to) const {
    switch (kind()) {
      case CollectiveKind::kAllGather:
        return count;
      case CollectiveKind::kGather:
        return is_root(to) ? count : 0;
      case CollectiveKind::kScatter:
        if (!is_root(own)) return 0;
        [[fallthrough]];
      default:
        return input_parts != nullptr ? input_parts[to].count : count;
    }
  }
  // Elements that this rank expects from `from`.
  std::size_t expects(std::size_t own, std::size_t from) const {
    switch (kind()) {
      case CollectiveKind::kReduceScatter:
        return count;
      case CollectiveKind::kScatter:
        return is_root(from) ? count : 0;
      case CollectiveKind::kGather:
        if (!is_root(own)) return 0;
        [[fallthrough]];
      default:
        return output_parts != nullptr ? output_parts[from].count : count;
    }
  }
};

Call read_call(const Group& group, std::uint64_t sequence, std::size_t rank) {
  const RecordView record = group.control().record(sequence, static_cast<int>(rank));
  const std::uint64_t call = record.call->call.load(std::memory_order_relaxed);
  return {.call = call,
          .count = record.call->count.load(std::memory_order_relaxed),
          .input_parts = call & PackedCall::kInputParts ? record.input_parts : nullptr,
          .output_parts = call & PackedCall::kOutputParts ? record.output_parts : nullptr,
          .text = call & PackedCall::kHasText ? record.text : nullptr};
}

std::string describe_counts(const PublishedPart* parts, std::size_t size) {
  std::string out;
  for (std::size_t i = 0; i < size; ++i) out += detail::concatenate(i == 0 ? "" : " ", parts[i].count);
  return "{" + out + "}";
}

// As describe(request), of a call of any rank.
std::string describe_call(std::uint64_t call, std::size_t count) {
  const CollectiveKind kind = PackedCall::kind(call);
  if (kind == CollectiveKind::kBarrier) return "";
  std::string out = detail::concatenate("(", dtype_name(PackedCall::dtype(call)), "[", count, "]");
  if (reduces(kind)) out += detail::concatenate(", ", reduce_op_name(PackedCall::op(call)));
  if (is_rooted(kind)) out += detail::concatenate(", root ", PackedCall::root(call));
  return out + ")";
}

std::string describe_present(const Group& group, std::uint64_t sequence, std::size_t rank) {
  const Call call = read_call(group, sequence, rank);
  const auto size = static_cast<std::size_t>(group.size());
  std::string out = call.text != nullptr ? call.text->name : collective_name(call.kind());
  out += describe_call(call.call, call.count);
  if (call.input_parts != nullptr) out += " gives " + describe_counts(call.input_parts, size);
  if (call.output_parts != nullptr) out += " expects " + describe_counts(call.output_parts, size);
  if (call.text != nullptr && call.text->origin[0] != '\0')
    out += detail::concatenate(" at ", call.text->origin);
  return out;
}

std::string describe_absent(const Group& group, int rank) {
  const Member& member = group.control().member(rank);
  const std::uint64_t last = member.last_published.load(std::memory_order_relaxed);
  std::string out = "not here; ";
  if (last == 0) {
    out += "it has made no call yet";
  } else {
    const char* name = collective_name(PackedCall::kind(member.last_call.load(std::memory_order_relaxed)));
    const bool finished = member.finished_below.load(std::memory_order_relaxed) > last;
    out += detail::concatenate("its last call was #", last, " ", name,
                               finished ? " (finished)" : " (not finished)");
  }
  if (const auto waits = read_wait_elsewhere(member, group.size())) {
    out += detail::concatenate("; it waits in call #", waits->sequence, " of group '", waits->group, "'");
    for (std::size_t i = 0; i < waits->missing.size(); ++i)
      out += detail::concatenate(i == 0 ? " for " : ", ", group.rank_name(waits->missing[i]));
  }
  if (member.state.load(std::memory_order_relaxed) == MemberState::kLeft)
    return out + "; it has left the group";
  if (group.watch().is_dead(rank)) return out + "; its process has ended: " + group.watch().obituary(rank);
  return out;
}

Status mismatch(const Group& group, std::uint64_t sequence, const std::string& why) {
  return Status(StatusCode::kMismatch, detail::concatenate("call #", sequence, " differs between the ranks: ",
                                                           why, "\n", describe_calls(group, sequence)));
}

// Uneven forms: what i gives to j is what j expects from i.
Status check_parts(const Group& group, std::uint64_t sequence) {
  const auto size = static_cast<std::size_t>(group.size());
  std::vector<Call> calls;
  for (std::size_t rank = 0; rank < size; ++rank) calls.push_back(read_call(group, sequence, rank));
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j < size; ++j) {
      const std::size_t given = calls[i].gives(i, j);
      const std::size_t expected = calls[j].expects(j, i);
      if (given == expected) continue;
      return mismatch(group, sequence,
                      detail::concatenate("rank ", i, " gives ", given, " elements to rank ", j,
                                          ", which expects ", expected));
    }
  }
  return Status::ok();
}

const char* difference(std::uint64_t a, std::uint64_t b) {
  if (PackedCall::kind(a) != PackedCall::kind(b)) return "the operations are not the same";
  if (PackedCall::dtype(a) != PackedCall::dtype(b)) return "the dtypes are not the same";
  if (PackedCall::op(a) != PackedCall::op(b)) return "the reduce ops are not the same";
  return "the roots are not the same";
}

}  // namespace

Status check_agreement(const Group& group, std::uint64_t sequence) {
  const CallRecord& first = group.control().call(sequence, 0);
  const std::uint64_t call = first.call.load(std::memory_order_relaxed);
  const std::uint64_t count = first.count.load(std::memory_order_relaxed);
  std::uint64_t flags = call;
  bool same_count = true;
  for (int rank = 1; rank < group.size(); ++rank) {
    const CallRecord& other = group.control().call(sequence, rank);
    const std::uint64_t other_call = other.call.load(std::memory_order_relaxed);
    if (((call ^ other_call) & PackedCall::kAgreement) != 0) [[unlikely]]
      return mismatch(group, sequence, difference(call, other_call));
    flags |= other_call;
    same_count = same_count && other.count.load(std::memory_order_relaxed) == count;
  }
  if ((flags & (PackedCall::kInputParts | PackedCall::kOutputParts)) != 0)
    return check_parts(group, sequence);
  if (same_count) [[likely]]
    return Status::ok();
  return mismatch(group, sequence, "the numbers of elements are not the same");
}

std::string describe_calls(const Group& group, std::uint64_t sequence) {
  std::string out;
  for (int rank = 0; rank < group.size(); ++rank) {
    const bool present =
        group.control().call(sequence, rank).sequence.load(std::memory_order_acquire) == sequence;
    out += detail::concatenate(rank == 0 ? "" : "\n", "  ", group.rank_name(rank), ": ",
                               present ? describe_present(group, sequence, static_cast<std::size_t>(rank))
                                       : describe_absent(group, rank));
  }
  return out;
}

}  // namespace neuron
