"""Rank side of test_tensor_parallel.py: a decoder split in every way, against the whole one on the CPU.

10 steps of AdamW; losses and parameters must agree to 1e-4. AdamW divides by the gradient's size, so a gradient of
another scale or sign shows in the parameters at once.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist
import torch.nn.functional as F
from decoder import LENGTH, WIDTH, Decoder, batches, decoder, loss_of, train_alone
from experts import RoutedExperts
from full_tensor import full
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.experimental import _attention as attention
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import torch_neuronx  # noqa: F401

Plan = Mapping[str, ParallelStyle]
Trained = tuple[list[float], dict[str, torch.Tensor]]
Step = Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]


@functools.cache
def alone() -> Trained:
    return train_alone(decoder())


def forward_and_backward(model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    loss = loss_of(model, tokens, targets)
    loss.backward()
    return loss


def train(model: nn.Module, step: Step = forward_and_backward, shares: DeviceMesh | None = None) -> Trained:
    """`step` leaves the gradients and gives the loss. `shares`: the mesh along which each rank has its own rows."""
    mixed = len({isinstance(parameter, DTensor) for parameter in model.parameters()}) > 1
    # torch refuses one foreach call over DTensors and plain tensors.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=not mixed)
    losses = []
    for batch in batches():
        if shares is not None:
            batch = tuple(rows.chunk(shares.size())[shares.get_local_rank()] for rows in batch)
        optimizer.zero_grad()
        loss = step(model, *(rows.to("neuron") for rows in batch)).detach()
        optimizer.step()
        if shares is not None:
            dist.all_reduce(loss, op=dist.ReduceOp.AVG, group=shares.get_group())
        losses.append(full(loss).item())
    return losses, {name: full(parameter) for name, parameter in model.named_parameters()}


def assert_trained_alike(actual: Trained, expected: Trained, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(actual[0], expected[0], rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(actual[1], expected[1], rtol=tolerance, atol=tolerance)
    assert actual[0][-1] < 0.7 * actual[0][0], f"the loss does not fall: {actual[0]}"


# The layers alone: activations stay whole on every rank.
PLAIN: Plan = {
    "attention.query": ColwiseParallel(),
    "attention.key": ColwiseParallel(),
    "attention.value": ColwiseParallel(),
    "attention.out": RowwiseParallel(),
    "mixer.up": ColwiseParallel(),
    "mixer.down": RowwiseParallel(),
}

# Between the layers, each rank has a part of the sequence.
SEQUENCE: Plan = {
    "norm1": SequenceParallel(),
    "attention": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
    "attention.query": ColwiseParallel(),
    "attention.key": ColwiseParallel(),
    "attention.value": ColwiseParallel(),
    "attention.out": RowwiseParallel(output_layouts=Shard(1)),
    "norm2": SequenceParallel(),
    "mixer": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
    "mixer.up": ColwiseParallel(),
    "mixer.down": RowwiseParallel(output_layouts=Shard(1)),
}

SEQUENCE_OUTSIDE: Plan = {
    "token": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "norm": SequenceParallel(),
    "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
}


def split(model: Decoder, mesh: DeviceMesh, blocks: Plan, outside: Plan | None = None) -> Decoder:
    for block in model.blocks:
        parallelize_module(block, mesh, dict(blocks))
    return parallelize_module(model, mesh, dict(outside)) if outside else model


def on_device() -> Decoder:
    return decoder().to("neuron")


@functools.cache
def mesh_of(*shape: int, names: tuple[str, ...]) -> DeviceMesh:
    return init_device_mesh("neuron", shape, mesh_dim_names=names)


def tp_mesh(world_size: int) -> DeviceMesh:
    return mesh_of(world_size, names=("tp",))


def check_split_layers(rank: int, world_size: int) -> None:
    model = split(on_device(), tp_mesh(world_size), PLAIN)
    assert model.blocks[0].mixer.up.weight.to_local().shape == (4 * WIDTH // world_size, WIDTH)
    assert model.blocks[0].mixer.down.weight.to_local().shape == (WIDTH, 4 * WIDTH // world_size)
    assert_trained_alike(train(model), alone())


def check_split_sequence(rank: int, world_size: int) -> None:
    model = split(on_device(), tp_mesh(world_size), SEQUENCE, SEQUENCE_OUTSIDE)
    seen = []
    model.blocks[0].norm2.register_forward_hook(lambda module, args, out: seen.append(out))
    assert_trained_alike(train(model), alone())
    assert seen[0].placements == (Shard(1),)
    assert seen[0].to_local().shape == (8, LENGTH // world_size, WIDTH)


def check_prepared_outputs(rank: int, world_size: int) -> None:
    """The sequence is gathered behind the blocks; the embedding's columns are split."""
    outside: Plan = {
        "token": ColwiseParallel(output_layouts=Shard(1)),
        "blocks": PrepareModuleOutput(output_layouts=Shard(1), desired_output_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Replicate()),
    }
    model = split(on_device(), tp_mesh(world_size), SEQUENCE, outside)
    assert_trained_alike(train(model), alone())


