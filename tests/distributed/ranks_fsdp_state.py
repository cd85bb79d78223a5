"""Rank side of test_fsdp_state.py: what FSDP2 keeps in device memory, and what it saves and loads."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from full_tensor import full
from sharded_training import WIDTH, batch, blocks, fit, shard_blocks, train, world_mesh
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.distributed.tensor import Shard as Sharded

import torch_neuronx  # noqa: F401
from neuron_emu import _C

BACKEND = "cpu:gloo,neuron:neuron"

LARGE = 256  # wide enough that nothing but parameters counts
BLOCK_BYTES = 4 * LARGE * LARGE
SLACK = BLOCK_BYTES // 4


def large_blocks(count: int = 4) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(LARGE, LARGE, bias=False) for _ in range(count))).to("neuron")


def allocated() -> int:
    torch.neuron.synchronize()
    return torch.neuron.memory_allocated()


def about(bytes_now: int, expected: float) -> bool:
    return abs(bytes_now - expected) <= SLACK


def check_sharding_shares_the_memory(rank: int, world_size: int) -> None:
    """Parameters, gradients and the optimizer's state: a part on each rank."""
    start = allocated()
    model = large_blocks()
    whole = allocated() - start
    assert about(whole, 4 * BLOCK_BYTES)
    shard_blocks(model, world_mesh("neuron"))
    assert about(allocated() - start, whole / world_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.ones(2, LARGE, device="neuron")).sum().backward()
    assert about(allocated() - start, 2 * whole / world_size)
    optimizer.step()
    assert about(allocated() - start, 4 * whole / world_size)
    assert all(isinstance(state["exp_avg"], DTensor) for state in optimizer.state.values())
    optimizer.zero_grad()
    assert about(allocated() - start, 3 * whole / world_size)


@contextmanager
def memory_before_each_block(model: nn.Sequential) -> Iterator[list[int]]:
    """What is allocated when a block is about to compute, its own parameters included."""
    seen: list[int] = []
    hooks = [block.register_forward_pre_hook(lambda *_: seen.append(allocated())) for block in model]
    yield seen
    for hook in hooks:
        hook.remove()


def check_parameters_are_released_after_forward(rank: int, world_size: int) -> None:
    """With reshard_after_forward=True each block releases its full parameters; False keeps them for backward."""
    for reshard in (True, False):
        model = large_blocks()
        for block in model:
            fully_shard(block, mesh=world_mesh("neuron"), reshard_after_forward=reshard)
        fully_shard(model, mesh=world_mesh("neuron"), reshard_after_forward=reshard)
        sharded = allocated()
        out = model(torch.ones(2, LARGE, device="neuron"))
        kept = 0 if reshard else len(model) * BLOCK_BYTES
        assert about(allocated() - sharded, kept), (reshard, allocated() - sharded)
        out.sum().backward()
        del out
        # Backward leaves the shards of the gradients.
        assert about(allocated() - sharded, len(model) * BLOCK_BYTES / world_size)


def check_prefetching_keeps_more(rank: int, world_size: int) -> None:
    """Each block that is gathered ahead is one more in memory."""
    highest = []
    for ahead in (0, 1, 3):
        model = large_blocks(6)
        shard_blocks(model, world_mesh("neuron"))
        layers = list(model)
        for index, block in enumerate(layers):
            block.set_modules_to_forward_prefetch(layers[index + 1 : index + 1 + ahead])
        sharded = allocated()
        x = torch.ones(2, LARGE, device="neuron")
        with torch.no_grad(), memory_before_each_block(model) as seen:
            model(x)
        assert about(allocated() - sharded, 0)
        highest.append((max(seen) - sharded) / BLOCK_BYTES)
    assert highest[0] < highest[1] < highest[2], highest
    assert highest[2] - highest[0] >= 2, highest


def check_offloading_frees_the_device(rank: int, world_size: int) -> None:
    start = allocated()
    model = large_blocks().cpu()
    shard_blocks(model, world_mesh("neuron"), offload_policy=CPUOffloadPolicy())
    model(torch.ones(2, LARGE, device="neuron")).sum().backward()
    assert about(allocated() - start, 0)
    assert all(p.grad.device.type == "cpu" for p in model.parameters())


def check_a_model_that_fits_only_in_shards(rank: int, world_size: int) -> None:
    """Made on the meta device, it never needs the memory of the whole."""
    torch.neuron.synchronize()
    torch.neuron.reset_peak_memory_stats()
    start = allocated()
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(LARGE, LARGE, bias=False) for _ in range(8)))
    shard_blocks(model, world_mesh("neuron"))
    model.to_empty(device="neuron")
    for block in model:
        block.reset_parameters()
    torch.neuron.synchronize()
    assert torch.neuron.max_memory_allocated() - start <= 8 * BLOCK_BYTES / world_size + 2 * BLOCK_BYTES


