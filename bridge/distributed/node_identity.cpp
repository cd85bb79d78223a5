#include "bridge/distributed/node_identity.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>

namespace neuron::bridge {

std::string node_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> link{};
  const ssize_t length = ::readlink("/proc/self/ns/net", link.data(), link.size());
  const std::string network =
      length > 0 ? std::string(link.data(), static_cast<std::size_t>(length)) : "net:unknown";
  const char* agent = std::getenv("GROUP_RANK");
  return (boot.empty() ? "boot:unknown" : boot) + "/" + network + "/" + (agent != nullptr ? agent : "");
}

}  // namespace neuron::bridge
