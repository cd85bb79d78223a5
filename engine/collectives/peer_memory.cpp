#include "engine/collectives/peer_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "engine/base/fork.h"
#include "engine/base/mutex.h"

namespace neuron {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

using FileIdentity = std::pair<dev_t, ino_t>;

struct Registry {
  Mutex mutex;
  std::map<FileIdentity, std::weak_ptr<PeerMemory>> known GUARDED_BY(mutex);
};
// Leaked: the last user may be a stream thread that outlives static destruction.
Registry& registry() {
  static Registry& instance = *new Registry();
  return instance;
}

Status system_error(const char* call) {
  return Status(StatusCode::kInternal,
                std::string("memory of a peer: ") + call + " failed: " + std::strerror(errno));
}

// Aligned for huge pages: the two sides of a huge page can both be mapped by one entry only then.
std::byte* map_aligned(int fd, std::size_t nbytes) {
  void* range =
      mmap(nullptr, nbytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return nullptr;
  auto* const start = static_cast<std::byte*>(range);
  const std::size_t skip = (kHugePage - reinterpret_cast<std::uintptr_t>(start) % kHugePage) % kHugePage;
  std::byte* const base = start + skip;
  const std::size_t length = (nbytes + 4095) / 4096 * 4096;
  const std::size_t tail = (nbytes + kHugePage + 4095) / 4096 * 4096 - skip - length;
  if (skip != 0) munmap(start, skip);
  if (tail != 0) munmap(base + length, tail);
  if (mmap(base, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0) ==
      MAP_FAILED) {
    munmap(base, length);
    return nullptr;
  }
  madvise(base, nbytes, MADV_DONTFORK);
  madvise(base, nbytes, MADV_DONTDUMP);
  if (nbytes >= kHugePage) madvise(base, nbytes, MADV_HUGEPAGE);
  return base;
}

}  // namespace

Result<std::shared_ptr<PeerMemory>> PeerMemory::map(int fd, std::size_t nbytes) {
  return find_or_make(fd, nullptr, nbytes);
}

Result<std::shared_ptr<PeerMemory>> PeerMemory::adopt(int fd, std::byte* base, std::size_t nbytes) {
  return find_or_make(fd, base, nbytes);
}

Result<std::shared_ptr<PeerMemory>> PeerMemory::find_or_make(int fd, std::byte* base, std::size_t nbytes) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return system_error("fstat");
  if (static_cast<std::size_t>(info.st_size) < nbytes)
    return Status(StatusCode::kUnavailable, "memory of a peer is smaller than it said");
  Registry& all = registry();
  const MutexLock lock(all.mutex);
  std::weak_ptr<PeerMemory>& slot = all.known[{info.st_dev, info.st_ino}];
  if (std::shared_ptr<PeerMemory> known = slot.lock()) return known;
  const bool owned = base == nullptr;
  if (owned) base = map_aligned(fd, nbytes);
  if (base == nullptr) return system_error("mmap");
  std::shared_ptr<PeerMemory> made(new PeerMemory(base, nbytes, owned));
  slot = made;
  std::erase_if(all.known, [](const auto& entry) { return entry.second.expired(); });
  return made;
}

PeerMemory::~PeerMemory() {
  if (owned_ && !in_forked_child()) munmap(base_, nbytes_);
}

}  // namespace neuron
