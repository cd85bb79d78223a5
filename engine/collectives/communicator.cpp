#include "engine/collectives/communicator.h"

#include <utility>

#include "engine/base/check.h"
#include "engine/base/env.h"
#include "engine/base/fork.h"
#include "engine/collectives/collective_command.h"
#include "engine/collectives/communicator_impl.h"
#include "engine/collectives/execution.h"
#include "engine/collectives/quarantine.h"
#include "engine/collectives/reduce/cpu_features.h"

namespace neuron {

namespace {

Status check_options(const CommunicatorOptions& options) {
  const auto invalid = [&](const auto&... parts) {
    return Status(StatusCode::kInvalidArgument,
                  detail::concatenate("group '", options.group_name, "': ", parts...));
  };
  if (options.size < 1 || options.size > Communicator::kMaxSize)
    return invalid("a size of ", options.size, "; 1 to ", Communicator::kMaxSize, " ranks are possible");
  if (options.rank < 0 || options.rank >= options.size)
    return invalid("rank ", options.rank, " is not below the size, ", options.size);
  if (!options.global_ranks.empty() && options.global_ranks.size() != static_cast<std::size_t>(options.size))
    return invalid(options.global_ranks.size(), " global ranks for ", options.size, " ranks");
  if (options.core == nullptr) return invalid("no core");
  if (options.timeout.count() <= 0) return invalid("a timeout of ", options.timeout.count(), " ns");
  return env_status().is_ok() ? simd_level().status() : env_status();
}

bool inside(const DeviceHeap& heap, const void* pointer, std::size_t nbytes) {
  return heap.contains(pointer) && nbytes <= heap.limit() - heap.offset_of(pointer);
}

// Every buffer that peers will reach through their map of the heap.
Status check_heap(const CollectiveRequest& request, const DeviceHeap& heap, int rank, int size) {
  const auto outside = [&](const char* what) {
    return Status(StatusCode::kInvalidArgument, detail::concatenate(describe(request), ": the ", what,
                                                                    " is not memory of this rank's core"));
  };
  const std::size_t element = dtype_size(request.dtype);
  const bool root = rank == request.root;
  const std::size_t one = request.count * element;
  const std::size_t all = one * static_cast<std::size_t>(size);
  const bool many_inputs = request.kind == CollectiveKind::kReduceScatter ||
                           request.kind == CollectiveKind::kAllToAll ||
                           (request.kind == CollectiveKind::kScatter && root);
  const bool many_outputs = request.kind == CollectiveKind::kAllGather ||
                            request.kind == CollectiveKind::kAllToAll ||
                            (request.kind == CollectiveKind::kGather && root);
  if (request.input != nullptr && request.input_parts.empty() && one != 0 &&
      !inside(heap, request.input, many_inputs ? all : one))
    return outside("input");
  if (request.output != nullptr && request.output_parts.empty() && one != 0 &&
      !inside(heap, request.output, many_outputs ? all : one))
    return outside("output");
  for (const BufferPart& part : request.input_parts) {
    if (part.count != 0 && !inside(heap, part.data, part.count * element)) return outside("input part");
  }
  for (const BufferPart& part : request.output_parts) {
    if (part.count != 0 && !inside(heap, part.data, part.count * element)) return outside("output part");
  }
  if (request.factor_element != nullptr && !inside(heap, request.factor_element, element))
    return outside("factor");
  return Status::ok();
}

// A child has none of the group's memory.
Status forked() {
  return Status(StatusCode::kUnavailable, "this process was forked from one that uses Neuron devices");
}

WorkSummary summarize(const CollectiveRequest& request) {
  return {.kind = request.kind,
          .dtype = request.dtype,
          .op = request.op,
          .root = request.root,
          .count = request.count,
          .name = request.name != nullptr ? request.name : collective_name(request.kind),
          .origin = request.origin};
}

std::vector<CollectiveRequest> list_of(CollectiveRequest request) {
  std::vector<CollectiveRequest> requests;
  requests.push_back(std::move(request));
  return requests;
}

}  // namespace

Status Communicator::Impl::begin(std::uint64_t count) {
  in_flight.fetch_add(count, std::memory_order_seq_cst);
  Status status;
  if (destroyed.load(std::memory_order_seq_cst)) {
    status = Status(StatusCode::kAborted, group->title() + ": this rank has left the group");
  } else if (group->failed()) {
    status = group->error();
  }
  if (!status.is_ok()) end(count);
  return status;
}

void Communicator::Impl::end(std::uint64_t count) {
  if (in_flight.fetch_sub(count, std::memory_order_acq_rel) != count) return;
  {
    const std::lock_guard<std::mutex> lock(drained_mutex);
  }
  drained.notify_all();
}

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Communicator::~Communicator() {
  // Whoever lets go of a group without destroy() leaves it: peers that wait for this rank must not wait for
  // ever.
  if (in_forked_child()) {
    // Its thread is not here to be joined.
    static_cast<void>(impl_->point_to_point.release());
    return;
  }
  impl_->group->leave();
}

Result<std::shared_ptr<Communicator>> Communicator::create(const CommunicatorOptions& options,
                                                           Bootstrap& bootstrap) {
  Status status = check_options(options);
  if (!status.is_ok()) return status;
  sweep_quarantine();
  CommunicatorOptions bounded = options;
  bounded.timeout = Impl::bounded(options.timeout);
  Result<std::unique_ptr<Group>> group = Group::create(bounded, bootstrap);
  if (!group.is_ok()) return group.status();
  return std::shared_ptr<Communicator>(new Communicator(std::make_unique<Impl>(std::move(group).value())));
}

Status Communicator::check(const CollectiveRequest& request) const {
  if (in_forked_child()) return forked();
  Status status = validate(request, rank(), size());
  if (!status.is_ok()) return status;
  return check_heap(request, core().heap(), rank(), size());
}

Result<std::shared_ptr<Work>> Communicator::submit(Stream& stream, CollectiveRequest request) {
  return submit_coalesced(stream, stream, list_of(std::move(request)));
}

Result<std::shared_ptr<Work>> Communicator::submit_routed(Stream& submitting, Stream& target,
                                                          CollectiveRequest request) {
  return submit_coalesced(submitting, target, list_of(std::move(request)));
}

Result<std::shared_ptr<Work>> Communicator::submit_coalesced(Stream& submitting, Stream& target,
                                                             std::vector<CollectiveRequest> requests) {
  NEURON_CHECK(!requests.empty(), "a unit without requests");
  NEURON_CHECK(&submitting.core() == &core() && &target.core() == &core(), "a stream of another core");
  for (const CollectiveRequest& request : requests) {
    Status status = check(request);
    if (!status.is_ok()) return status;
  }
  const std::lock_guard<std::mutex> order(impl_->order);
  Status status = impl_->begin();
  if (!status.is_ok()) return status;
  target.wait_for(submitting, submitting.submitted());
  const std::size_t count = requests.size();
  // From here on nothing can fail: a number that was taken and not used would leave the group out of step.
  const std::uint64_t sequence = impl_->next_sequence.fetch_add(count, std::memory_order_relaxed);
  auto work = std::make_shared<Work>(group_name(), sequence, count, summarize(requests.front()));
  auto command = std::make_unique<CollectiveCommand>(shared_from_this(), work, std::move(requests));
  std::unique_lock<std::mutex> submission = target.lock_submission();
  impl_->group->note_submitted(sequence, target);
  work->place(target, target.submit_locked(std::move(command), submission));
  submission.unlock();
  submitting.wait_for(target, work->position());
  return work;
}

Status Communicator::run(const CollectiveRequest& request) {
  Status status = check(request);
  if (!status.is_ok()) return status;
  status = impl_->begin();
  if (!status.is_ok()) return status;
  const std::uint64_t sequence = impl_->next_sequence.fetch_add(1, std::memory_order_relaxed);
  ExecutionOutcome outcome = execute_collective(*impl_->group, sequence, request, impl_->timeout_of(request));
  if (outcome.buffers_in_use && request.holds != nullptr) {
    quarantine(request.holds,
               [self = shared_from_this()] { return self->impl_->group->copies_have_ended(); });
  }
  impl_->end();
  return outcome.status;
}

void Communicator::abort(const std::string& reason) { fail(StatusCode::kAborted, reason); }

void Communicator::fail(StatusCode code, const std::string& message) {
  if (!in_forked_child()) impl_->group->fail(code, message);
}

bool Communicator::aborted() const { return in_forked_child() || impl_->group->failed(); }
Status Communicator::status() const { return in_forked_child() ? forked() : impl_->group->error(); }

Status Communicator::destroy(std::chrono::nanoseconds limit) {
  if (in_forked_child()) return forked();
  impl_->destroyed.store(true, std::memory_order_seq_cst);
  const auto idle = [this] { return impl_->in_flight.load(std::memory_order_seq_cst) == 0; };
  std::unique_lock<std::mutex> lock(impl_->drained_mutex);
  bool drained = impl_->drained.wait_for(lock, limit, idle);
  if (!drained) {
    abort(impl_->group->rank_name(rank()) + " left the group while its calls were still in flight");
    // An abort ends every wait of ours; what is left is a command behind other work of its stream.
    drained = impl_->drained.wait_for(lock, std::chrono::seconds(2), idle);
  }
  lock.unlock();
  std::unique_ptr<Progress> ended;
  {
    const std::lock_guard<std::mutex> order(impl_->order);
    ended = std::move(impl_->point_to_point);
  }
  ended.reset();
  impl_->group->leave();
  sweep_quarantine();
  return drained ? Status::ok() : status();
}

std::uint64_t Communicator::next_sequence() const {
  return impl_->next_sequence.load(std::memory_order_relaxed);
}

const std::string& Communicator::group_name() const { return impl_->group->options().group_name; }
int Communicator::rank() const { return impl_->group->rank(); }
int Communicator::size() const { return impl_->group->size(); }
int Communicator::global_rank(int rank) const {
  const std::vector<int>& ranks = impl_->group->options().global_ranks;
  return ranks.empty() ? rank : ranks[static_cast<std::size_t>(rank)];
}
std::chrono::nanoseconds Communicator::timeout() const {
  return impl_->timeout.load(std::memory_order_relaxed);
}
void Communicator::set_timeout(std::chrono::nanoseconds timeout) {
  impl_->timeout.store(timeout, std::memory_order_relaxed);
}
Core& Communicator::core() const { return *impl_->group->options().core; }

}  // namespace neuron
