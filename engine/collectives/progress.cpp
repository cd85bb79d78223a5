#include "engine/collectives/progress.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <optional>
#include <system_error>

#include "engine/base/check.h"
#include "engine/collectives/algorithms/block_copy.h"

namespace neuron {

namespace {

// Copied of one message before the others get their turn.
constexpr std::size_t kTurnBytes = std::size_t{1} << 20;

}  // namespace

Progress::Progress(Group& group, std::function<void()> on_end)
    : group_(group), control_(group.control()), on_end_(std::move(on_end)), patience_(group.is_crowded()) {}

Progress::~Progress() {
  stopping_.store(true, std::memory_order_seq_cst);
  wake();
  std::thread thread;
  {
    const MutexLock lock(mutex_);
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
}

void Progress::wake() const { group_.tell(group_.rank()); }

Status Progress::post(const std::vector<OperationPtr>& operations) {
  {
    const MutexLock lock(mutex_);
    if (!thread_.joinable()) {
      // Signals are the program's.
      sigset_t all;
      sigset_t previous;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &previous);
      try {
        thread_ = std::thread([this] { run(); });
      } catch (const std::system_error& error) {
        pthread_sigmask(SIG_SETMASK, &previous, nullptr);
        return Status(StatusCode::kUnavailable,
                      group_.title() + ": no thread for point-to-point messages: " + error.what());
      }
      pthread_sigmask(SIG_SETMASK, &previous, nullptr);
    }
    posted_.insert(posted_.end(), operations.begin(), operations.end());
  }
  wake();
  return Status::ok();
}

void Progress::run() {
  try {
    run_until_stopped();
  } catch (const std::exception& error) {
    group_.fail(StatusCode::kInternal,
                detail::concatenate(group_.rank_name(group_.rank()), ": ", error.what()));
  }
  take_posted();
  fail_all();
}

void Progress::run_until_stopped() {
  std::atomic<std::uint64_t>& events = group_.own().p2p_events;
  for (;;) {
    const std::uint64_t seen = events.load(std::memory_order_seq_cst);
    if (stopping_.load(std::memory_order_seq_cst)) return;
    if (group_.failed()) {
      take_posted();
      fail_all();
    } else if (step()) {
      continue;
    }
    const auto news = [&] { return events.load(std::memory_order_seq_cst) != seen; };
    if (!idle() && patience_.wait_awake(news)) continue;
    const Deadline tick = idle() ? Deadline::never() : Deadline::after(Group::kTick);
    constexpr SpinBudget kSleep{.pauses = 0, .yield_ns = 0};
    if (!group_.own().p2p_doorbell.wait(news, tick, kSleep) && !group_.failed()) look_for_failures();
  }
}

bool Progress::step() {
  bool moved = take_posted();
  moved = take_announcements() || moved;
  moved = take_receipts() || moved;
  moved = announce_sends() || moved;
  moved = advance_transfers() || moved;
  return give_receipts() || moved;
}

bool Progress::take_posted() {
  std::vector<OperationPtr> posted;
  {
    const MutexLock lock(mutex_);
    posted.swap(posted_);
  }
  for (OperationPtr& operation : posted) {
    if (operation->request.direction == PointToPointRequest::Direction::kSend) {
      sends_[{operation->request.peer, operation->request.tag}].push_back(std::move(operation));
    } else if (std::optional<Message> message = queue_.post(operation)) {
      start_transfer(std::move(operation), std::move(*message));
    }
  }
  return !posted.empty();
}

bool Progress::take_announcements() {
  bool moved = false;
  for (int peer = 0; peer < group_.size(); ++peer) {
    Mailbox& mailbox = control_.mailbox(peer, group_.rank());
    bool took = false;
    while (const Announcement* announcement = mailbox.next_announced()) {
      Message message = Message::of(peer, *announcement);
      mailbox.release();
      took = true;
      if (OperationPtr receive = queue_.match(peer, message.tag)) {
        start_transfer(std::move(receive), std::move(message));
      } else {
        queue_.keep(std::move(message));
      }
    }
    if (took) group_.tell(peer);  // there is room again
    moved = moved || took;
  }
  return moved;
}

bool Progress::take_receipts() {
  bool moved = false;
  for (int peer = 0; peer < group_.size(); ++peer) {
    Mailbox& mailbox = control_.mailbox(group_.rank(), peer);
    bool took = false;
    for (std::uint64_t id = 0; mailbox.take_receipt(&id); took = true) {
      const auto sent = announced_sends_.find(id);
      NEURON_CHECK(sent != announced_sends_.end(), "a receipt for a message that was not sent");
      complete(sent->second, Status::ok());
      announced_sends_.erase(sent);
    }
    if (took) group_.tell(peer);
    moved = moved || took;
  }
  return moved;
}

bool Progress::announce_sends() {
  bool moved = false;
  for (auto channel = sends_.begin(); channel != sends_.end();) {
    std::deque<OperationPtr>& waiting = channel->second;
    while (!waiting.empty() && waiting.front()->is_ready() && announce(waiting.front())) {
      waiting.pop_front();
      moved = true;
    }
    channel = waiting.empty() ? sends_.erase(channel) : std::next(channel);
  }
  return moved;
}

// False: the mailbox is full.
bool Progress::announce(const OperationPtr& send) {
  const PointToPointRequest& request = send->request;
  Mailbox& mailbox = control_.mailbox(group_.rank(), request.peer);
  Announcement* const out = mailbox.next_free();
  if (out == nullptr) return false;
  const bool eager = send->nbytes() <= PointToPointRequest::kEagerBytes;
  out->id = next_id_++;
  out->tag = request.tag;
  out->count = request.count;
  out->dtype = static_cast<std::uint32_t>(request.dtype);
  out->eager = eager ? 1 : 0;
  out->offset = 0;
  if (eager) {
    if (send->nbytes() != 0) std::memcpy(out->payload, request.buffer, send->nbytes());
  } else {
    out->offset = group_.options().core->heap().offset_of(request.buffer);
    announced_sends_.emplace(out->id, send);
  }
  mailbox.announce();
  group_.tell(request.peer);
  if (eager) complete(send, Status::ok());
  return true;
}

void Progress::start_transfer(OperationPtr receive, Message message) {
  const PointToPointRequest& request = receive->request;
  if (message.count != request.count || message.dtype != request.dtype) {
    group_.fail(StatusCode::kMismatch,
                detail::concatenate("a message does not fit: ", group_.rank_name(group_.rank()), " called ",
                                    describe(request), ", and got ", describe(message)));
  }
  transfers_.push_back({std::move(receive), std::move(message)});
}

bool Progress::advance_transfers() {
  bool moved = false;
  for (std::size_t i = 0; i < transfers_.size();) {
    if (!transfers_[i].receive->is_ready()) {
      ++i;
      continue;
    }
    moved = true;
    if (!advance(transfers_[i])) {
      ++i;
      continue;
    }
    transfers_.erase(transfers_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return moved;
}

// True: the operation is complete.
bool Progress::advance(Transfer& transfer) {
  const Message& message = transfer.message;
  Operation& receive = *transfer.receive;
  const std::size_t nbytes = receive.nbytes();
  if (!group_.failed()) {
    const std::size_t turn = message.eager ? nbytes : std::min(kTurnBytes, nbytes - transfer.done);
    const std::byte* const from = message.eager
                                      ? message.payload.data()
                                      : group_.heap_base(message.source) + message.offset + transfer.done;
    std::byte* const to = static_cast<std::byte*>(receive.request.buffer) + transfer.done;
    if (turn != 0) copy_block(from, to, turn, copy_target(nbytes));
    transfer.done += turn;
    if (transfer.done < nbytes) return false;
  }
  // A sender that gives up makes the error known before it lets its block go: whoever sees no error now has
  // read what was sent.
  if (group_.failed()) {
    complete(transfer.receive, group_.error());
    return true;
  }
  receive.work->set_source(message.source);
  if (!message.eager) receipts_.emplace_back(message.source, message.id);
  complete(transfer.receive, Status::ok());
  return true;
}

bool Progress::give_receipts() {
  bool moved = false;
  for (std::size_t left = receipts_.size(); left > 0; --left) {
    const auto [peer, id] = receipts_.front();
    receipts_.pop_front();
    if (control_.mailbox(peer, group_.rank()).give_receipt(id)) {
      group_.tell(peer);
      moved = true;
    } else {
      receipts_.emplace_back(peer, id);
    }
  }
  return moved;
}

void Progress::complete(const OperationPtr& operation, Status status) {
  operation->work->finish(std::move(status));
  on_end_();
}

bool Progress::idle() const {
  return sends_.empty() && announced_sends_.empty() && transfers_.empty() && receipts_.empty() &&
         queue_.receives().empty();
}

void Progress::fail_all() {
  const Status status =
      group_.failed() ? group_.error() : Status(StatusCode::kAborted, group_.title() + " was destroyed");
  for_each_pending([&](const OperationPtr& operation) { complete(operation, status); });
  sends_.clear();
  announced_sends_.clear();
  transfers_.clear();
  receipts_.clear();
  queue_.clear();
}

}  // namespace neuron
