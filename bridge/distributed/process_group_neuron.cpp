#include "bridge/distributed/process_group_neuron.h"

#include <ATen/ops/empty.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "bridge/distributed/failure_watch.h"
#include "bridge/distributed/live_groups.h"
#include "bridge/rules/rules.h"
#include "bridge/runtime/allocator.h"
#include "bridge/runtime/devices.h"
#include "bridge/runtime/errors.h"

namespace neuron::bridge {

namespace {

GroupIdentity identity_of(const ProcessGroupNeuron::Options& options, int rank, int size) {
  GroupIdentity group;
  group.name = options.group_name;
  group.rank = rank;
  group.size = size;
  for (const auto global : options.global_ranks_in_group)
    group.global_ranks.push_back(static_cast<int>(global));
  // The default group is made without a list: it is the world.
  if (group.global_ranks.empty()) {
    for (int member = 0; member < size; ++member) group.global_ranks.push_back(member);
  }
  return group;
}

// Contiguous and aligned, or one cell of a regular mesh: start, start + s, … with the mesh's other cells
// beside it.
bool is_mesh_cell(const std::vector<std::uint64_t>& ranks, std::uint64_t world) {
  const auto size = static_cast<std::uint64_t>(ranks.size());
  if (size <= 1) return true;
  if (ranks[1] <= ranks[0]) return false;
  const std::uint64_t stride = ranks[1] - ranks[0];
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i] != ranks[0] + i * stride) return false;
  }
  return world % (stride * size) == 0 && ranks[0] % (stride * size) < stride;
}

void check_subgroup_shape(const ProcessGroupNeuron::Options& options) {
  const auto& ranks = options.global_ranks_in_group;
  const int world = default_world_size();
  if (ranks.empty() || world == 0 || is_mesh_cell(ranks, static_cast<std::uint64_t>(world))) return;
  check_rule(RuleId::kUnalignedSubgroup, c10::str("ranks [", c10::Join(", ", ranks), "] of ", world));
}

std::shared_ptr<Communicator> join_checked(const ProcessGroupNeuron::Options& options, int rank, int size,
                                           const c10::intrusive_ptr<c10d::Store>& store) {
  check_subgroup_shape(options);
  return join_group(identity_of(options, rank, size), store, options.timeout);
}

}  // namespace

ProcessGroupNeuron::ProcessGroupNeuron(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                       c10::intrusive_ptr<Options> options)
    : c10d::Backend(rank, size),
      options_(std::move(options)),
      communicator_(join_checked(*options_, rank, size, store)),
      device_(static_cast<c10::DeviceIndex>(communicator_->core().index())) {
  if (options_->global_ranks_in_group.empty()) set_default_world_size(size);
  watch_for_failure(communicator_);
  init();
}

ProcessGroupNeuron::~ProcessGroupNeuron() {
  try {
    shutdown();
  } catch (const std::exception&) {
    // The peers have been told; there is nobody here to tell.
  }
}

at::Tensor ProcessGroupNeuron::allocateTensor(long size, at::TensorOptions options) {
  return at::empty({size}, options.device(neuron_device(device_)));
}

std::shared_ptr<c10::Allocator> ProcessGroupNeuron::getMemAllocator() {
  // Every allocation of the device is fit for collectives. The allocator lives as long as the process.
  return {&device_allocator(), [](c10::Allocator*) {}};
}

WorkPtr ProcessGroupNeuron::launch(CollectiveCall call) {
  in_flight_.sweep();
  WorkParts parts = call.submit(*communicator_, recorded());
  if (Batch* batch = open_batch()) {
    WorkParts& all = batch->collectives;
    for (const auto& work : parts.works) all.works.push_back(work);
    all.outputs.insert(all.outputs.end(), parts.outputs.begin(), parts.outputs.end());
    if (parts.copied_on != nullptr) {
      all.copied_on = parts.copied_on;
      all.copied_at = parts.copied_at;
    }
  }
  return call.make_work(std::move(parts));
}

const std::shared_ptr<RecordedGroup>& ProcessGroupNeuron::recorded() {
  // torch gives the description after it has made the group.
  std::call_once(recorded_once_, [this] {
    recorded_ = std::make_shared<RecordedGroup>();
    recorded_->name = options_->group_name;
    recorded_->description = getGroupDesc();
    recorded_->rank = getRank();
    for (int rank = 0; rank < getSize(); ++rank)
      recorded_->global_ranks.push_back(communicator_->global_rank(rank));
    recorded_->communicator = communicator_;
    recorded_->timeout = std::chrono::duration_cast<std::chrono::milliseconds>(communicator_->timeout());
    FlightRecorder::get().add_group(recorded_);
  });
  return recorded_;
}

