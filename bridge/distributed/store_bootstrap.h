// StoreBootstrap: a c10d Store as the key-value exchange of one new group.
//
// Besides the engine's keys it carries one bad message: a member that fails to join announces it, and every
// wait of the other members ends with that message in a fraction of a second, instead of at the group's
// timeout. Used by one thread at a time, without Python's global lock (a Store written in Python takes it
// itself).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "engine/collectives/bootstrap.h"

namespace neuron::bridge {

class StoreBootstrap final : public Bootstrap {
 public:
  // Members of one group give one `group_name`. Each counts in the Store how often it has made this group, so
  // that a group made again over one Store never sees the keys of its predecessor. Raises when the Store
  // cannot be reached.
  StoreBootstrap(c10::intrusive_ptr<c10d::Store> store, const std::string& group_name, int rank);

  Status set(std::string_view key, std::string_view bytes) override;
  // kAborted when a member has announced a failure, kInternal when the Store cannot be reached.
  Result<std::string> get(std::string_view key, Deadline deadline) override;
  // As get().
  Status hopeless() override;

  // kAborted with the message when a member has announced a failure. A Store that is gone announces nothing.
  Status announced_failure() noexcept;

  // Every failure must be announced: a member that comes late then fails at once, and all count the attempt.
  // The first announcement stays. Never fails: a Store that is gone tells the others by itself.
  void announce_failure(std::string_view message) noexcept;
  // After a failure: waits at most `limit` for the others to have come here too. The first process that ends
  // may take the Store with it, and launchers kill the others at once: all must have told what is wrong by
  // then.
  void leave_together(int size, std::chrono::milliseconds limit) noexcept;
  // Deletes the keys that this member has set. Requires: nobody reads them any more.
  void erase_own_keys() noexcept;

 private:
  // The value, or nothing when the deadline passed or (if heeded) a failure was announced. Throws as the
  // Store does.
  std::optional<std::string> poll(const std::string& key, Deadline deadline, bool heed_failure);
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }

  c10::intrusive_ptr<c10d::Store> store_;
  std::string counter_;
  std::string prefix_;
  std::vector<std::string> own_keys_;
};

}  // namespace neuron::bridge
