// Communicator: one rank's membership in a group whose ranks are cores of this machine.
//
// A rank is a process or a thread with a Core of its own. Every member issues the same requests in the same
// order; the order is that of the calls on the communicator, whatever streams they go to. A request takes its
// sequence number and its place in the stream in one critical section. Shared: the caller, commands in flight
// and quarantined blocks end its life together. All members may be called from any thread, unless they say
// otherwise.
//
// Errors are the group's and permanent: mismatch, timeout, death of a member, abort. They reach all members,
// each of whose later calls fails with the same message. The member that detects one writes it to stderr at
// once.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/deadline.h"
#include "engine/base/result.h"
#include "engine/collectives/bootstrap.h"
#include "engine/collectives/collective.h"
#include "engine/collectives/point_to_point.h"
#include "engine/collectives/work.h"
#include "engine/device/core.h"
#include "engine/device/stream.h"

namespace neuron {

// Must be the same on all members.
struct CommunicatorTuning {
  // Work is claimed in segments of about this many bytes.
  std::size_t segment_bytes = std::size_t{256} << 10;
  // Two ranks' contributions of up to this many bytes each go through the control block, in one flag round.
  // Every rank then does all of the arithmetic, so that more ranks have a lower limit: two n-ths of it, but
  // not below 256.
  std::size_t inline_bytes = 4096;
};

struct CommunicatorOptions {
  std::string group_name{};
  int rank = 0;
  int size = 1;                     // at most Communicator::kMaxSize
  std::vector<int> global_ranks{};  // of the members, for messages; empty: the same as the group's
  std::chrono::nanoseconds timeout = std::chrono::minutes(30);
  Core* core = nullptr;  // must outlive the communicator
  CommunicatorTuning tuning{};
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  static constexpr int kMaxSize = 128;

  // Collective over the members; blocks until all have come or the timeout has passed. kUnavailable: a member
  // is of another user or not on this machine.
  static Result<std::shared_ptr<Communicator>> create(const CommunicatorOptions& options,
                                                      Bootstrap& bootstrap);
  ~Communicator();

  // Collective: returns when every member has called it as often as this one. Needs no bootstrap, so that the
  // first member that goes on may end and take the bootstrap with it. `look` is called some 50 times a second
  // and ends the wait, for all members, with the error that it returns: a member that could not be made can
  // announce itself only elsewhere. kTimeout and kPeerDied name the ranks.
  Status assemble(Deadline deadline, const std::function<Status()>& look);

  // Enqueues on `stream`, which is one of the core's. Fails only before a number is taken: invalid request,
  // buffer outside the heap, group in error or destroyed. Blocks while the stream is a full run-ahead ahead.
  Result<std::shared_ptr<Work>> submit(Stream& stream, CollectiveRequest request);
  // The request runs on `target`, ordered after what `submitting` has now and before what it gets later.
  Result<std::shared_ptr<Work>> submit_routed(Stream& submitting, Stream& target, CollectiveRequest request);
  // Several requests as one unit: consecutive numbers, one command, one Work. `submitting` may be `target`.
  // Requires: at least one request.
  Result<std::shared_ptr<Work>> submit_coalesced(Stream& submitting, Stream& target,
                                                 std::vector<CollectiveRequest> requests);
  // Point-to-point messages of one call: they go in any order, whatever the list's. A Work for each. They are
  // ready when `stream` has reached its present end; nothing is queued on it otherwise (Work::order).
  Result<std::vector<std::shared_ptr<Work>>> submit_messages(Stream& stream,
                                                             std::vector<PointToPointRequest> requests);
  // Runs on the caller's thread, without a stream; blocks until done. Numbered like the others.
  Status run(const CollectiveRequest& request);

  // Makes the group's error permanent on all members (kAborted; the first reason stays). Never blocks on
  // peers.
  void abort(const std::string& reason);
  // abort() with another code; for whoever detects the failure.
  void fail(StatusCode code, const std::string& message);
  bool aborted() const;
  Status status() const;  // the group's error, or ok

  // Leaves the group: refuses new requests, waits at most `limit` for this rank's requests in flight, aborts
  // the group if they don't end, marks this rank as left. Idempotent. Peers that still need this rank get
  // kAborted.
  Status destroy(std::chrono::nanoseconds limit = std::chrono::seconds(30));

  std::uint64_t next_sequence() const;  // number that the next request gets; starts at 1
  const std::string& group_name() const;
  int rank() const;
  int size() const;
  int global_rank(int rank) const;
  // For commands of this folder: the progress thread of point-to-point looks again.
  void wake_progress() const;
  std::chrono::nanoseconds timeout() const;
  void set_timeout(std::chrono::nanoseconds timeout);  // of requests that start afterwards
  Core& core() const;

 private:
  friend class CollectiveCommand;
  class Impl;
  Status check(const CollectiveRequest& request) const;
  explicit Communicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace neuron
