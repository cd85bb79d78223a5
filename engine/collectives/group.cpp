#include "engine/collectives/group.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/fork.h"
#include "engine/base/log.h"
#include "engine/collectives/wait_elsewhere.h"

namespace neuron {

namespace {

constexpr std::uint32_t kSlots = 32;
static_assert(kSlots <= 64, "finished_ahead_ has a bit for each slot");

std::size_t inline_limit(const CommunicatorOptions& options) {
  constexpr std::size_t kAlways = 256;
  const std::size_t limit = options.tuning.inline_bytes;
  const std::size_t share = 2 * limit / static_cast<std::size_t>(std::max(options.size, 2));
  return std::max(share, std::min(limit, kAlways));
}

ControlGeometry geometry_of(const CommunicatorOptions& options) {
  return {.size = static_cast<std::uint32_t>(options.size),
          .slots = kSlots,
          .inline_bytes = inline_limit(options),
          .segment_bytes = options.tuning.segment_bytes};
}

int usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(CPU_COUNT(&set), 1);
}

}  // namespace

Group::Group(const CommunicatorOptions& options) : options_(options), patience_(is_crowded()) {}

bool Group::is_crowded() const { return options_.size > usable_processors(); }

Result<std::unique_ptr<Group>> Group::create(const CommunicatorOptions& options, Bootstrap& bootstrap) {
  std::unique_ptr<Group> group(new Group(options));
  Status status = group->join(bootstrap);
  if (status.is_ok()) return group;
  // Others may have joined already, and would wait for this rank until their timeout.
  if (group->control_memory_ != nullptr)
    group->fail(status.code(), group->rank_name(group->rank()) + " could not join: " + status.message());
  return status;
}

Status Group::make_control(FileDescriptor* fd) {
  const ControlGeometry geometry = geometry_of(options_);
  *fd = FileDescriptor(memfd_create("neuron_group_control", MFD_CLOEXEC));
  if (!fd->is_open() || ftruncate(fd->get(), static_cast<off_t>(geometry.total_bytes())) != 0) {
    return Status(StatusCode::kInternal,
                  title() + ": no memory file for the control block: " + std::strerror(errno));
  }
  Result<std::shared_ptr<PeerMemory>> mapped = PeerMemory::map(fd->get(), geometry.total_bytes());
  if (!mapped.is_ok()) return mapped.status();
  control_memory_ = std::move(mapped).value();
  control_ = ControlBlock(control_memory_->base(), geometry);
  control_.header().geometry = geometry;
  return Status::ok();
}

Status Group::map_control(int fd) {
  struct stat info{};
  if (fstat(fd, &info) != 0)
    return Status(StatusCode::kInternal, title() + ": no control block came from rank 0");
  Result<std::shared_ptr<PeerMemory>> mapped = PeerMemory::map(fd, static_cast<std::size_t>(info.st_size));
  if (!mapped.is_ok()) return mapped.status();
  control_memory_ = std::move(mapped).value();
  const ControlGeometry theirs = reinterpret_cast<const GroupHeader*>(control_memory_->base())->geometry;
  control_ = ControlBlock(control_memory_->base(), theirs);
  if (theirs == geometry_of(options_)) return Status::ok();
  return Status(StatusCode::kMismatch, "the members were created with different options");
}

Status Group::join(Bootstrap& bootstrap) {
  arm_fork_guard();
  const DeviceHeap& heap = options_.core->heap();
  Result<std::shared_ptr<PeerMemory>> own_heap = PeerMemory::adopt(heap.fd(), heap.base(), heap.limit());
  if (!own_heap.is_ok()) return own_heap.status();
  FileDescriptor control_fd;
  if (rank() == 0) {
    Status made = make_control(&control_fd);
    if (!made.is_ok()) return made;
  }
  Result<RendezvousResult> met = meet({.group_name = options_.group_name,
                                       .rank = rank(),
                                       .size = size(),
                                       .heap_fd = heap.fd(),
                                       .heap_bytes = heap.limit(),
                                       .control_fd = control_fd.get()},
                                      bootstrap, Deadline::after(options_.timeout));
  if (!met.is_ok()) return met.status();
  if (rank() != 0) {
    Status mapped = map_control(met.value().control.get());
    if (!mapped.is_ok()) return mapped;
  }
  return map_heaps(std::move(own_heap).value(), met.value().peers);
}

Status Group::map_heaps(std::shared_ptr<PeerMemory> own_heap, const std::vector<PeerGreeting>& peers) {
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) {
      heaps_.push_back(std::move(own_heap));
      continue;
    }
    const PeerGreeting& peer = peers[static_cast<std::size_t>(r)];
    Result<std::shared_ptr<PeerMemory>> mapped = PeerMemory::map(peer.heap.get(), peer.heap_bytes);
    if (!mapped.is_ok()) return mapped.status();
    heaps_.push_back(std::move(mapped).value());
    watch_.add(r, peer.pid, [this] {
      alarmed_.store(true, std::memory_order_seq_cst);
      own().doorbell.notify();
      tell(rank());
    });
  }
  own().pid.store(getpid(), std::memory_order_relaxed);
  own().finished_below.store(1, std::memory_order_relaxed);
  own().state.store(MemberState::kJoined, std::memory_order_release);
  list_group(*this);
  return Status::ok();
}

Group::~Group() { unlist_group(*this); }

void Group::note_submitted(std::uint64_t sequence, const Stream& stream) {
  Submission& submission = submissions_[sequence % kSubmissions];
  submission.stream.store(&stream, std::memory_order_relaxed);
  submission.sequence.store(sequence, std::memory_order_release);
}

