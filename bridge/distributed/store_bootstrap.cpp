#include "bridge/distributed/store_bootstrap.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace neuron::bridge {

namespace {

using std::chrono::milliseconds;

constexpr const char* kFailureKey = "failed";
// A wait looks for the bad message this often: seldom enough for thousands of waiting ranks.
constexpr milliseconds kFirstSlice{100}, kLongestSlice{1000};

Status store_failed(const std::exception& error) {
  return Status(StatusCode::kInternal,
                std::string("the Store of the group cannot be reached: ") + error.what());
}

std::vector<std::uint8_t> to_bytes(std::string_view text) { return {text.begin(), text.end()}; }

milliseconds until(Deadline deadline) {
  if (deadline.is_never()) return kLongestSlice;
  const auto left = std::chrono::duration_cast<milliseconds>(deadline.when() - Deadline::Clock::now());
  return std::max(left, milliseconds{1});
}

}  // namespace

StoreBootstrap::StoreBootstrap(c10::intrusive_ptr<c10d::Store> store, const std::string& group_name, int rank)
    : store_(std::move(store)), counter_("neuron/" + group_name + "/made_by_" + std::to_string(rank)) {
  prefix_ = "neuron/" + group_name + "/" + std::to_string(store_->add(counter_, 1)) + "/";
}

Status StoreBootstrap::set(std::string_view key, std::string_view bytes) {
  try {
    store_->set(full(key), to_bytes(bytes));
    own_keys_.emplace_back(key);
    return Status::ok();
  } catch (const std::exception& error) {
    return store_failed(error);
  }
}

Result<std::string> StoreBootstrap::get(std::string_view key, Deadline deadline) {
  const std::vector<std::string> wanted{full(key)}, failure{full(kFailureKey)};
  try {
    for (milliseconds slice = kFirstSlice;; slice = std::min(slice * 2, kLongestSlice)) {
      try {
        store_->wait(wanted, std::min(slice, until(deadline)));
        const auto bytes = store_->get(wanted.front());
        return std::string(bytes.begin(), bytes.end());
      } catch (const c10::DistStoreError&) {
        // Not there within the slice.
      }
      if (store_->check(failure)) {
        const auto bytes = store_->get(failure.front());
        return Status(StatusCode::kAborted, std::string(bytes.begin(), bytes.end()));
      }
      if (deadline.passed()) {
        return Status(StatusCode::kTimeout,
                      "key '" + std::string(key) + "' did not appear in the Store in time");
      }
    }
  } catch (const std::exception& error) {
    return store_failed(error);
  }
}

Status StoreBootstrap::meet(std::string_view key, int size, Deadline deadline) {
  const std::string open = std::string(key) + "/open";
  try {
    if (store_->add(full(key), 1) == size) {
      store_->set(full(open), to_bytes("1"));
      return Status::ok();
    }
  } catch (const std::exception& error) {
    return store_failed(error);
  }
  const Result<std::string> opened = get(open, deadline);
  return opened.is_ok() ? Status::ok() : opened.status();
}

void StoreBootstrap::announce_failure(std::string_view message) noexcept {
  try {
    if (!store_->check({full(kFailureKey)})) store_->set(full(kFailureKey), to_bytes(message));
  } catch (const std::exception&) {
    // The Store is gone, which ends the waits of the others.
  }
}

void StoreBootstrap::erase_own_keys() noexcept {
  try {
    for (const std::string& key : std::exchange(own_keys_, {})) store_->deleteKey(full(key));
  } catch (const std::exception&) {
    // A Store that cannot delete keeps a few bytes.
  }
}

}  // namespace neuron::bridge
