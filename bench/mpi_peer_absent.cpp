// For builds on a machine without MPI.
#include <stdexcept>

#include "bench/mpi_peer.h"

namespace neuron {

MpiJob::MpiJob() {
  throw std::runtime_error(
      "built without MPI: install libopenmpi-dev and openmpi-bin, then configure and build again");
}
MpiJob::~MpiJob() = default;

void MpiOperation::Free::operator()(std::byte* /*memory*/) const {}
MpiOperation::MpiOperation(const OperationSpec& spec, int rank, bool in_place)
    : spec_(spec), rank_(rank), in_place_(in_place) {}
void MpiOperation::clear_input() {}
void MpiOperation::run() {}
std::uint64_t MpiOperation::count_wrong() const { return 0; }

}  // namespace neuron
