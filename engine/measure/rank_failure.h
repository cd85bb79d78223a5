// RankFailure: how a measuring program gives up. Nobody in it can go on after a failed call, so a bad Status
// is thrown, and caught once for each rank, by run_ranks().
#pragma once

#include <stdexcept>
#include <utility>

#include "engine/base/result.h"

namespace neuron {

class RankFailure : public std::runtime_error {
 public:
  explicit RankFailure(const Status& status) : std::runtime_error(status.message()), code_(status.code()) {}
  StatusCode code() const { return code_; }

 private:
  StatusCode code_;
};

inline void or_fail(const Status& status) {
  if (!status.is_ok()) throw RankFailure(status);
}

template <typename T>
T or_fail(Result<T> result) {
  if (!result.is_ok()) throw RankFailure(result.status());
  return std::move(result).value();
}

}  // namespace neuron