std::uint64_t Group::first_queued_here() const {
  const std::uint64_t next = own().last_published.load(std::memory_order_relaxed) + 1;
  const Submission& submission = submissions_[next % kSubmissions];
  if (submission.sequence.load(std::memory_order_acquire) != next) return 0;
  const Stream* stream = submission.stream.load(std::memory_order_relaxed);
  return stream->runs_here() ? next : 0;
}

std::string Group::title() const {
  return detail::concatenate("group '", options_.group_name, "' (", options_.size,
                             options_.size == 1 ? " rank)" : " ranks)");
}

std::string Group::rank_name(int rank) const {
  std::string out = "rank " + std::to_string(rank);
  if (options_.global_ranks.empty()) return out;
  const int global = options_.global_ranks[static_cast<std::size_t>(rank)];
  return global == rank ? out : detail::concatenate(out, " (global rank ", global, ")");
}

std::string Group::death_of(int rank) const {
  return detail::concatenate(rank_name(rank), " has ended (", watch_.obituary(rank), ")");
}

Status Group::error() const {
  const GroupHeader& header = control_.header();
  if (!failed()) return Status::ok();
  // Whoever writes the text may have been killed while it wrote.
  const Deadline patience = Deadline::after(std::chrono::milliseconds(200));
  while (header.error_state.load(std::memory_order_acquire) != ErrorState::kWritten) {
    if (patience.passed())
      return Status(StatusCode::kAborted, title() + " was aborted by a member that then ended");
    std::this_thread::yield();
  }
  const std::size_t length =
      std::min<std::size_t>(header.error_length.load(std::memory_order_relaxed), GroupHeader::kErrorBytes);
  return Status(static_cast<StatusCode>(header.error_code.load(std::memory_order_relaxed)),
                std::string(header.error_text, length));
}

void Group::fail(StatusCode code, const std::string& message) {
  GroupHeader& header = control_.header();
  ErrorState expected = ErrorState::kNone;
  if (!header.error_state.compare_exchange_strong(expected, ErrorState::kBeingWritten,
                                                  std::memory_order_seq_cst))
    return;
  const std::string text = title() + ": " + message;
  const std::size_t length = std::min(text.size(), GroupHeader::kErrorBytes);
  std::memcpy(header.error_text, text.data(), length);
  header.error_code.store(static_cast<std::uint32_t>(code), std::memory_order_relaxed);
  header.error_length.store(static_cast<std::uint32_t>(length), std::memory_order_relaxed);
  header.error_state.store(ErrorState::kWritten, std::memory_order_seq_cst);
  wake_members();
  for (int r = 0; r < size(); ++r) tell(r);
  log_line(LogLevel::kError, "collectives", text);
}

void Group::leave() const { own().state.store(MemberState::kLeft, std::memory_order_release); }

void Group::wake_members() const {
  for (int r = 0; r < size(); ++r) control_.member(r).doorbell.notify();
}

void Group::tell(int rank) const {
  Member& member = control_.member(rank);
  member.p2p_events.fetch_add(1, std::memory_order_seq_cst);
  member.p2p_doorbell.notify();
}

bool Group::slot_is_free(std::uint64_t sequence) {
  const std::uint64_t slots = control_.geometry().slots;
  if (finished_by_all_below_.load(std::memory_order_acquire) + slots > sequence) return true;
  std::uint64_t lowest = ~std::uint64_t{0};
  for (int r = 0; r < size(); ++r)
    lowest = std::min(lowest, control_.member(r).finished_below.load(std::memory_order_seq_cst));
  note_finished_below(lowest);
  return lowest + slots > sequence;
}

void Group::note_finished_below(std::uint64_t bound) {
  std::uint64_t known = finished_by_all_below_.load(std::memory_order_relaxed);
  while (known < bound && !finished_by_all_below_.compare_exchange_weak(
                              known, bound, std::memory_order_acq_rel, std::memory_order_relaxed)) {
  }
}

// Only who has finished the number at finished_below moves it on: that number's thread, or the thread that
// takes the bit of a number that was finished ahead. Setting a bit and then looking at finished_below, and
// moving finished_below and then looking at the bits, cannot miss each other; taking the bit decides when
// both see it.
void Group::finish(std::uint64_t sequence) {
  std::atomic<std::uint64_t>& below = own().finished_below;
  const auto bit = [](std::uint64_t s) { return std::uint64_t{1} << (s % 64); };
  if (below.load(std::memory_order_seq_cst) != sequence) {
    finished_ahead_.fetch_or(bit(sequence), std::memory_order_seq_cst);
    if (below.load(std::memory_order_seq_cst) != sequence) return;
    if ((finished_ahead_.fetch_and(~bit(sequence), std::memory_order_seq_cst) & bit(sequence)) == 0) return;
  }
  for (;;) {
    below.store(++sequence, std::memory_order_seq_cst);
    if ((finished_ahead_.load(std::memory_order_seq_cst) & bit(sequence)) == 0) return;
    if ((finished_ahead_.fetch_and(~bit(sequence), std::memory_order_seq_cst) & bit(sequence)) == 0) return;
  }
}

bool Group::copies_have_ended() const {
  for (int r = 0; r < size(); ++r) {
    // Pairs with the copier's order: announce (in_copy), then look at the error. Either it sees the error and
    // does not copy, or this load sees it copying.
    if (r != rank() && control_.member(r).in_copy.load(std::memory_order_seq_cst) != 0 && !watch_.is_dead(r))
      return false;
  }
  return true;
}

bool Group::wait_for_copies_to_end() const {
  // A segment takes well under a millisecond; what lasts longer belongs to a stopped process.
  const Deadline patience = Deadline::after(std::chrono::seconds(1));
  while (!copies_have_ended()) {
    if (patience.passed()) return false;
    sched_yield();
  }
  return true;
}

}  // namespace neuron
