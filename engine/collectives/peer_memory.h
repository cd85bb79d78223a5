// PeerMemory: memory of other cores of this machine (heaps, control blocks), mapped into this process.
//
// Each piece is mapped once per process, however many groups use it, and unmapped when the last user lets go.
// Memory that this process made itself is used where it is, not mapped a second time (ranks as threads).
#pragma once

#include <cstddef>
#include <memory>

#include "engine/base/result.h"

namespace neuron {

class PeerMemory {
 public:
  // Maps the file behind `fd` (borrowed), or finds it mapped. Not inherited by forked children.
  // kUnavailable: the file is shorter than `nbytes`.
  static Result<std::shared_ptr<PeerMemory>> map(int fd, std::size_t nbytes);
  // Says that this process has the file behind `fd` at `base` already; the caller keeps it there while peers
  // use it. Must come before anybody in the process can map() it.
  static Result<std::shared_ptr<PeerMemory>> adopt(int fd, std::byte* base, std::size_t nbytes);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  std::byte* base() const { return base_; }
  std::size_t nbytes() const { return nbytes_; }

 private:
  PeerMemory(std::byte* base, std::size_t nbytes, bool owned) : base_(base), nbytes_(nbytes), owned_(owned) {}
  static Result<std::shared_ptr<PeerMemory>> find_or_make(int fd, std::byte* base, std::size_t nbytes);

  std::byte* const base_;
  const std::size_t nbytes_;
  const bool owned_;  // mapped by us
};

}  // namespace neuron
