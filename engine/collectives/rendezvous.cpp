#include "engine/collectives/rendezvous.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "engine/base/check.h"

namespace neuron {

namespace {

constexpr char kSocketPrefix[] = "neuron-emu-";
constexpr std::size_t kTokenBytes = 16;

// What stands in the table for each rank; fixed size, no text.
struct Address {
  std::uint8_t name[kTokenBytes];
  std::uint8_t token[kTokenBytes];
};

struct Greeting {
  std::uint8_t token[kTokenBytes];  // of the one it is sent to
  std::int32_t rank;
  std::int32_t size;
  std::uint64_t heap_bytes;
};

Status system_error(const std::string& what) {
  return Status(StatusCode::kInternal, "set-up of a group: " + what + " failed: " + std::strerror(errno));
}

Status timeout_error(const RendezvousRequest& request, const std::string& what) {
  return Status(StatusCode::kTimeout, detail::concatenate("set-up of group '", request.group_name, "' (rank ",
                                                          request.rank, " of ", request.size, "): ", what));
}

// The name starts with a zero byte: it has no place in the file system and goes with the socket.
socklen_t fill_address(const Address& address, sockaddr_un* out) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string name = kSocketPrefix;
  for (const std::uint8_t byte : address.name) {
    name += kDigits[byte >> 4];
    name += kDigits[byte & 15];
  }
  out->sun_family = AF_UNIX;
  out->sun_path[0] = '\0';
  std::memcpy(out->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

// False: nothing has come until `limit`.
bool readable_until(int fd, Deadline limit) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(limit.when() - Deadline::Clock::now()).count();
    pollfd polled{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = poll(&polled, 1, static_cast<int>(std::max<long>(left + 1, 0)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the read says what is wrong
    if (limit.passed()) return false;
  }
}

// One message, so that the descriptors arrive with it (at most two).
Status send_greeting(int socket, const Greeting& greeting, int heap_fd, int control_fd) {
  const int fds[2] = {heap_fd, control_fd};
  const std::size_t bytes = (control_fd >= 0 ? 2 : 1) * sizeof(int);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
  iovec data{.iov_base = const_cast<Greeting*>(&greeting), .iov_len = sizeof greeting};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(bytes);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(bytes);
  std::memcpy(CMSG_DATA(header), fds, bytes);
  if (sendmsg(socket, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof greeting))
    return system_error("sendmsg");
  return Status::ok();
}

struct Received {
  Greeting greeting{};
  FileDescriptor fds[2];
  bool complete = false;
};

Received receive_greeting(int socket) {
  Received out;
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  iovec data{.iov_base = &out.greeting, .iov_len = sizeof out.greeting};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (got < 0) return out;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count && i < 2; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      out.fds[i] = FileDescriptor(fd);
    }
  }
  out.complete = got == static_cast<ssize_t>(sizeof out.greeting) && out.fds[0].is_open();
  return out;
}

Result<int> peer_process(int socket, int rank) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return system_error("SO_PEERCRED");
  if (credentials.uid != geteuid()) {
    return Status(
        StatusCode::kUnavailable,
        detail::concatenate("rank ", rank, " belongs to user ", credentials.uid, ", this process to user ",
                            geteuid(), ": all ranks of a group must be of one user"));
  }
  return credentials.pid;
}

class Meeting {
 public:
  Meeting(const RendezvousRequest& request, Bootstrap& bootstrap, Deadline deadline)
      : request_(request),
        bootstrap_(bootstrap),
        deadline_(deadline),
        table_(static_cast<std::size_t>(request.size)) {
    result_.peers.resize(table_.size());
  }

  Result<RendezvousResult> run() {
    for (const auto step : {&Meeting::listen, &Meeting::exchange_addresses, &Meeting::connect_to_lower,
                            &Meeting::accept_higher, &Meeting::read_answers}) {
      Status status = (this->*step)();
      if (!status.is_ok()) return status;
    }
    return std::move(result_);
  }

 private:
  std::size_t own() const { return static_cast<std::size_t>(request_.rank); }
  std::string key(const std::string& what) const { return request_.group_name + "/" + what; }

