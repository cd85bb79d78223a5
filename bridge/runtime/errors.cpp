#include "bridge/runtime/errors.h"

#include <c10/util/Exception.h>

#include <string>

namespace neuron::bridge {

namespace {

std::string describe(const StreamError& error, const std::string& what) {
  std::string text = "neuron: " + error.op + " failed on the device: " + what;
  if (!error.origin.empty()) text += "\n  submitted at " + error.origin;
  text +=
      "\n  (commands after it on the streams that it reached were skipped; set NEURON_LAUNCH_BLOCKING=1 to "
      "raise at the call)";
  return text;
}

}  // namespace

void raise(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      C10_THROW_ERROR(ValueError, status.message());
    case StatusCode::kOutOfMemory:
      C10_THROW_ERROR(OutOfMemoryError, status.message());
    case StatusCode::kTimeout:
    case StatusCode::kAborted:
    case StatusCode::kPeerDied:
    case StatusCode::kMismatch:
      C10_THROW_ERROR(DistBackendError, status.message());
    case StatusCode::kUnavailable:
    case StatusCode::kExecution:
    case StatusCode::kInternal:
    case StatusCode::kOk:
      break;
  }
  C10_THROW_ERROR(Error, status.message());
}

void raise(const StreamErrorPtr& error) {
  if (!error->exception) {
    if (error->permanent) raise(error->status);
    raise(Status(error->status.code(), describe(*error, error->status.message())));
  }
  try {
    std::rethrow_exception(error->exception);
  } catch (const c10::IndexError& e) {
    C10_THROW_ERROR(IndexError, describe(*error, e.msg()));
  } catch (const c10::ValueError& e) {
    C10_THROW_ERROR(ValueError, describe(*error, e.msg()));
  } catch (const c10::TypeError& e) {
    C10_THROW_ERROR(TypeError, describe(*error, e.msg()));
  } catch (const c10::NotImplementedError& e) {
    C10_THROW_ERROR(NotImplementedError, describe(*error, e.msg()));
  } catch (const c10::LinAlgError& e) {
    C10_THROW_ERROR(LinAlgError, describe(*error, e.msg()));
  } catch (const c10::OutOfMemoryError& e) {
    C10_THROW_ERROR(OutOfMemoryError, describe(*error, e.msg()));
  } catch (const c10::Error& e) {
    C10_THROW_ERROR(Error, describe(*error, e.msg()));
  } catch (const std::exception& e) {
    C10_THROW_ERROR(Error, describe(*error, e.what()));
  }
}

}  // namespace neuron::bridge