def check_running_ahead_takes_no_more(rank: int, world_size: int) -> None:
    """Field case 34: the host may be a whole step ahead; memory is used as if it waited for each block."""
    model = large_blocks(8)
    shard_blocks(model, world_mesh("neuron"))
    x = torch.ones(2, LARGE, device="neuron")
    model(x).sum().backward()
    for held in (True, False):
        for parameter in model.parameters():
            parameter.grad = None
        before = allocated()
        torch.neuron.reset_peak_memory_stats()
        stream = torch.neuron.current_stream()
        gate = _C.hold_stream(stream.stream_id, stream.device_index) if held else None
        model(x).sum().backward()
        stats = torch.neuron.memory_stats()
        peak = stats["allocated_bytes.all.peak"] + stats["kept_bytes.all.peak"] - before
        if gate is not None:
            assert not stream.query()
            gate.open()
        # Two blocks gathered, a gradient, the one before it being reduced; and the shards of all gradients.
        assert peak <= (4 + len(model) / world_size) * BLOCK_BYTES, (held, peak / BLOCK_BYTES)


# State dicts.


def whole_state(seed: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return {name: torch.randn(tensor.shape) for name, tensor in blocks().state_dict().items()}


def check_full_state_dict_and_back(rank: int, world_size: int) -> None:
    trained = train("neuron", steps=3)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model_state, optimizer_state = get_state_dict(trained.model, trained.optimizer, options=options)
    if rank == 0:
        for (name, value), expected in zip(model_state.items(), trained.parameters, strict=True):
            assert value.device.type == "cpu" and torch.equal(value, expected), name
        # It is an ordinary state dict: one process goes on from it.
        alone = blocks()
        alone.load_state_dict(model_state)
    else:
        assert model_state == {} and optimizer_state == {}
    fresh = blocks(3).to("neuron")
    shard_blocks(fresh, world_mesh("neuron", (world_size // 2, 2)))
    optimizer = torch.optim.AdamW(fresh.parameters(), lr=1e-2)
    # One after the other: set_state_dict takes an empty model's state for "only the optimizer".
    from_rank_0 = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(fresh, model_state, options=from_rank_0)
    # A copy, since the steps that they counted would be the same tensors in both optimizers of rank 0.
    set_optimizer_state_dict(fresh, optimizer, copy.deepcopy(optimizer_state), options=from_rank_0)
    ours, theirs = (fit(model, opt, "neuron", steps=3) for model, opt in both(trained, fresh, optimizer))
    torch.testing.assert_close(ours.losses, theirs.losses, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours.parameters, theirs.parameters, rtol=1e-4, atol=1e-5)


def both(trained: object, model: nn.Module, optimizer: torch.optim.Optimizer) -> list[tuple]:
    return [(trained.model, trained.optimizer), (model, optimizer)]


class Awkward(nn.Module):
    """Sizes that no number of ranks divides, beside one that counts in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.row = nn.Parameter(torch.empty(1, 17))
        self.few = nn.Parameter(torch.empty(5, 3))
        self.scalar_like = nn.Parameter(torch.empty(1))
        self.large = nn.ParameterList([nn.Parameter(torch.empty(LARGE + 1, LARGE)) for _ in range(4)])


def check_load_from_rank_0(rank: int, world_size: int) -> None:
    """Field case 33: a full state dict that only rank 0 has; device memory for about one parameter more."""
    shapes = {name: p.shape for name, p in Awkward().named_parameters()}
    torch.manual_seed(5)
    state = {name: torch.randn(shape) for name, shape in shapes.items()}
    for offload in (False, True):
        model = Awkward().to("neuron" if not offload else "cpu")
        fully_shard(model, mesh=world_mesh("neuron"), **({"offload_policy": CPUOffloadPolicy()} if offload else {}))
        before = allocated()
        torch.neuron.reset_peak_memory_stats()
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, cpu_offload=offload)
        set_model_state_dict(model, dict(state) if rank == 0 else {}, options=options)
        torch.neuron.synchronize()
        peak = torch.neuron.max_memory_allocated() - before
        assert peak <= 2 * BLOCK_BYTES + SLACK, peak
        for name, p in model.named_parameters():
            placed = p.to("neuron") if offload else p
            assert p.device.type == ("cpu" if offload else "neuron")
            assert torch.equal(full(placed), state[name]), name


def check_state_dict_is_of_shards(rank: int, world_size: int) -> None:
    model = blocks().to("neuron")
    shard_blocks(model, world_mesh("neuron"))
    state = model.state_dict()
    for value in state.values():
        assert isinstance(value, DTensor) and value.placements == (Sharded(0),) and value.device.type == "neuron"
    for name, value in get_model_state_dict(model).items():
        assert value.to_local().data_ptr() == state[name].to_local().data_ptr()
    whole = whole_state(seed=9)
    model.load_state_dict({name: distribute_tensor(t.to("neuron"), world_mesh("neuron")) for name, t in whole.items()})
    replicated = {n: t.redistribute(placements=[Replicate()]).to_local().cpu() for n, t in model.state_dict().items()}
    assert all(torch.equal(replicated[name], whole[name]) for name in whole)
    model.load_state_dict({name: torch.zeros_like(t) for name, t in model.state_dict().items()}, assign=True)
    assert all(not full(p).any() for p in model.parameters())


# Checkpoints.


@contextmanager
def shared_folder(rank: int) -> Iterator[str]:
    name = [tempfile.mkdtemp(prefix="neuron-checkpoint-") if rank == 0 else ""]
    dist.broadcast_object_list(name, src=0)
    try:
        yield name[0]
    finally:
        dist.barrier()
        if rank == 0:
            shutil.rmtree(name[0])


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, object]:
    return {"model": get_model_state_dict(model), "optimizer": get_optimizer_state_dict(model, optimizer)}


def resumed(mesh: DeviceMesh, folder: str, group: dist.ProcessGroup | None = None) -> tuple:
    model = blocks().to("neuron")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    shard_blocks(model, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    state = state_of(model, optimizer)
    dcp.load(state, checkpoint_id=folder, process_group=group)
    set_model_state_dict(model, state["model"])
    set_optimizer_state_dict(model, optimizer, state["optimizer"])
    return model, optimizer


def check_checkpoint_on_another_mesh(rank: int, world_size: int) -> None:
    """Saved by all ranks in one mesh; loaded in another, and by half of the ranks."""
    with shared_folder(rank) as folder:
        trained = train("neuron", steps=4)
        dcp.save(state_of(trained.model, trained.optimizer), checkpoint_id=folder)
        assert (Path(folder) / ".metadata").exists()
        moments = [full(trained.optimizer.state[p]["exp_avg"]) for p in trained.model.parameters()]
        for shape in ((world_size,), (world_size // 2, 2), (world_size, 1)):
            model, optimizer = resumed(world_mesh("neuron", shape), folder)
            for p, expected, moment in zip(model.parameters(), trained.parameters, moments, strict=True):
                assert torch.equal(full(p), expected)
                assert torch.equal(full(optimizer.state[p]["exp_avg"]), moment)
        # Goes on as if nothing had happened.
        model, optimizer = resumed(world_mesh("neuron"), folder)
        after = [fit(m, o, "neuron", steps=2) for m, o in both(trained, model, optimizer)]
        assert after[0].losses == after[1].losses
        fewer = dist.new_group(list(range(world_size // 2)), use_local_synchronization=False)
        half = DeviceMesh.from_group(fewer, "neuron") if rank < world_size // 2 else None
        if half is not None:
            model, _ = resumed(half, folder, fewer)
            for p, expected in zip(model.parameters(), trained.parameters, strict=True):
                assert torch.equal(full(p), expected)


def check_checkpoint_in_the_background(rank: int, world_size: int) -> None:
    """The state is what it was at the call, whatever the training does meanwhile."""
    with shared_folder(rank) as folder:
        model = blocks().to("neuron")
        shard_blocks(model, world_mesh("neuron"))
        expected = [full(p).clone() for p in model.parameters()]
        done = dcp.async_save({"model": get_model_state_dict(model)}, checkpoint_id=folder)
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(0)
        done.result()
        state = {"model": get_model_state_dict(model)}
        dcp.load(state, checkpoint_id=folder)
        for p, whole in zip(model.parameters(), expected, strict=True):
            assert torch.equal(full(p), whole)


def check_checkpoint_to_one_file(rank: int, world_size: int) -> None:
    """From the sharded folder to a file for one process, and back, without ranks."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp

    with shared_folder(rank) as folder:
        model = blocks().to("neuron")
        shard_blocks(model, world_mesh("neuron"))
        whole = [full(p) for p in model.parameters()]
        dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=os.path.join(folder, "sharded"))  # noqa: PTH118
        if rank == 0:
            dcp_to_torch_save(os.path.join(folder, "sharded"), os.path.join(folder, "whole.pt"))  # noqa: PTH118
            loaded = torch.load(os.path.join(folder, "whole.pt"), weights_only=True)["model"]  # noqa: PTH118
            assert all(torch.equal(a, b) for a, b in zip(loaded.values(), whole, strict=True))
            loaded = {name: tensor + 1 for name, tensor in loaded.items()}
            torch.save({"model": loaded}, os.path.join(folder, "other.pt"))  # noqa: PTH118
            torch_save_to_dcp(os.path.join(folder, "other.pt"), os.path.join(folder, "back"))  # noqa: PTH118
        dist.barrier()
        state = {"model": get_model_state_dict(model)}
        dcp.load(state, checkpoint_id=os.path.join(folder, "back"))  # noqa: PTH118
        for p, expected in zip(model.parameters(), whole, strict=True):
            assert torch.equal(full(p), expected + 1)
        assert model(batch(0, "neuron")).shape == (8, WIDTH)
