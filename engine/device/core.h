// Core: one software (logical) NeuronCore: its heap, its block pool and its streams.
//
// Made by DeviceRuntime for the process's devices, or directly by tests (ranks as threads have a core each).
// A core is never destroyed on a thread that it owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/device/block_pool.h"
#include "engine/device/heap.h"
#include "engine/device/stream.h"

namespace neuron {

struct CoreOptions {
  int index = 0;         // device index in this process
  int logical_core = 0;  // number of the core on the instance, as NEURON_RT_VISIBLE_CORES counts
  std::size_t memory_limit = std::size_t{24} << 30;
  std::optional<std::uint64_t> host_reserve;  // see DeviceHeap::create
  RunAheadLimits run_ahead;
};

class Core {
 public:
  // Streams handed out by acquire_stream() for each priority; beyond that they are handed out again in turn.
  static constexpr std::uint32_t kStreamsPerPriority = 32;

  static Result<std::unique_ptr<Core>> create(const CoreOptions& options);
  ~Core();

  int index() const;
  int logical_core() const;
  std::string name() const;  // "neuron:0"
  DeviceHeap& heap() const;
  BlockPool& pool() const;

  Stream& default_stream() const;
  // Priorities below -1 count as -1, above 1 as 1.
  Stream& acquire_stream(int priority);
  // The stream with that id, made if need be; null when the id is not one that acquire_stream can give.
  Stream* stream(std::uint32_t id);
  // Those that exist now.
  std::vector<Stream*> streams() const;

  // Waits for everything submitted to every stream; takes the first error found.
  StreamErrorPtr synchronize();

  // Closes every stream (Stream::close), also those that are made later. For the end of the process.
  void close();

 private:
  class Impl;
  explicit Core(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace neuron
