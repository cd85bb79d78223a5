// Rendezvous: the members of a new group find each other and swap descriptors.
//
// 1. Each rank listens on an abstract Unix socket of a random name and sets one bootstrap key: name and token.
// 2. Rank 0 gets all of them and sets the table; each rank gets the table.
// 3. A rank connects to every lower one and sends its greeting, then accepts every higher one, reads its
//    greeting and answers, then reads the answers of the lower ones. A connection needs no accept to be
//    written to, so nobody waits in a circle.
// A greeting carries token, rank and the descriptor of the heap; rank 0's also that of the control block. The
// kernel says who is at the other end (SO_PEERCRED): another user's process is refused. Nothing keeps running
// afterwards.
#pragma once

#include <string>
#include <vector>

#include "engine/base/deadline.h"
#include "engine/base/result.h"
#include "engine/collectives/bootstrap.h"

namespace neuron {

// Owns a descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release();

 private:
  int fd_ = -1;
};

struct RendezvousRequest {
  std::string group_name;
  int rank = 0;
  int size = 1;
  int heap_fd = -1;  // borrowed
  std::size_t heap_bytes = 0;
  int control_fd = -1;  // borrowed; rank 0 only
};

struct PeerGreeting {
  int pid = 0;  // 0: not visible from here
  FileDescriptor heap;
  std::size_t heap_bytes = 0;
};

struct RendezvousResult {
  std::vector<PeerGreeting> peers;  // by rank; the own entry is empty
  FileDescriptor control;           // not on rank 0
};

// Blocks until all members have come, or the deadline. Errors name the rank.
Result<RendezvousResult> meet(const RendezvousRequest& request, Bootstrap& bootstrap, Deadline deadline);

}  // namespace neuron
