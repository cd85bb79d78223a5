// StoreBootstrap: a c10d Store as the key-value exchange of one new group.
//
// Besides the engine's keys it carries one bad message: a member that fails to join announces it, and every
// wait of the other members ends with that message within about a second, instead of the group's timeout.
// Used by one thread at a time, without Python's global lock (a Store written in Python takes it itself).
#pragma once

#include <cstdint>
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

  // The last of `size` members that comes here lets all go on.
  Status meet(std::string_view key, int size, Deadline deadline);

  // Every failure must be announced: a member that comes late then fails at once, and all count the attempt.
  // The first announcement stays. Never fails: a Store that is gone tells the others by itself.
  void announce_failure(std::string_view message) noexcept;
  // Deletes the keys that this member has set. Requires: nobody reads them any more.
  void erase_own_keys() noexcept;

 private:
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }

  c10::intrusive_ptr<c10d::Store> store_;
  std::string counter_;
  std::string prefix_;
  std::vector<std::string> own_keys_;
};

}  // namespace neuron::bridge