  Status listen() {
    if (getrandom(&self_, sizeof self_, 0) != static_cast<ssize_t>(sizeof self_))
      return system_error("getrandom");
    listener_ = FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!listener_.is_open()) return system_error("socket");
    sockaddr_un name{};
    const socklen_t length = fill_address(self_, &name);
    if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&name), length) != 0) return system_error("bind");
    if (::listen(listener_.get(), request_.size) != 0) return system_error("listen");
    return Status::ok();
  }

  Status exchange_addresses() {
    Status set = bootstrap_.set(key(std::to_string(request_.rank)),
                                std::string_view(reinterpret_cast<const char*>(&self_), sizeof self_));
    if (!set.is_ok()) return set;
    if (request_.rank == 0) {
      for (std::size_t rank = 0; rank < table_.size(); ++rank) {
        Result<std::string> bytes = bootstrap_.get(key(std::to_string(rank)), deadline_);
        if (!bytes.is_ok()) {
          if (bytes.status().code() != StatusCode::kTimeout) return bytes.status();
          return timeout_error(request_, detail::concatenate("rank ", rank, " did not come in time"));
        }
        if (bytes.value().size() != sizeof(Address)) return bad_bytes();
        std::memcpy(&table_[rank], bytes.value().data(), sizeof(Address));
      }
      return bootstrap_.set(key("table"), std::string_view(reinterpret_cast<const char*>(table_.data()),
                                                           table_.size() * sizeof(Address)));
    }
    Result<std::string> bytes = bootstrap_.get(key("table"), deadline_);
    if (!bytes.is_ok()) {
      if (bytes.status().code() != StatusCode::kTimeout) return bytes.status();
      return timeout_error(
          request_, "rank 0 did not publish the members in time: it, or a rank it waits for, has not come");
    }
    if (bytes.value().size() != table_.size() * sizeof(Address)) return bad_bytes();
    std::memcpy(table_.data(), bytes.value().data(), bytes.value().size());
    return Status::ok();
  }

  Status bad_bytes() const {
    return Status(StatusCode::kMismatch,
                  "set-up of group '" + request_.group_name +
                      "': the members disagree on its size, or its keys are of another group");
  }

  Status connect_to_lower() {
    for (std::size_t rank = 0; rank < own(); ++rank) {
      FileDescriptor connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      if (!connection.is_open()) return system_error("socket");
      sockaddr_un name{};
      const socklen_t length = fill_address(table_[rank], &name);
      if (connect(connection.get(), reinterpret_cast<sockaddr*>(&name), length) != 0) {
        if (errno != ECONNREFUSED) return system_error("connect");
        return Status(StatusCode::kUnavailable,
                      detail::concatenate("set-up of group '", request_.group_name, "': rank ", rank,
                                          " is not on this machine and network namespace, or has ended"));
      }
      Status sent = greet(connection.get(), rank);
      if (!sent.is_ok()) return sent;
      connections_.push_back(std::move(connection));
    }
    return Status::ok();
  }

  Status greet(int socket, std::size_t to) const {
    Greeting greeting{};
    std::memcpy(greeting.token, table_[to].token, kTokenBytes);
    greeting.rank = request_.rank;
    greeting.size = request_.size;
    greeting.heap_bytes = request_.heap_bytes;
    return send_greeting(socket, greeting, request_.heap_fd, request_.control_fd);
  }

  // `late` says what the deadline has passed for.
  template <typename Late>
  Status wait_readable(int fd, const Late& late) {
    constexpr std::chrono::milliseconds kLookEvery{200};  // thousands of ranks may wait
    while (!readable_until(fd, Deadline::after(kLookEvery))) {
      if (Status found = bootstrap_.hopeless(); !found.is_ok()) return found;
      if (deadline_.passed()) return late();
    }
    return Status::ok();
  }

  Status accept_higher() {
    for (std::size_t missing = table_.size() - 1 - own(); missing > 0;) {
      const auto late = [this] { return missing_peers(); };
      if (Status came = wait_readable(listener_.get(), late); !came.is_ok()) return came;
      FileDescriptor connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!connection.is_open()) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        return system_error("accept");
      }
      if (Status came = wait_readable(connection.get(), late); !came.is_ok()) return came;
      Received received = receive_greeting(connection.get());
      // A stranger that found the socket: not of the group, not our business.
      if (!received.complete || std::memcmp(received.greeting.token, self_.token, kTokenBytes) != 0) continue;
      const auto rank = static_cast<std::size_t>(received.greeting.rank);
      if (received.greeting.size != request_.size || rank <= own() || rank >= table_.size())
        return bad_bytes();
      Status taken = take(connection.get(), rank, std::move(received));
      if (!taken.is_ok()) return taken;
      Status sent = greet(connection.get(), rank);
      if (!sent.is_ok()) return sent;
      --missing;
    }
    return Status::ok();
  }

  Status missing_peers() const {
    std::string missing;
    for (std::size_t rank = own() + 1; rank < table_.size(); ++rank) {
      if (!result_.peers[rank].heap.is_open())
        missing += detail::concatenate(missing.empty() ? "" : ", ", rank);
    }
    return timeout_error(request_, "no connection in time from rank " + missing);
  }

  Status read_answers() {
    for (std::size_t rank = 0; rank < own(); ++rank) {
      const int socket = connections_[rank].get();
      const auto late = [&] {
        return timeout_error(request_, detail::concatenate("rank ", rank, " did not answer in time"));
      };
      if (Status came = wait_readable(socket, late); !came.is_ok()) return came;
      Received received = receive_greeting(socket);
      if (!received.complete) {
        return Status(StatusCode::kPeerDied,
                      detail::concatenate("set-up of group '", request_.group_name, "': rank ", rank,
                                          " ended before it answered, or refused"));
      }
      if (std::memcmp(received.greeting.token, self_.token, kTokenBytes) != 0) return bad_bytes();
      if (rank == 0) result_.control = std::move(received.fds[1]);
      Status taken = take(socket, rank, std::move(received));
      if (!taken.is_ok()) return taken;
    }
    return Status::ok();
  }

  Status take(int socket, std::size_t rank, Received received) {
    Result<int> pid = peer_process(socket, static_cast<int>(rank));
    if (!pid.is_ok()) return pid.status();
    result_.peers[rank] = {.pid = pid.value(),
                           .heap = std::move(received.fds[0]),
                           .heap_bytes = static_cast<std::size_t>(received.greeting.heap_bytes)};
    return Status::ok();
  }

  const RendezvousRequest& request_;
  Bootstrap& bootstrap_;
  const Deadline deadline_;
  Address self_{};
  std::vector<Address> table_;
  FileDescriptor listener_;
  std::vector<FileDescriptor> connections_;  // to rank 0, 1, …
  RendezvousResult result_;
};

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.release();
  }
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

int FileDescriptor::release() { return std::exchange(fd_, -1); }

Result<RendezvousResult> meet(const RendezvousRequest& request, Bootstrap& bootstrap, Deadline deadline) {
  return Meeting(request, bootstrap, deadline).run();
}

}  // namespace neuron
