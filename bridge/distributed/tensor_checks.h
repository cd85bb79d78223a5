// tensor_checks: what a collective demands of its tensors, checked before anything is sent.
//
// A failure raises ValueError, TypeError or RuntimeError on this rank, naming the call and the argument; no
// sequence number has been taken then, so that the group stays in step and the call can be repeated with
// right arguments.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace neuron::bridge {

using TensorLists = std::vector<std::vector<at::Tensor>>;

// The call that is checked: what messages name, and what they compare with.
struct CallContext {
  const char* name;         // "all_reduce"
  int rank;                 // in the group
  int size;                 // of the group
  c10::DeviceIndex device;  // the one that the group's members may use here
};

// A dense neuron tensor on the group's device, of a type that can be sent.
void check_tensor(const CallContext& call, const at::Tensor& tensor, const char* argument);
void check_tensors(const CallContext& call, const std::vector<at::Tensor>& tensors, const char* argument);

// c10d passes lists where one process drives several devices; here a list holds the one tensor of this
// process.
const at::Tensor& only_tensor(const CallContext& call, const std::vector<at::Tensor>& tensors,
                              const char* argument);
// One tensor for each member of the group.
void check_list(const CallContext& call, const std::vector<at::Tensor>& list, const char* argument);
// The list of one tensor for each member that belongs to the one device of this process.
const std::vector<at::Tensor>& only_list(const CallContext& call, const TensorLists& lists,
                                         const char* argument);

// All of one type, as collectives that take a list demand.
void check_same_dtype(const CallContext& call, const std::vector<at::Tensor>& tensors,
                      const at::Tensor& like);
// `whole` holds one `part` for each member.
void check_concatenation(const CallContext& call, const at::Tensor& whole, const at::Tensor& part,
                         const char* whole_name, const char* part_name);
void check_same_numel(const CallContext& call, const at::Tensor& a, const at::Tensor& b, const char* a_name,
                      const char* b_name);
void check_root(const CallContext& call, std::int64_t root);
void check_peer(const CallContext& call, std::int64_t peer, const char* argument);

// The elements for each member of an all_to_all_single along dimension 0. An empty `splits` means equal ones.
std::vector<std::size_t> split_counts(const CallContext& call, const at::Tensor& tensor,
                                      const std::vector<std::int64_t>& splits, const char* argument);

}  // namespace neuron::bridge
