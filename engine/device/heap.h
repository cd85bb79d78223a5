// DeviceHeap: the memory of one software core, as one memfd that peers may map.
//
// The whole range [base, base + limit) is reserved at once and backed by pages only where units of 2 MiB have
// been committed. Committing touches the pages (with huge pages where the system allows), after the host's
// and the control group's free memory have been checked against a reserve: so a shortage is a Status here,
// never a SIGBUS later. Offsets, not pointers, travel between processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "engine/base/result.h"
#include "engine/base/status.h"

namespace neuron {

class DeviceHeap {
 public:
  static constexpr std::size_t kUnit = std::size_t{2} << 20;

  // `limit`: bytes of memory of the core, rounded up to a unit. Not inherited by forked children
  // (MADV_DONTFORK). `host_reserve`: bytes of the host's and of the control group's memory to leave free; see
  // HostMemory. The file is sealed against changes of its size, so that peers may rely on it.
  static Result<std::unique_ptr<DeviceHeap>> create(std::size_t limit,
                                                    std::optional<std::uint64_t> host_reserve = std::nullopt);
  virtual ~DeviceHeap() = default;

  virtual std::byte* base() const = 0;
  virtual std::size_t limit() const = 0;
  virtual int fd() const = 0;                 // borrowed; close-on-exec
  virtual std::size_t committed() const = 0;  // bytes of units with pages now

  // Gives pages to every unit that [offset, offset + nbytes) touches and that has none. All or nothing.
  // kOutOfMemory names the bound that is too small. Callers serialize commit and decommit (the pool's lock).
  virtual Status commit(std::size_t offset, std::size_t nbytes) = 0;
  // Returns the pages of the units that lie wholly inside the range to the system.
  virtual void decommit(std::size_t offset, std::size_t nbytes) = 0;

  bool contains(const void* pointer) const {
    auto* p = static_cast<const std::byte*>(pointer);
    return p >= base() && p < base() + limit();
  }
  std::size_t offset_of(const void* pointer) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(pointer) - base());
  }
};

}  // namespace neuron
