// ProcessGroupNeuron's collectives: each checks its tensors, then writes them down as engine requests.
#include <c10/util/Exception.h>

#include <algorithm>

#include "bridge/distributed/live_groups.h"
#include "bridge/distributed/process_group_neuron.h"
#include "bridge/rules/rules.h"

namespace neuron::bridge {

using c10d::OpType;

namespace {

std::size_t count_of(const at::Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }

void check_empty_rule(const CallContext& call, const at::Tensor& tensor) {
  if (tensor.numel() == 0)
    check_rule(RuleId::kEmptyTensors, std::string(call.name) + " of a tensor without elements");
}

// Lists whose tensors differ in size work; the product's don't.
void check_even(const CallContext& call, const std::vector<at::Tensor>& tensors) {
  const auto differs = [&tensors](const at::Tensor& tensor) {
    return tensor.numel() != tensors.front().numel();
  };
  if (std::any_of(tensors.begin(), tensors.end(), differs)) {
    check_rule(RuleId::kUnevenSplits, std::string(call.name) + " with tensors of different sizes");
  }
}

// The coalesced forms take one input for each output.
void check_pairs(const CallContext& call, const Tensors& outputs, const Tensors& inputs) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), call.name, ": ", outputs.size(), " outputs, but ",
                    inputs.size(), " inputs");
  check_tensors(call, outputs, "outputs");
  check_tensors(call, inputs, "inputs");
}

}  // namespace

WorkPtr ProcessGroupNeuron::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  const CallContext call = context("broadcast");
  const at::Tensor& tensor = only_tensor(call, tensors, "tensors");
  check_root(call, opts.rootRank);
  CollectiveCall out(call, OpType::BROADCAST, "neuron:broadcast", opts.timeout, opts.asyncOp);
  out.request(CollectiveKind::kBroadcast, tensor.scalar_type(), count_of(tensor)).root(opts.rootRank);
  if (opts.rootRank == getRank()) {
    out.in_place(tensor);
  } else {
    out.output(tensor);
  }
  return launch(std::move(out));
}

WorkPtr ProcessGroupNeuron::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const CallContext call = context("all_reduce");
  const at::Tensor& tensor = only_tensor(call, tensors, "tensors");
  check_empty_rule(call, tensor);
  CollectiveCall out(call, OpType::ALLREDUCE, "neuron:all_reduce", opts.timeout, opts.asyncOp);
  out.request(CollectiveKind::kAllReduce, tensor.scalar_type(), count_of(tensor))
      .reduce_with(translate(opts.reduceOp, tensor, call.name))
      .in_place(tensor);
  return launch(std::move(out));
}

WorkPtr ProcessGroupNeuron::allreduce_coalesced(Tensors& tensors,
                                                const c10d::AllreduceCoalescedOptions& opts) {
  const CallContext call = context("all_reduce_coalesced");
  check_tensors(call, tensors, "tensors");
  CollectiveCall out(call, OpType::ALLREDUCE_COALESCED, "neuron:allreduce_coalesced", opts.timeout,
                     opts.asyncOp);
  for (const at::Tensor& tensor : tensors) {
    out.request(CollectiveKind::kAllReduce, tensor.scalar_type(), count_of(tensor))
        .reduce_with(translate(opts.reduceOp, tensor, call.name))
        .in_place(tensor);
  }
  return launch(std::move(out));
}

WorkPtr ProcessGroupNeuron::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const CallContext call = context("reduce");
  const at::Tensor& tensor = only_tensor(call, tensors, "tensors");
  check_root(call, opts.rootRank);
  CollectiveCall out(call, OpType::REDUCE, "neuron:reduce", opts.timeout, opts.asyncOp);
  out.request(CollectiveKind::kReduce, tensor.scalar_type(), count_of(tensor))
      .root(opts.rootRank)
      .reduce_with(translate(opts.reduceOp, tensor, call.name));
  if (opts.rootRank == getRank()) {
    out.in_place(tensor);
  } else {
    out.input(tensor);
  }
  return launch(std::move(out));
}

WorkPtr ProcessGroupNeuron::allgather(TensorLists& outputs, Tensors& inputs,
                                      const c10d::AllgatherOptions& opts) {
  const CallContext call = context("all_gather");
  const at::Tensor& input = only_tensor(call, inputs, "tensor");
  const Tensors& parts = only_list(call, outputs, "tensor_list");
  check_same_dtype(call, parts, input);
  check_same_numel(call, parts[static_cast<std::size_t>(getRank())], input, "this rank's part of tensor_list",
                   "tensor");
  check_even(call, parts);
  check_empty_rule(call, input);
  CollectiveCall out(call, OpType::ALLGATHER, "neuron:all_gather", opts.timeout, opts.asyncOp);
  out.request(CollectiveKind::kAllGather, input.scalar_type(), count_of(input))
      .input(input)
      .output_parts(parts);
  return launch(std::move(out));
}

