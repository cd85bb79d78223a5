#include "bridge/distributed/store_bootstrap.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "bridge/distributed/exception_text.h"

namespace neuron::bridge {

namespace {

constexpr const char* kFailureKey = "failed";

Status store_failed(const std::exception& error) {
  return Status(StatusCode::kInternal, "the Store of the group cannot be reached: " + exception_text(error));
}

std::vector<std::uint8_t> to_bytes(std::string_view text) { return {text.begin(), text.end()}; }

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
  try {
    if (auto value = poll(full(key), deadline, /*heed_failure=*/true)) return std::move(*value);
    if (Status failure = announced_failure(); !failure.is_ok()) return failure;
    return Status(StatusCode::kTimeout, "key '" + std::string(key) + "' did not appear in the Store in time");
  } catch (const std::exception& error) {
    return store_failed(error);
  }
}

std::optional<std::string> StoreBootstrap::poll(const std::string& key, Deadline deadline,
                                                bool heed_failure) {
  // Not Store::wait(): that looks for one key only, and a TCPStore reports each of its timeouts on stderr.
  // The pauses grow to what thousands of waiting ranks may ask for.
  using std::chrono::microseconds;
  constexpr microseconds kFirstPause{200}, kLongestPause{200'000};
  const std::string failure = full(kFailureKey);
  for (microseconds pause = kFirstPause;; pause = std::min(pause + pause / 2, kLongestPause)) {
    if (store_->check({key})) {
      const auto bytes = store_->get(key);
      return std::string(bytes.begin(), bytes.end());
    }
    if (deadline.passed() || (heed_failure && store_->check({failure}))) return std::nullopt;
    std::this_thread::sleep_for(pause);
  }
}

Status StoreBootstrap::hopeless() {
  try {
    auto failure = poll(full(kFailureKey), Deadline::after({}), /*heed_failure=*/false);
    return failure ? Status(StatusCode::kAborted, std::move(*failure)) : Status::ok();
  } catch (const std::exception& error) {
    return store_failed(error);
  }
}

Status StoreBootstrap::announced_failure() noexcept {
  Status found = hopeless();
  return found.code() == StatusCode::kAborted ? found : Status::ok();
}

void StoreBootstrap::announce_failure(std::string_view message) noexcept {
  try {
    if (!store_->check({full(kFailureKey)})) store_->set(full(kFailureKey), to_bytes(message));
  } catch (const std::exception&) {
    // The Store is gone, which ends the waits of the others.
  }
}

void StoreBootstrap::leave_together(int size, std::chrono::milliseconds limit) noexcept {
  try {
    if (store_->add(full("left"), 1) == size) {
      store_->set(full("left/all"), to_bytes("1"));
    } else {
      (void)poll(full("left/all"), Deadline::after(limit), /*heed_failure=*/false);
    }
  } catch (const std::exception&) {
    // The Store is gone: somebody has left already.
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
