// MPI as the peer of a measurement: the ranks that mpirun has started, and the same operations by MPI on host
// memory. Without MPI at build time (mpi_peer_absent.cpp) MpiJob's constructor throws std::runtime_error.
//
// Used by the rank's own thread only. Errors of MPI end the job (MPI_ERRORS_ARE_FATAL).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/measure/operation_spec.h"

namespace neuron {

// From MPI_Init to MPI_Finalize. One at a time.
class MpiJob {
 public:
  MpiJob();
  ~MpiJob();
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  // Empty, seen by all ranks, and removed with the job.
  const std::string& directory() const { return directory_; }

 private:
  int rank_ = 0;
  int ranks_ = 1;
  std::string directory_;
};

// One operation of one rank with its buffers. Reductions: fp32 sums only.
class MpiOperation {
 public:
  // `in_place`: one buffer is input and output (MPI_IN_PLACE).
  MpiOperation(const OperationSpec& spec, int rank, bool in_place);

  // Zeros for the input: runs in place would otherwise reduce results again and again.
  void clear_input();
  void run();
  // Elements of this rank's output that are not what the constructor's inputs and one run() give.
  std::uint64_t count_wrong() const;

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  using Buffer = std::unique_ptr<std::byte, Free>;
  static Buffer allocate(std::size_t nbytes);
  std::byte* output() const { return in_place_ ? input_.get() : output_.get(); }

  const OperationSpec spec_;
  const int rank_;
  const bool in_place_;
  Buffer input_;
  Buffer output_;
};

}  // namespace neuron
