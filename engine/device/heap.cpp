#include "engine/device/heap.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/fork.h"
#include "engine/device/host_memory.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; glibc's headers came later
#endif

namespace neuron {

namespace {

// Several processes may look at the host's free memory at the same moment; each takes no more than this
// before it looks again, so that together they stay within the reserve.
constexpr std::size_t kUnitsPerStep = 8;

Status system_failure(const char* call) {
  const int error = errno;
  return Status(StatusCode::kInternal,
                std::string("device memory: ") + call + " failed: " + std::strerror(error));
}

class MemfdHeap final : public DeviceHeap {
 public:
  MemfdHeap(std::size_t limit, std::optional<std::uint64_t> host_reserve)
      : limit_(limit), host_(host_reserve), has_pages_(limit / kUnit, false) {}

  ~MemfdHeap() override {
    if (base_ != nullptr) munmap(base_, limit_);
    if (fd_ >= 0) {
      forget_in_child(fd_);
      close(fd_);
    }
  }

  Status open();

  std::byte* base() const override { return base_; }
  std::size_t limit() const override { return limit_; }
  int fd() const override { return fd_; }
  std::size_t committed() const override { return committed_.load(std::memory_order_relaxed); }

  Status commit(std::size_t offset, std::size_t nbytes) override;
  void decommit(std::size_t offset, std::size_t nbytes) override;

 private:
  Status map();
  Status populate(std::size_t first, std::size_t end);
  void set_pages(std::size_t first, std::size_t end, bool present);

  const std::size_t limit_;
  const HostMemory host_;
  int fd_ = -1;
  std::byte* base_ = nullptr;
  std::vector<bool> has_pages_;  // by unit
  std::atomic<std::size_t> committed_{0};
};

Status MemfdHeap::open() {
  fd_ = memfd_create("neuron-device-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd_ < 0) return system_failure("memfd_create");
  arm_fork_guard();
  close_in_child(fd_);
  if (ftruncate(fd_, static_cast<off_t>(limit_)) != 0) return system_failure("ftruncate");
  if (fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return system_failure("F_ADD_SEALS");
  return map();
}

// Maps the file on a 2 MiB boundary, or huge pages would be impossible.
Status MemfdHeap::map() {
  void* reserved =
      mmap(nullptr, limit_ + kUnit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return system_failure("mmap");
  auto* const start = static_cast<std::byte*>(reserved);
  const std::size_t past = reinterpret_cast<std::uintptr_t>(start) % kUnit;
  const std::size_t lead = past == 0 ? 0 : kUnit - past;
  std::byte* const wanted = start + lead;
  if (mmap(wanted, limit_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd_, 0) ==
      MAP_FAILED) {
    const Status status = system_failure("mmap");
    munmap(start, limit_ + kUnit);
    return status;
  }
  base_ = wanted;
  if (lead != 0) munmap(start, lead);
  if (lead != kUnit) munmap(base_ + limit_, kUnit - lead);
  if (madvise(base_, limit_, MADV_DONTFORK) != 0) return system_failure("madvise(MADV_DONTFORK)");
  // A core dump would be as large as the limit.
  (void)madvise(base_, limit_, MADV_DONTDUMP);
  // Where the system allows no huge pages, small ones do.
  (void)madvise(base_, limit_, MADV_HUGEPAGE);
  return Status::ok();
}

Status MemfdHeap::commit(std::size_t offset, std::size_t nbytes) {
  NEURON_CHECK(offset <= limit_ && nbytes <= limit_ - offset, "commit beyond the heap");
  const std::size_t end = (offset + nbytes + kUnit - 1) / kUnit;
  std::vector<std::pair<std::size_t, std::size_t>> done;
  for (std::size_t unit = offset / kUnit; unit < end;) {
    if (has_pages_[unit]) {
      ++unit;
      continue;
    }
    std::size_t last = unit + 1;
    while (last < end && last - unit < kUnitsPerStep && !has_pages_[last]) ++last;
    if (Status status = populate(unit, last); !status.is_ok()) {
      for (const auto& [first, stop] : done) decommit(first * kUnit, (stop - first) * kUnit);
      return status;
    }
    done.emplace_back(unit, last);
    unit = last;
  }
  return Status::ok();
}

Status MemfdHeap::populate(std::size_t first, std::size_t end) {
  const std::size_t nbytes = (end - first) * kUnit;
  if (Status status = host_.check(nbytes); !status.is_ok()) return status;
  int outcome = 0;
  do {
    outcome = madvise(base_ + first * kUnit, nbytes, MADV_POPULATE_WRITE);
  } while (outcome != 0 && errno == EINTR);
  if (outcome != 0 && errno == EINVAL) {
    // Before Linux 5.14: the file gets its pages, the mapping finds them at the first touch.
    outcome = fallocate(fd_, 0, static_cast<off_t>(first * kUnit), static_cast<off_t>(nbytes));
  }
  if (outcome != 0) {
    const int error = errno;
    set_pages(first, end, true);
    decommit(first * kUnit, nbytes);  // what it has got before it failed
    return Status(StatusCode::kOutOfMemory, std::string("the host gave no memory: ") + std::strerror(error));
  }
  set_pages(first, end, true);
  return Status::ok();
}

void MemfdHeap::decommit(std::size_t offset, std::size_t nbytes) {
  NEURON_CHECK(offset <= limit_ && nbytes <= limit_ - offset, "decommit beyond the heap");
  const std::size_t end = (offset + nbytes) / kUnit;
  for (std::size_t unit = (offset + kUnit - 1) / kUnit; unit < end;) {
    if (!has_pages_[unit]) {
      ++unit;
      continue;
    }
    std::size_t last = unit + 1;
    while (last < end && has_pages_[last]) ++last;
    const int outcome =
        fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(unit * kUnit),
                  static_cast<off_t>((last - unit) * kUnit));
    NEURON_CHECK(outcome == 0, "punching a hole failed: ", std::strerror(errno));
    set_pages(unit, last, false);
    unit = last;
  }
}

void MemfdHeap::set_pages(std::size_t first, std::size_t end, bool present) {
  std::fill(has_pages_.begin() + static_cast<std::ptrdiff_t>(first),
            has_pages_.begin() + static_cast<std::ptrdiff_t>(end), present);
  const std::size_t nbytes = (end - first) * kUnit;
  if (present) {
    committed_.fetch_add(nbytes, std::memory_order_relaxed);
  } else {
    committed_.fetch_sub(nbytes, std::memory_order_relaxed);
  }
}

}  // namespace

Result<std::unique_ptr<DeviceHeap>> DeviceHeap::create(std::size_t limit,
                                                       std::optional<std::uint64_t> host_reserve) {
  if (limit == 0) return Status(StatusCode::kInvalidArgument, "a core needs some device memory");
  const std::size_t rounded = (limit + kUnit - 1) / kUnit * kUnit;
  auto heap = std::make_unique<MemfdHeap>(rounded, host_reserve);
  if (Status status = heap->open(); !status.is_ok()) return status;
  return std::unique_ptr<DeviceHeap>(std::move(heap));
}

}  // namespace neuron
