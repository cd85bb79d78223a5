#include "engine/base/status.h"

#include "engine/base/check.h"

namespace neuron {

const char* status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kOutOfMemory:
      return "out of memory";
    case StatusCode::kTimeout:
      return "timeout";
    case StatusCode::kAborted:
      return "aborted";
    case StatusCode::kPeerDied:
      return "peer died";
    case StatusCode::kMismatch:
      return "mismatch";
    case StatusCode::kUnavailable:
      return "unavailable";
    case StatusCode::kExecution:
      return "execution failed";
    case StatusCode::kInternal:
      return "internal error";
  }
  return "unknown";
}

Status::Status(StatusCode code, std::string message) {
  NEURON_CHECK(code != StatusCode::kOk, "a Status with a message is a failure");
  detail_ = std::make_shared<const Detail>(Detail{code, std::move(message)});
}

const std::string& Status::message() const {
  static const std::string empty;
  return detail_ ? detail_->message : empty;
}

}  // namespace neuron
