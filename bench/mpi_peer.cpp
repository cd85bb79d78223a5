#include "bench/mpi_peer.h"

#include <mpi.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <stdexcept>

namespace neuron {

namespace {

constexpr std::size_t kPage = 4096;
constexpr int kTag = 0;

int bytes_of(const OperationSpec& spec) { return static_cast<int>(spec.count * dtype_size(spec.dtype)); }

}  // namespace

MpiJob::MpiJob() {
  MPI_Init(nullptr, nullptr);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  std::string name = (std::filesystem::temp_directory_path() / "collectives-bench-XXXXXX").string();
  if (rank_ == 0 && mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
  MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  directory_ = name;
}

MpiJob::~MpiJob() {
  MPI_Barrier(MPI_COMM_WORLD);
  std::error_code ignored;
  if (rank_ == 0) std::filesystem::remove_all(directory_, ignored);
  MPI_Finalize();
}

void MpiOperation::Free::operator()(std::byte* memory) const { std::free(memory); }

MpiOperation::Buffer MpiOperation::allocate(std::size_t nbytes) {
  void* memory = std::aligned_alloc(kPage, std::max<std::size_t>(nbytes + kPage - 1, kPage) / kPage * kPage);
  if (memory == nullptr) throw std::bad_alloc();
  return Buffer(static_cast<std::byte*>(memory));
}

MpiOperation::MpiOperation(const OperationSpec& spec, int rank, bool in_place)
    : spec_(spec),
      rank_(rank),
      in_place_(in_place),
      input_(allocate(in_place ? size_bytes(spec) : input_count(spec, rank) * dtype_size(spec.dtype))),
      output_(allocate(in_place ? 0 : output_count(spec, rank) * dtype_size(spec.dtype))) {
  if (reduces(spec.operation) && (spec.dtype != DType::kFloat32 || spec.op != ReduceOp::kSum))
    throw std::invalid_argument("MPI reductions are measured with fp32 sums only");
  if (!in_place) std::memset(output_.get(), 0xff, output_count(spec, rank) * dtype_size(spec.dtype));
  if (const std::size_t inputs = input_count(spec, rank); inputs != 0)
    input_pattern(spec, rank).fill(input_.get(), 0, inputs);
}

void MpiOperation::clear_input() {
  std::memset(input_.get(), 0, input_count(spec_, rank_) * dtype_size(spec_.dtype));
}

void MpiOperation::run() {
  const MPI_Comm all = MPI_COMM_WORLD;
  const int count = static_cast<int>(spec_.count);
  const int part = bytes_of(spec_);
  const bool is_root = rank_ == spec_.root;
  const std::byte* in = input_.get();
  std::byte* out = output();
  switch (spec_.operation) {
    case Operation::kAllReduce:
      MPI_Allreduce(in_place_ ? MPI_IN_PLACE : in, out, count, MPI_FLOAT, MPI_SUM, all);
      return;
    case Operation::kBroadcast:
      if (is_root && !in_place_) std::memcpy(out, in, static_cast<std::size_t>(part));
      MPI_Bcast(out, part, MPI_BYTE, spec_.root, all);
      return;
    case Operation::kReduce:
      MPI_Reduce(in_place_ && is_root ? MPI_IN_PLACE : in, out, count, MPI_FLOAT, MPI_SUM, spec_.root, all);
      return;
    case Operation::kAllGather:
      MPI_Allgather(in, part, MPI_BYTE, out, part, MPI_BYTE, all);
      return;
    case Operation::kGather:
      MPI_Gather(in, part, MPI_BYTE, out, part, MPI_BYTE, spec_.root, all);
      return;
    case Operation::kScatter:
      MPI_Scatter(in, part, MPI_BYTE, out, part, MPI_BYTE, spec_.root, all);
      return;
    case Operation::kReduceScatter:
      MPI_Reduce_scatter_block(in, out, count, MPI_FLOAT, MPI_SUM, all);
      return;
    case Operation::kAllToAll:
      MPI_Alltoall(in, part, MPI_BYTE, out, part, MPI_BYTE, all);
      return;
    case Operation::kBarrier:
      MPI_Barrier(all);
      return;
    case Operation::kSendReceive:
      MPI_Sendrecv(in, part, MPI_BYTE, (rank_ + 1) % spec_.ranks, kTag, out, part, MPI_BYTE,
                   (rank_ + spec_.ranks - 1) % spec_.ranks, kTag, all, MPI_STATUS_IGNORE);
      return;
  }
}

std::uint64_t MpiOperation::count_wrong() const {
  return neuron::count_wrong(expected_output(spec_, rank_), output());
}

}  // namespace neuron
