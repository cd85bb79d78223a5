#include "engine/collectives/execution.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/log.h"
#include "engine/collectives/algorithms/algorithm.h"
#include "engine/collectives/call_record.h"
#include "engine/collectives/wait_elsewhere.h"

namespace neuron {

namespace {

// Below this many bytes the last rank to arrive is done before a sleeper would have woken up.
constexpr std::size_t kWakeHelpersBytes = std::size_t{1} << 20;

constexpr std::chrono::seconds kWarnAfter{1};
constexpr char kCrosswiseAdvice[] =
    "Issue the collectives of different groups in the same order on all ranks, or on streams that do not "
    "wait for each "
    "other";

// Says to the group that this thread touches its peers' blocks, as long as it lives.
class CopyScope {
 public:
  explicit CopyScope(Member& own) : own_(own) { own_.in_copy.fetch_add(1, std::memory_order_seq_cst); }
  ~CopyScope() { own_.in_copy.fetch_sub(1, std::memory_order_release); }
  CopyScope(const CopyScope&) = delete;
  CopyScope& operator=(const CopyScope&) = delete;

 private:
  Member& own_;
};

class Execution {
 public:
  Execution(Group& group, std::uint64_t sequence, const CollectiveRequest& request,
            std::chrono::nanoseconds timeout)
      : group_(group),
        control_(group.control()),
        request_(request),
        sequence_(sequence),
        size_(static_cast<std::size_t>(group.size())),
        timeout_(timeout) {}

  ExecutionOutcome run() {
    Status status = run_steps();
    if (status.is_ok()) {
      group_.finish(sequence_);
      // The next call's line was last read by the peers: fetching it for writing takes as long as a message.
      __builtin_prefetch(&control_.call(sequence_ + 1, group_.rank()), 1);
      return {};
    }
    return {std::move(status), published_ && !group_.wait_for_copies_to_end()};
  }

 private:
  Status run_steps() {
    if (group_.failed()) return group_.error();
    Status status =
        group_.wait([this] { return group_.slot_is_free(sequence_); }, [this] { give_up_on_slot(); });
    if (!status.is_ok()) return status;
    if (group_.failed()) return group_.error();
    publish_call(group_, sequence_, request_);
    published_ = true;
    status = wait_for_calls();
    if (!status.is_ok()) return status;
    status = check_agreement(group_, sequence_);
    if (!status.is_ok()) {
      group_.fail(status.code(), status.message());
      return group_.error();
    }
    resolve_parties();
    if (all_inline_) {
      compute_own_output();
      return Status::ok();
    }
    return run_lanes();
  }

  bool has_called(std::size_t rank) const {
    return control_.call(sequence_, static_cast<int>(rank)).sequence.load(std::memory_order_seq_cst) ==
           sequence_;
  }

  Status wait_for_calls() {
    std::size_t present = 0;
    const auto all_called = [&] {
      while (present < size_ && has_called(present)) ++present;
      return present == size_;
    };
    // Seeing all calls at once means being the last: only then may somebody sleep for this one.
    if (all_called()) {
      if (wakes_helpers()) group_.wake_members();
      return Status::ok();
    }
    return group_.wait(all_called, [this] { give_up_on_missing(); });
  }

  // Sleepers are needed for what only they can do (small messages) or when there is much to do; otherwise
  // they are woken once, at the end.
  bool wakes_helpers() const {
    const std::size_t bytes = contribution_bytes(request_, group_.rank(), group_.size());
    return bytes <= control_.geometry().inline_bytes || bytes * size_ > kWakeHelpersBytes;
  }

  // ---- buffers ----

  static std::byte* at(std::byte* base, std::uint64_t offset) {
    return offset == kNoOffset ? nullptr : base + offset;
  }

  const Part* copy_parts(std::size_t rank, const PublishedPart* published) {
    std::byte* const base = group_.heap_base(static_cast<int>(rank));
    const std::size_t first = parts_.size();
    for (std::size_t i = 0; i < size_; ++i)
      parts_.push_back({at(base, published[i].offset), published[i].count});
    return parts_.data() + first;
  }

  // One after the other.
  const Part* parts_in_record(const RecordView& record, std::byte* next) {
    const std::size_t first = parts_.size();
    for (std::size_t i = 0; i < size_; ++i) {
      const std::size_t count = record.input_parts[i].count;
      parts_.push_back({next, count});
      next += count * dtype_size(request_.dtype);
    }
    return parts_.data() + first;
  }