ProcessGroupNeuron::Batch* ProcessGroupNeuron::open_batch() {
  const std::lock_guard lock(batches_mutex_);
  if (batches_.empty()) return nullptr;
  const auto found = batches_.find(std::this_thread::get_id());
  return found == batches_.end() ? nullptr : found->second.get();
}

void ProcessGroupNeuron::startCoalescing() {
  const std::lock_guard lock(batches_mutex_);
  batches_[std::this_thread::get_id()] = std::make_unique<Batch>();
}

WorkPtr ProcessGroupNeuron::endCoalescing() {
  std::unique_ptr<Batch> batch;
  {
    const std::lock_guard lock(batches_mutex_);
    auto entry = batches_.extract(std::this_thread::get_id());
    TORCH_CHECK(!entry.empty(), "endCoalescing without startCoalescing");
    batch = std::move(entry.mapped());
  }
  WorkParts parts = std::move(batch->collectives);
  if (!batch->messages.empty()) post_messages(std::move(batch->messages), /*batched=*/true, parts);
  if (parts.works.empty()) return nullptr;
  const char* title = at::hasCallbacks() ? "neuron:coalesced" : nullptr;
  auto work = c10::make_intrusive<WorkNeuron>(getRank(), c10d::OpType::COALESCED, title, std::nullopt,
                                              WorkNeuron::HostWait::kOnRequest, device_);
  work->set_parts(std::move(parts));
  return work;
}

std::uint64_t ProcessGroupNeuron::getSequenceNumberForGroup() { return communicator_->next_sequence() - 1; }

void ProcessGroupNeuron::setTimeout(std::chrono::milliseconds timeout) {
  check_rule(RuleId::kSetTimeout);
  options_->timeout = timeout;
  communicator_->set_timeout(timeout);
}

void ProcessGroupNeuron::eagerConnectSingleDevice(at::Device device) {
  TORCH_CHECK_VALUE(device == neuron_device(device_), "device_id ", device, " is not this process's device ",
                    neuron_device(device_), ", which LOCAL_RANK chooses");
}

c10d::ErrorType ProcessGroupNeuron::getError() {
  switch (communicator_->status().code()) {
    case StatusCode::kOk:
      return c10d::ErrorType::SUCCESS;
    case StatusCode::kTimeout:
      return c10d::ErrorType::TIMEOUT;
    case StatusCode::kPeerDied:
      return c10d::ErrorType::REMOTE_ERROR;
    case StatusCode::kInvalidArgument:
    case StatusCode::kOutOfMemory:
    case StatusCode::kAborted:
    case StatusCode::kMismatch:
    case StatusCode::kUnavailable:
    case StatusCode::kExecution:
    case StatusCode::kInternal:
      break;
  }
  return c10d::ErrorType::COMM_ERROR;
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupNeuron::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  const auto mine = std::find(ranks.begin(), ranks.end(), getRank());
  if (mine == ranks.end()) return nullptr;
  auto options = c10::make_intrusive<Options>(opts ? opts->timeout : options_->timeout);
  if (opts) options->group_name = opts->group_name;
  for (const int rank : ranks) {
    options->global_ranks_in_group.push_back(static_cast<std::uint64_t>(communicator_->global_rank(rank)));
  }
  return c10::make_intrusive<ProcessGroupNeuron>(store, static_cast<int>(mine - ranks.begin()),
                                                 static_cast<int>(ranks.size()), std::move(options));
}

void ProcessGroupNeuron::abort() {
  stop_watching(*communicator_);
  communicator_->abort(
      c10::str("abort() was called on rank ", getRank(), " of group '", communicator_->group_name(), "'"));
}

void ProcessGroupNeuron::shutdown() {
  const Status left = communicator_->destroy(communicator_->timeout());
  in_flight_.sweep();
  look_for_failures();
  stop_watching(*communicator_);
  note_left(*communicator_);
  // A group that failed has said so to every call and wait; leaving it is no new failure.
  if (communicator_->status().is_ok()) raise_if_error(left);
}

bool ProcessGroupNeuron::spans_default_world() const {
  const int world = default_world_size();
  return world == 0 || getSize() >= world;
}

}  // namespace neuron::bridge