def check_prepared_inputs_and_outputs(rank: int, world_size: int) -> None:
    mixer = PrepareModuleInputOutput(
        input_layouts=(Replicate(),),
        desired_input_layouts=(Shard(1),),
        output_layouts=(Shard(1),),
        desired_output_layouts=(Replicate(),),
        use_local_output=True,
    )
    # The layers inside are replicated DTensors, to which an input that is sharded along the sequence can go.
    model = split(
        on_device(),
        tp_mesh(world_size),
        {"mixer": mixer, "mixer.up": SequenceParallel(), "mixer.down": SequenceParallel()},
    )
    assert_trained_alike(train(model), alone())


def step_on_shards(model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    with loss_parallel():
        logits = model(tokens)
        assert isinstance(logits, DTensor) and logits.placements == (Shard(2),)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
    return loss


def check_loss_parallel(rank: int, world_size: int) -> None:
    """The logits stay sharded along the vocabulary, through the loss and back."""
    outside: Plan = {
        "token": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }
    model = split(on_device(), tp_mesh(world_size), SEQUENCE, outside)
    assert_trained_alike(train(model, step_on_shards), alone())


def check_attention_on_dtensors(rank: int, world_size: int) -> None:
    """Without use_local_output: heads, attention and their gradients are DTensors."""
    apart = {name: ColwiseParallel(use_local_output=False) for name in ("query", "key", "value")}
    plan = {**PLAIN, **{f"attention.{name}": style for name, style in apart.items()}}
    assert_trained_alike(train(split(on_device(), tp_mesh(world_size), plan)), alone())


def check_recomputed_activations(rank: int, world_size: int) -> None:
    """Activation checkpointing: the second forward gathers again, and drops what the first one dropped."""

    class Recomputed(nn.Module):
        def __init__(self, block: nn.Module) -> None:
            super().__init__()
            self.block, self.dropout = block, nn.Dropout(0.1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not self.recomputes:
                return self.dropout(self.block(x))
            return checkpoint(lambda y: self.dropout(self.block(y)), x, use_reentrant=False)

    results = []
    for recomputes in (False, True):
        Recomputed.recomputes = recomputes
        model = split(on_device(), tp_mesh(world_size), PLAIN)
        model.blocks = nn.Sequential(*map(Recomputed, model.blocks))
        torch.manual_seed(1)  # the same masks on all ranks: the activations are whole
        results.append(train(model))
    assert results[1][0] == results[0][0]
    assert all(torch.equal(results[1][1][name], results[0][1][name]) for name in results[0][1])
    assert results[0][0] != alone()[0]


def check_low_precision(rank: int, world_size: int) -> None:
    """Autocast around split layers; a sequence of losses that stays near the one of float32."""
    model = split(on_device(), tp_mesh(world_size), SEQUENCE, SEQUENCE_OUTSIDE)

    def step(model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with torch.autocast("neuron", dtype=torch.bfloat16):
            loss = loss_of(model, tokens, targets)
        loss.backward()
        return loss

    torch.testing.assert_close(train(model, step)[0], alone()[0], rtol=0.03, atol=0.03)


def check_then_ddp(rank: int, world_size: int) -> None:
    """By the losses alone, of which each shows the parameters after the step before it."""
    mesh = mesh_of(world_size // 2, 2, names=("dp", "tp"))
    model = split(on_device(), mesh["tp"], PLAIN)
    _pre_dp_module_transform(model)
    ddp = DistributedDataParallel(model, process_group=mesh["dp"].get_group())
    torch.testing.assert_close(train(ddp, shares=mesh["dp"])[0], alone()[0], rtol=1e-4, atol=1e-4)


def check_then_fsdp(rank: int, world_size: int) -> None:
    """TP on mesh["tp"] first, then FSDP on mesh["dp"]."""
    for shape in {(world_size // 2, 2), (2, world_size // 2)}:
        mesh = mesh_of(*shape, names=("dp", "tp"))
        model = split(on_device(), mesh["tp"], SEQUENCE, SEQUENCE_OUTSIDE)
        for block in model.blocks:
            fully_shard(block, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
        assert model.blocks[0].mixer.up.weight.to_local().shape == (4 * WIDTH // world_size, WIDTH)
        assert_trained_alike(train(model, shares=mesh["dp"]), alone())


def check_three_dimensions(rank: int, world_size: int) -> None:
    """Replicas of sharded parameters, each split: HSDP and TP."""
    for shape in {(2, world_size // 2, 1), (1, world_size // 2, 2)}:
        mesh = mesh_of(*shape, names=("replicate", "shard", "tp"))
        data = mesh["replicate", "shard"]
        model = split(on_device(), mesh["tp"], PLAIN)
        for block in model.blocks:
            fully_shard(block, mesh=data)
        fully_shard(model, mesh=data)
        assert_trained_alike(train(model, shares=data._flatten("data")), alone())


def check_ring_attention(rank: int, world_size: int) -> None:
    """The operator alone: output and gradients, each way round, with and without balance of the causal mask's work."""
    mesh = mesh_of(world_size, names=("cp",))
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(2, 4, 8 * world_size, 8, generator=generator) for _ in range(4)]
    masks = ((False, False), (True, False), (True, True))  # there is nothing to balance without a mask
    cases = itertools.product(masks, ("allgather", "alltoall"), (torch.float32, torch.bfloat16))
    before = attention._cp_options.enable_load_balance
    for (causal, balanced), method, dtype in cases:
        q, k, v, gradient = (t.to(dtype) for t in given)
        inputs = [t.clone().requires_grad_() for t in (q, k, v)]
        expected = F.scaled_dot_product_attention(*inputs, is_causal=causal)
        expected.backward(gradient)
        attention.set_rotate_method(method)
        attention._cp_options.enable_load_balance = balanced
        parts = [t.to("neuron") for t in (q, k, v, gradient)]
        with context_parallel(mesh, buffers=parts, buffer_seq_dims=[2] * 4):
            q, k, v = (t.detach().clone().requires_grad_() for t in parts[:3])
            out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            out.backward(parts[3])
        results = attention.context_parallel_unshard(mesh, [out, q.grad, k.grad, v.grad], [2] * 4)
        tolerance = 1e-5 if dtype == torch.float32 else 5e-2
        for actual, right in zip(results, [expected, *(t.grad for t in inputs)], strict=True):
            torch.testing.assert_close(
                actual.cpu(),
                right.detach(),
                rtol=tolerance,
                atol=tolerance,
                msg=lambda text, case=(causal, method, balanced, dtype): f"{case}: {text}",
            )
    attention._cp_options.enable_load_balance = before


def check_context_parallel(rank: int, world_size: int) -> None:
    """Ring attention: each rank has a part of every sequence; keys and values are gathered, or go round."""
    mesh = mesh_of(world_size, names=("cp",))

    def step_on_parts(model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with context_parallel(mesh, buffers=[tokens, targets], buffer_seq_dims=[1, 1]):
            assert tokens.shape == (8, LENGTH // world_size)
            loss = forward_and_backward(model, tokens, targets)
            mean = loss.detach().clone()
            dist.all_reduce(mean, op=dist.ReduceOp.AVG, group=mesh.get_group())
            return mean

    for method in ("allgather", "alltoall"):
        attention.set_rotate_method(method)
        model = on_device()
        fully_shard(model, mesh=mesh)  # gradients of the parts are averaged
        assert_trained_alike(train(model, step_on_parts), alone())


def check_context_and_tensor_parallel(rank: int, world_size: int) -> None:
    mesh = mesh_of(2, world_size // 2, names=("cp", "tp"))

    def step_on_parts(model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with context_parallel(mesh["cp"], buffers=[tokens, targets], buffer_seq_dims=[1, 1]):
            mean = forward_and_backward(model, tokens, targets).detach().clone()
            dist.all_reduce(mean, op=dist.ReduceOp.AVG, group=mesh["cp"].get_group())
            return mean

    attention.set_rotate_method("allgather")
    model = split(on_device(), mesh["tp"], PLAIN)
    fully_shard(model, mesh=mesh["cp"])
    assert_trained_alike(train(model, step_on_parts), alone())


def check_expert_parallel(rank: int, world_size: int) -> None:
    """Each rank has a part of the experts; tokens travel by all_to_all with splits that only the data know."""
    mesh = mesh_of(world_size, names=("ep",))
    model = decoder(RoutedExperts).to("neuron")
    spread = []
    for block in model.blocks:
        block.mixer.spread(mesh)
        spread += block.mixer.spread_parameters()
    fully_shard(model, mesh=mesh, ignored_params=set(spread))

    def step(model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss = forward_and_backward(model, tokens, targets)
        for parameter in spread:  # has the sum over the ranks' tokens already
            parameter.grad /= world_size
        return loss

    assert_trained_alike(train(model, step, shares=mesh), train_alone(decoder(RoutedExperts)))


def check_switches_of_async_tp(rank: int, world_size: int) -> None:
    """CUDA's and Inductor's switches for overlap change nothing here: not a bit, and no error."""
    import torch._inductor.config as inductor
    from torch.distributed._symmetric_memory import enable_symm_mem_for_group

    mesh = tp_mesh(world_size)
    plain = train(split(on_device(), mesh, SEQUENCE, SEQUENCE_OUTSIDE))
    inductor._micro_pipeline_tp = True
    try:
        enable_symm_mem_for_group(mesh.get_group().group_name)
        switched = train(split(on_device(), mesh, SEQUENCE, SEQUENCE_OUTSIDE))
    finally:
        inductor._micro_pipeline_tp = False
    assert switched[0] == plain[0]
    assert all(torch.equal(switched[1][name], plain[1][name]) for name in plain[1])
