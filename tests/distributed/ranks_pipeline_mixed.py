"""Rank side of test_pipeline.py on 4 ranks: pipelines beside another parallelism, each on its own mesh dimension."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from full_tensor import full
from pipeline_parts import (
    BATCH,
    Layout,
    assert_as_whole,
    batch,
    layers,
    looped,
    one_each,
    run_steps,
    schedule_of,
    stages_of,
    v_shaped,
)
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel as DDP

import torch_neuronx  # noqa: F401

Wrap = Callable[[nn.Module], nn.Module]


def compare(
    kind: type,
    layout: Layout,
    mesh: DeviceMesh,
    wrap: Wrap,
    *,
    replicas: bool,
    with_metadata: tuple[bool, ...] = (True, False),
) -> None:
    """Trains with and without example metadata. `replicas`: the other dimension cuts the batch."""
    microbatches = 4
    pipeline, other = mesh["pp"], mesh["dp"] if replicas else None
    place, size = pipeline.get_local_rank(), pipeline.size()
    count = size * len(layout(place, size))
    part = (other.get_local_rank(), other.size()) if other is not None else (0, 1)
    for given in with_metadata:
        rows = BATCH // part[1] // microbatches if given else None
        whole = layers(count)
        modules = {index: wrap(whole[index].to("neuron")) for index in layout(place, size)}
        schedule = schedule_of(kind, stages_of(modules, count, pipeline.get_group(), rows), microbatches)
        trained = run_steps(schedule, modules, count, part)
        trained.losses = averaged(trained.losses, other)
        assert_as_whole(trained, count)


def averaged(losses: list[float], mesh: DeviceMesh | None) -> list[float]:
    """The replicas' mean: the loss of the whole batch."""
    if mesh is None or not losses:
        return losses
    tensor = torch.tensor(losses, device="neuron")
    torch.distributed.all_reduce(tensor, op=torch.distributed.ReduceOp.AVG, group=mesh.get_group())
    return tensor.tolist()


def meshes(other: str) -> list[DeviceMesh]:
    """The pipeline as the outer dimension and as the inner one: neighbours in it are 2 ranks or 1 rank apart."""
    return [init_device_mesh("neuron", (2, 2), mesh_dim_names=names) for names in (("pp", other), (other, "pp"))]


def check_with_ddp(rank: int, world_size: int) -> None:
    """With metadata: torch's own run that finds it out upsets DDP's buckets, on gloo, too."""
    for mesh in meshes("dp"):

        def wrap(module: nn.Module, mesh: DeviceMesh = mesh) -> nn.Module:
            return DDP(module, process_group=mesh["dp"].get_group())

        for kind, layout in ((ScheduleGPipe, one_each), (Schedule1F1B, one_each), (ScheduleInterleaved1F1B, looped)):
            compare(kind, layout, mesh, wrap, replicas=True, with_metadata=(True,))


def check_with_fsdp(rank: int, world_size: int) -> None:
    """A stage in two parameter groups, and in one where the backward is split in two: there torch's own runtime loses
    the gradients of the inner groups, on gloo, too.
    """
    for mesh in meshes("dp"):

        def one_group(module: nn.Module, mesh: DeviceMesh = mesh) -> nn.Module:
            return fully_shard(module, mesh=mesh["dp"])

        def two_groups(module: nn.Module, mesh: DeviceMesh = mesh) -> nn.Module:
            fully_shard(module.up, mesh=mesh["dp"])
            return fully_shard(module, mesh=mesh["dp"])

        for kind, layout in ((ScheduleGPipe, one_each), (Schedule1F1B, one_each), (ScheduleLoopedBFS, looped)):
            compare(kind, layout, mesh, two_groups, replicas=True)
        for kind, layout in ((ScheduleInterleavedZeroBubble, looped), (ScheduleZBVZeroBubble, v_shaped)):
            compare(kind, layout, mesh, one_group, replicas=True)


def check_with_tensor_parallel(rank: int, world_size: int) -> None:
    for mesh in meshes("tp"):

        def wrap(module: nn.Module, mesh: DeviceMesh = mesh) -> nn.Module:
            return parallelize_module(module, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})

        for kind, layout in ((Schedule1F1B, one_each), (ScheduleInterleaved1F1B, looped)):
            compare(kind, layout, mesh, wrap, replicas=False)


def check_dtensors_at_the_border(rank: int, world_size: int) -> None:
    """Activations and gradients pass between stages as shards, and are DTensors again on the other side."""
    for mesh in meshes("tp"):
        tensor, pipeline = mesh["tp"], mesh["pp"]
        place, last = pipeline.get_local_rank(), pipeline.get_local_rank() == 1
        whole = layers(2)
        plan = {
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
        }
        module = parallelize_module(copy.deepcopy(whole[place]).to("neuron"), tensor, plan)
        device = torch.device("neuron", torch.neuron.current_device())
        stage = PipelineStage(
            module, place, 2, device, group=pipeline.get_group(), get_mesh=lambda names, layout, mesh=tensor: mesh
        )

        def loss_fn(output: DTensor, target: torch.Tensor) -> torch.Tensor:
            assert output.placements == (Shard(1),)
            return nn.functional.mse_loss(output.full_tensor(), target)

        schedule = Schedule1F1B(stage, 4, loss_fn=loss_fn)
        inputs, target = batch(0)
        given = [distribute_tensor(inputs.to(device), tensor, [Shard(1)])] if place == 0 else []
        schedule.step(*given, target=target.to(device) if last else None, return_outputs=False)
        nn.functional.mse_loss(nn.Sequential(*whole)(inputs), target).backward()
        for mine, expected in zip(module.parameters(), whole[place].parameters(), strict=True):
            torch.testing.assert_close(full(mine.grad), expected.grad, rtol=1e-5, atol=1e-6)
