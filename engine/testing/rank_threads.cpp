#include "engine/testing/rank_threads.h"

#include <chrono>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/base/check.h"
#include "engine/testing/device_fixtures.h"

namespace neuron {

DeviceBuffer::DeviceBuffer(Core& core, std::size_t nbytes) : nbytes_(nbytes) {
  Result<Block*> block = core.pool().allocate(nbytes, core.default_stream());
  NEURON_CHECK(block.is_ok(), block.status().message());
  block_ = block.value();
}

DeviceBuffer::DeviceBuffer(Core& core, const std::vector<std::byte>& contents)
    : DeviceBuffer(core, contents.size()) {
  write(contents);
}

DeviceBuffer::~DeviceBuffer() {
  if (block_ != nullptr) block_->pool->free(block_);
}

void DeviceBuffer::fill(std::byte value) const { std::memset(data(), static_cast<int>(value), nbytes_); }

void DeviceBuffer::write(const std::vector<std::byte>& contents, std::size_t offset) const {
  NEURON_CHECK(offset + contents.size() <= nbytes_, "a write beyond the buffer");
  if (!contents.empty()) std::memcpy(data() + offset, contents.data(), contents.size());
}

RankThreads::RankThreads(int size, CommunicatorOptions options) {
  for (int rank = 0; rank < size; ++rank) {
    CoreOptions core;
    core.index = rank;
    core.logical_core = rank;
    core.memory_limit = std::size_t{256} << 20;
    cores_.push_back(make_test_core(core));
  }
  if (options.group_name.empty()) options.group_name = "test";
  communicators_ = make_group(std::move(options));
}

RankThreads::~RankThreads() {
  on_all([this](int rank) { (void)communicator(rank).destroy().is_ok(); });
}

std::vector<std::shared_ptr<Communicator>> RankThreads::make_group(CommunicatorOptions options) const {
  LocalBootstrap bootstrap;
  std::vector<std::shared_ptr<Communicator>> made(cores_.size());
  options.size = size();
  on_all([&](int rank) {
    CommunicatorOptions own = options;
    own.rank = rank;
    own.core = &core(rank);
    Result<std::shared_ptr<Communicator>> communicator = Communicator::create(own, bootstrap);
    NEURON_CHECK(communicator.is_ok(), communicator.status().message());
    made[static_cast<std::size_t>(rank)] = std::move(communicator).value();
  });
  return made;
}

void RankThreads::run(const std::function<void(RankContext&)>& body) const {
  on_all([&](int rank) {
    RankContext context{rank, size(), core(rank), communicator(rank)};
    body(context);
  });
}

void RankThreads::on_all(const std::function<void(int rank)>& body) const {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace neuron