WorkPtr ProcessGroupNeuron::_allgather_base(at::Tensor& output, at::Tensor& input,
                                            const c10d::AllgatherOptions& opts) {
  const CallContext call = context("all_gather_into_tensor");
  check_tensor(call, input, "input_tensor");
  check_tensor(call, output, "output_tensor");
  check_concatenation(call, output, input, "output_tensor", "input_tensor");
  check_empty_rule(call, input);
  CollectiveCall out(call, OpType::_ALLGATHER_BASE, "neuron:_all_gather_base", opts.timeout, opts.asyncOp);
  out.request(CollectiveKind::kAllGather, input.scalar_type(), count_of(input)).input(input).output(output);
  return launch(std::move(out));
}

WorkPtr ProcessGroupNeuron::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                const c10d::AllgatherOptions& opts) {
  const CallContext call = context("all_gather_coalesced");
  check_tensors(call, inputs, "inputs");
  TORCH_CHECK_VALUE(outputs.size() == static_cast<std::size_t>(getSize()), call.name, ": ", outputs.size(),
                    " output lists, but the group has ", getSize(), " ranks");
  CollectiveCall out(call, OpType::ALLGATHER_COALESCED, "neuron:all_gather_coalesced", opts.timeout,
                     opts.asyncOp);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors parts;
    for (const Tensors& of_rank : outputs) {
      TORCH_CHECK_VALUE(of_rank.size() == inputs.size(), call.name, ": an output list holds ", of_rank.size(),
                        " tensors for ", inputs.size(), " inputs");
      parts.push_back(of_rank[i]);
    }
    check_tensors(call, parts, "outputs");
    check_same_dtype(call, parts, inputs[i]);
    out.request(CollectiveKind::kAllGather, inputs[i].scalar_type(), count_of(inputs[i]))
        .input(inputs[i])
        .output_parts(parts);
  }
  return launch(std::move(out));
}

WorkPtr ProcessGroupNeuron::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::AllgatherOptions& opts) {
  const CallContext call = context("all_gather_into_tensor_coalesced");
  check_pairs(call, outputs, inputs);
  CollectiveCall out(call, OpType::COALESCED, "neuron:all_gather_into_tensor_coalesced", opts.timeout,
                     opts.asyncOp);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_concatenation(call, outputs[i], inputs[i], "an output", "its input");
    out.request(CollectiveKind::kAllGather, inputs[i].scalar_type(), count_of(inputs[i]))
        .input(inputs[i])
        .output(outputs[i]);
  }
  return launch(std::move(out));
}

WorkPtr ProcessGroupNeuron::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  const CallContext call = context("gather");
  const at::Tensor& input = only_tensor(call, inputs, "tensor");
  check_root(call, opts.rootRank);
  CollectiveCall out(call, OpType::GATHER, "neuron:gather", opts.timeout, opts.asyncOp);
  out.request(CollectiveKind::kGather, input.scalar_type(), count_of(input)).root(opts.rootRank).input(input);
  if (opts.rootRank == getRank()) {
    const Tensors& parts = only_list(call, outputs, "gather_list");
    check_same_dtype(call, parts, input);
    check_even(call, parts);
    out.output_parts(parts);
  } else {
    TORCH_CHECK_VALUE(outputs.empty() || outputs.front().empty(), call.name,
                      ": gather_list is for the root only, rank ", opts.rootRank);
  }
  return launch(std::move(out));
}

WorkPtr ProcessGroupNeuron::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) {
  const CallContext call = context("scatter");
  const at::Tensor& output = only_tensor(call, outputs, "tensor");
  check_root(call, opts.rootRank);
  CollectiveCall out(call, OpType::SCATTER, "neuron:scatter", opts.timeout, opts.asyncOp);
  out.request(CollectiveKind::kScatter, output.scalar_type(), count_of(output)).root(opts.rootRank);
  if (opts.rootRank == getRank()) {
    const Tensors& parts = only_list(call, inputs, "scatter_list");
    check_same_dtype(call, parts, output);
    check_even(call, parts);
    out.input_parts(parts);
  } else {
    TORCH_CHECK_VALUE(inputs.empty() || inputs.front().empty(), call.name,
                      ": scatter_list is for the root only, rank ", opts.rootRank);
  }
  out.output(output);
  return launch(std::move(out));
}

WorkPtr ProcessGroupNeuron::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                           const c10d::ReduceScatterOptions& opts) {
  const CallContext call = context("reduce_scatter");
  const at::Tensor& output = only_tensor(call, outputs, "output");
  const Tensors& parts = only_list(call, inputs, "input_list");
  check_same_dtype(call, parts, output);
  check_same_numel(call, parts[static_cast<std::size_t>(getRank())], output, "this rank's part of input_list",
                   "output");
  check_even(call, parts);
  CollectiveCall out(call, OpType::REDUCE_SCATTER, "neuron:reduce_scatter", opts.timeout, opts.asyncOp);
  out.request(CollectiveKind::kReduceScatter, output.scalar_type(), count_of(output))
      .reduce_with(translate(opts.reduceOp, output, call.name))
      .input_parts(parts)
      .output(output);
  return launch(std::move(out));
}

