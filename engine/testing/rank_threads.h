// RankThreads: a group whose ranks are threads of this process, each with a core of its own.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/collectives/bootstrap.h"
#include "engine/collectives/communicator.h"
#include "engine/device/core.h"

namespace neuron {

// Device memory of one rank that is given back at the end of its life.
class DeviceBuffer {
 public:
  DeviceBuffer(Core& core, std::size_t nbytes);
  explicit DeviceBuffer(Core& core, const std::vector<std::byte>& contents);
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : block_(std::exchange(other.block_, nullptr)), nbytes_(other.nbytes_) {}
  ~DeviceBuffer();

  std::byte* data() const { return block_->data; }
  std::size_t nbytes() const { return nbytes_; }
  void fill(std::byte value) const;
  void write(const std::vector<std::byte>& contents, std::size_t offset = 0) const;
  std::vector<std::byte> read() const { return {data(), data() + nbytes_}; }

 private:
  Block* block_;
  std::size_t nbytes_;
};

struct RankContext {
  int rank;
  int size;
  Core& core;
  Communicator& communicator;

  DeviceBuffer buffer(std::size_t nbytes) const { return DeviceBuffer(core, nbytes); }
  DeviceBuffer buffer(const std::vector<std::byte>& contents) const { return DeviceBuffer(core, contents); }
};

class RankThreads {
 public:
  // Rank and core of `options` are filled in. Throws CheckFailure when the group cannot be made.
  explicit RankThreads(int size, CommunicatorOptions options = {});
  ~RankThreads();

  int size() const { return static_cast<int>(cores_.size()); }
  Core& core(int rank) const { return *cores_[static_cast<std::size_t>(rank)]; }
  Communicator& communicator(int rank) const { return *communicators_[static_cast<std::size_t>(rank)]; }

  // Calls body(context) on a thread for each rank and waits for all. The first exception is thrown on.
  void run(const std::function<void(RankContext&)>& body) const;
  // Another group over the same cores.
  std::vector<std::shared_ptr<Communicator>> make_group(CommunicatorOptions options) const;

 private:
  void on_all(const std::function<void(int rank)>& body) const;

  std::vector<std::unique_ptr<Core>> cores_;
  std::vector<std::shared_ptr<Communicator>> communicators_;
};

}  // namespace neuron
