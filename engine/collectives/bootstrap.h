// Bootstrap: the key-value exchange through which the members of a new group find each other.
//
// O(n) traffic: each rank sets one key, rank 0 gets the n keys and sets a table, each rank gets the table.
// Keys are written once; a key of an earlier group must never be seen again: whoever makes two groups of one
// name over one store gives each its own prefix.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "engine/base/deadline.h"
#include "engine/base/result.h"

namespace neuron {

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  // `bytes` may hold any byte.
  virtual Status set(std::string_view key, std::string_view bytes) = 0;
  // Blocks until the key is set. kTimeout names the key.
  virtual Result<std::string> get(std::string_view key, Deadline deadline) = 0;
  // Why waiting for the other members is in vain: the exchange is gone, or one of them has said that it failed.
  // Asked some times a second by a member that waits for something that does not come through the exchange.
  virtual Status hopeless() { return Status::ok(); }
};

// For ranks that are threads of one process. Thread-safe; shared by all ranks.
class LocalBootstrap final : public Bootstrap {
 public:
  Status set(std::string_view key, std::string_view bytes) override;
  Result<std::string> get(std::string_view key, Deadline deadline) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> values_;
};

// For ranks that are processes of one machine without a store: a file for each key, in a directory that all
// see. Writes are atomic (rename); get() polls. The directory belongs to the caller.
class DirectoryBootstrap final : public Bootstrap {
 public:
  explicit DirectoryBootstrap(std::string directory);
  Status set(std::string_view key, std::string_view bytes) override;
  Result<std::string> get(std::string_view key, Deadline deadline) override;

 private:
  std::string path_of(std::string_view key) const;
  const std::string directory_;
};

}  // namespace neuron