WorkPtr ProcessGroupNeuron::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::ReduceScatterOptions& opts) {
  const CallContext call = context("reduce_scatter_tensor");
  check_tensor(call, output, "output");
  check_tensor(call, input, "input");
  check_concatenation(call, input, output, "input", "output");
  CollectiveCall out(call, OpType::_REDUCE_SCATTER_BASE, "neuron:_reduce_scatter_base", opts.timeout,
                     opts.asyncOp);
  out.request(CollectiveKind::kReduceScatter, output.scalar_type(), count_of(output))
      .reduce_with(translate(opts.reduceOp, output, call.name))
      .input(input)
      .output(output);
  return launch(std::move(out));
}

WorkPtr ProcessGroupNeuron::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::ReduceScatterOptions& opts) {
  const CallContext call = context("reduce_scatter_tensor_coalesced");
  check_pairs(call, outputs, inputs);
  CollectiveCall out(call, OpType::REDUCE_SCATTER_TENSOR_COALESCED, "neuron:reduce_scatter_tensor_coalesced",
                     opts.timeout, opts.asyncOp);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_concatenation(call, inputs[i], outputs[i], "an input", "its output");
    out.request(CollectiveKind::kReduceScatter, outputs[i].scalar_type(), count_of(outputs[i]))
        .reduce_with(translate(opts.reduceOp, outputs[i], call.name))
        .input(inputs[i])
        .output(outputs[i]);
  }
  return launch(std::move(out));
}

WorkPtr ProcessGroupNeuron::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  const CallContext call = context("all_to_all");
  check_list(call, outputs, "output_tensor_list");
  check_list(call, inputs, "input_tensor_list");
  check_same_dtype(call, outputs, inputs.front());
  check_same_dtype(call, inputs, inputs.front());
  const auto own = static_cast<std::size_t>(getRank());
  check_same_numel(call, outputs[own], inputs[own], "this rank's own output", "its own input");
  check_even(call, inputs);
  CollectiveCall out(call, OpType::ALLTOALL, "neuron:all_to_all", opts.timeout, opts.asyncOp);
  out.request(CollectiveKind::kAllToAll, inputs.front().scalar_type(), 0)
      .input_parts(inputs)
      .output_parts(outputs);
  return launch(std::move(out));
}

WorkPtr ProcessGroupNeuron::alltoall_base(at::Tensor& output, at::Tensor& input,
                                          std::vector<std::int64_t>& output_splits,
                                          std::vector<std::int64_t>& input_splits,
                                          const c10d::AllToAllOptions& opts) {
  const CallContext call = context("all_to_all_single");
  check_tensor(call, output, "output");
  check_tensor(call, input, "input");
  check_same_dtype(call, {output}, input);
  const auto out_counts = split_counts(call, output, output_splits, "output");
  const auto in_counts = split_counts(call, input, input_splits, "input");
  const auto differs = [&in_counts](std::size_t count) { return count != in_counts.front(); };
  const bool even = std::none_of(in_counts.begin(), in_counts.end(), differs) &&
                    std::none_of(out_counts.begin(), out_counts.end(), differs);
  CollectiveCall out(call, OpType::ALLTOALL_BASE, "neuron:all_to_all", opts.timeout, opts.asyncOp);
  out.splits(input_splits, output_splits);
  if (even) {
    out.request(CollectiveKind::kAllToAll, input.scalar_type(), in_counts.front())
        .input(input)
        .output(output);
  } else {
    check_rule(RuleId::kUnevenSplits, call.name);
    out.request(CollectiveKind::kAllToAll, input.scalar_type(), 0)
        .input_slices(input, in_counts)
        .output_slices(output, out_counts);
  }
  return launch(std::move(out));
}

WorkPtr ProcessGroupNeuron::barrier(const c10d::BarrierOptions& opts) {
  const CallContext call = context("barrier");
  for (const std::int64_t id : opts.device_ids) {
    TORCH_CHECK_VALUE(id == device_, "barrier: device_ids has ", id,
                      ", but this process's device is neuron:", static_cast<int>(device_));
  }
  if (!spans_default_world()) {
    check_rule(RuleId::kSubgroupBarrier,
               c10::str("barrier on a group of ", getSize(), " ranks in a world of ", default_world_size()));
  }
  CollectiveCall out(call, OpType::BARRIER, "neuron:barrier", opts.timeout, opts.asyncOp);
  out.request(CollectiveKind::kBarrier, c10::ScalarType::Byte, 0).wait_on_host();
  return launch(std::move(out));
}

void ProcessGroupNeuron::monitoredBarrier(const c10d::BarrierOptions& opts, bool /*wait_all_ranks*/) {
  // Whoever does not come is named by the group's own diagnosis, on all ranks.
  barrier(opts)->wait();
}

}  // namespace neuron::bridge
