// Status: the outcome of an engine call that can fail for a reason outside the program.
//
// Failures from outside (no memory, a peer died, a deadline passed) are returned as a Status; bugs are thrown
// by NEURON_CHECK (check.h). The message is written for the user: what was given, what is allowed, what to
// do.
#pragma once

#include <memory>
#include <string>
#include <utility>

namespace neuron {

enum class StatusCode {
  kOk,
  kInvalidArgument,  // the caller's input is wrong
  kOutOfMemory,      // the core's limit, the control group's limit or the host's limit
  kTimeout,          // a deadline passed
  kAborted,          // the group was aborted; permanent
  kPeerDied,         // a member process of the group has ended; permanent
  kMismatch,         // the members of a group made different calls; permanent
  kUnavailable,      // the thing is not here (core held elsewhere, forked child, runtime at its end)
  kExecution,        // a command failed while it ran
  kInternal,         // a system call failed in a way that we do not expect
};

const char* status_code_name(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok; costs no allocation
  Status(StatusCode code, std::string message);

  static Status ok() { return Status(); }

  bool is_ok() const { return detail_ == nullptr; }
  StatusCode code() const { return detail_ ? detail_->code : StatusCode::kOk; }
  // Empty when ok. Valid as long as this Status or a copy of it lives.
  const std::string& message() const;

 private:
  struct Detail {
    StatusCode code;
    std::string message;
  };
  std::shared_ptr<const Detail> detail_;
};

}  // namespace neuron