  void resolve_parties() {
    std::uint64_t finished_below = ~std::uint64_t{0};
    all_inline_ = true;
    bool any_parts = false;
    for (std::size_t rank = 0; rank < size_; ++rank) {
      const CallRecord& call = control_.call(sequence_, static_cast<int>(rank));
      const std::uint64_t flags = call.call.load(std::memory_order_relaxed);
      all_inline_ = all_inline_ && (flags & PackedCall::kInline) != 0;
      any_parts = any_parts || (flags & (PackedCall::kInputParts | PackedCall::kOutputParts)) != 0;
      finished_below = std::min(finished_below, call.finished_below.load(std::memory_order_relaxed));
    }
    group_.note_finished_below(finished_below);
    // Reserved at once: the parties keep pointers into it.
    if (any_parts) parts_.reserve(2 * size_ * size_);
    for (std::size_t rank = 0; rank < size_; ++rank) resolve_party(rank);
  }

  void resolve_party(std::size_t rank) {
    const RecordView record = control_.record(sequence_, static_cast<int>(rank));
    const CallRecord& call = *record.call;
    const std::uint64_t flags = call.call.load(std::memory_order_relaxed);
    std::byte* const base = group_.heap_base(static_cast<int>(rank));
    const bool in_record = (flags & PackedCall::kInline) != 0;
    // Of a small message each rank writes its own output only: no rank touches another's blocks.
    const bool writes = !all_inline_ || static_cast<int>(rank) == group_.rank();
    Party& party = parties_[rank];
    if (in_record) {
      party.input = (flags & PackedCall::kTiny) != 0 ? record.call->tiny : record.payload;
    } else {
      party.input = at(base, call.input_offset);
    }
    party.output = writes ? at(base, call.output_offset) : nullptr;
    party.input_parts = nullptr;
    party.output_parts = nullptr;
    if ((flags & PackedCall::kInputParts) != 0)
      party.input_parts =
          in_record ? parts_in_record(record, party.input) : copy_parts(rank, record.input_parts);
    if ((flags & PackedCall::kOutputParts) != 0 && writes)
      party.output_parts = copy_parts(rank, record.output_parts);
    party.count = call.count.load(std::memory_order_relaxed);
    party.factor = call.factor;
  }

  Collective collective() const {
    return {
        .kind = request_.kind,
        .size = size_,
        .root = static_cast<std::size_t>(request_.root),
        .element_bytes = dtype_size(request_.dtype),
        .kernel = request_.op == ReduceOp::kNone ? nullptr : find_reduce_kernel(request_.dtype, request_.op),
        .parties = parties_};
  }

  // ---- small messages ----

  void compute_own_output() {
    const Algorithm& algorithm = select_algorithm(request_.kind);
    const Collective all = collective();
    for (std::size_t lane = 0; lane < size_; ++lane) {
      const std::size_t elements = algorithm.lane_elements(all, lane);
      if (elements != 0) algorithm.run(all, lane, 0, elements);
    }
  }

  // ---- large messages ----

  Status run_lanes() {
    const Algorithm& algorithm = select_algorithm(request_.kind);
    Collective all = collective();
    const std::size_t own_elements = algorithm.lane_elements(all, static_cast<std::size_t>(group_.rank()));
    all.copies = copy_target(own_elements * all.element_bytes * size_);
    const std::size_t line = std::max<std::size_t>(kCacheLine / all.element_bytes, 1);
    const std::size_t segment =
        std::max<std::size_t>(control_.geometry().segment_bytes / all.element_bytes / line * line, line);
    std::uint64_t total = 0;
    std::uint64_t done_here = 0;
    for (std::size_t k = 0; k < size_; ++k) {
      const std::size_t lane = (static_cast<std::size_t>(group_.rank()) + k) % size_;
      const std::size_t elements = algorithm.lane_elements(all, lane);
      const std::size_t segments = (elements + segment - 1) / segment;
      total += segments;
      std::atomic<std::uint64_t>& claim = *control_.record(sequence_, static_cast<int>(lane)).claim;
      while (claim.load(std::memory_order_relaxed) < segments) {
        const std::size_t index = claim.fetch_add(1, std::memory_order_relaxed);
        if (index >= segments) break;
        // Announced before the look at the error: see Group::wait_for_copies_to_end().
        const CopyScope copying(group_.own());
        if (group_.failed()) return group_.error();
        algorithm.run(all, lane, index * segment, std::min(elements, (index + 1) * segment));
        ++done_here;
      }
    }
    return finish_lanes(total, done_here);
  }

  Status finish_lanes(std::uint64_t total, std::uint64_t done_here) {
    std::atomic<std::uint64_t>& done = control_.done(sequence_);
    if (done_here != 0 && done.fetch_add(done_here, std::memory_order_seq_cst) + done_here == total) {
      group_.wake_members();
      return Status::ok();
    }
    const auto all_done = [&] { return done.load(std::memory_order_seq_cst) == total; };
    return group_.wait(all_done, [&] { give_up_on_copy(all_done); });
  }

  // ---- reasons to give up ----

  std::string call_name() const {
    return detail::concatenate(request_.name != nullptr ? request_.name : collective_name(request_.kind),
                               " #", sequence_);
  }

  // The clock starts with the first look, some 20 ms after the wait began, so that no wait that succeeds
  // reads it.
  bool timed_out() {
    if (!deadline_) deadline_ = Deadline::after(timeout_);
    return deadline_->passed();
  }

  void fail(StatusCode code, const std::string& why) {
    group_.fail(code, detail::concatenate(call_name(), ": ", why, "\n", describe_calls(group_, sequence_)));
  }

  void give_up_on_missing() {
    // Left and dead are read before the record: what the rank did last is then seen.
    for (std::size_t rank = 0; rank < size_; ++rank) {
      const auto r = static_cast<int>(rank);
      const bool left = control_.member(r).state.load(std::memory_order_acquire) == MemberState::kLeft;
      if (left && !has_called(rank))
        return fail(StatusCode::kAborted, group_.rank_name(r) + " has left the group");
    }
    give_up_on_dead([this](int rank) { return !has_called(static_cast<std::size_t>(rank)); });
    if (timed_out()) {
      return fail(StatusCode::kTimeout, "not all ranks came within the timeout of " + in_seconds(timeout_));
    }
    give_up_on_crosswise_waits();
  }

  // Ranks that wait for each other in different groups. Where it is not certain (a thread of the host may
  // still make the missing call), a warning is all.
  void give_up_on_crosswise_waits() {
    std::vector<int> missing;
    for (std::size_t rank = 0; rank < size_; ++rank) {
      if (!has_called(rank)) missing.push_back(static_cast<int>(rank));
    }
    if (!notice_) {
      notice_.emplace(group_, sequence_);
      warning_ = Deadline::after(kWarnAfter);
    }
    notice_->update(missing);
    const auto cycle = notice_->find_cycle(missing);
    if (!cycle) return;
    const std::string why =
        detail::concatenate("ranks wait crosswise: ", cycle->text, ". ", kCrosswiseAdvice);
    if (cycle->certain) return fail(StatusCode::kMismatch, why);
    if (!warning_ || !warning_->passed()) return;
    warning_.reset();
    log_line(LogLevel::kWarn, "collectives",
             detail::concatenate(group_.title(), ": ", call_name(), ": for more than a second, ", why));
  }

  void give_up_on_slot() {
    give_up_on_dead([this](int rank) {
      return control_.member(rank).finished_below.load(std::memory_order_seq_cst) +
                 control_.geometry().slots <=
             sequence_;
    });
    if (timed_out()) {
      fail(StatusCode::kTimeout,
           detail::concatenate("waited for the timeout of ", in_seconds(timeout_),
                               " for a rank that is more than ", control_.geometry().slots, " calls behind"));
    }
  }

  // Whoever is done leaves, and its process may end: only an unfinished copy makes a death an error.
  template <typename Done>
  void give_up_on_copy(const Done& all_done) {
    give_up_on_dead([&](int) { return !all_done(); });
    if (timed_out()) {
      fail(StatusCode::kTimeout,
           "a rank stopped in the middle of the data, for the timeout of " + in_seconds(timeout_));
    }
  }

  // `needed` is asked after the death was seen, when the rank can no longer change the answer.
  template <typename Needed>
  void give_up_on_dead(const Needed& needed) {
    for (const int rank : group_.watch().dead()) {
      if (!needed(rank)) continue;
      return fail(StatusCode::kPeerDied, group_.death_of(rank));
    }
  }

  Group& group_;
  const ControlBlock& control_;
  const CollectiveRequest& request_;
  const std::uint64_t sequence_;
  const std::size_t size_;
  const std::chrono::nanoseconds timeout_;
  std::optional<Deadline> deadline_;
  std::optional<WaitNotice> notice_;
  std::optional<Deadline> warning_;  // when to warn of a crosswise wait
  bool published_ = false;
  bool all_inline_ = false;
  std::vector<Part> parts_;
  Party parties_[Communicator::kMaxSize];
};

}  // namespace

ExecutionOutcome execute_collective(Group& group, std::uint64_t sequence, const CollectiveRequest& request,
                                    std::chrono::nanoseconds timeout) {
  try {
    return Execution(group, sequence, request, timeout).run();
  } catch (const std::exception& error) {
    // The peers wait for this rank's part, which does not come.
    group.fail(StatusCode::kInternal, detail::concatenate(group.rank_name(group.rank()), ": ", error.what()));
    return {group.error(), !group.wait_for_copies_to_end()};
  }
}

}  // namespace neuron
