"""Rank side of test_work.py with TORCH_NEURONX_ENABLE_HOST_CC=1: collectives of other streams run there."""

from __future__ import annotations

import threading

import torch
import torch.distributed as dist

import torch_neuronx  # noqa: F401
from neuron_emu import _C


def hold_default() -> _C.Gate:
    stream = torch.neuron.default_stream()
    return _C.hold_stream(stream.stream_id, stream.device_index)


def check_overlaps_the_default_stream(rank: int, world_size: int) -> None:
    side = torch.neuron.Stream()
    tensor = torch.full((4,), float(rank), device="neuron")
    wide = torch.zeros(4 * world_size, device="neuron")
    part = torch.zeros(4, device="neuron")
    torch.neuron.synchronize()
    gate = hold_default()
    with torch.neuron.stream(side):
        dist.all_reduce(tensor, async_op=True)
        dist.all_gather_into_tensor(wide, tensor)
        dist.reduce_scatter_tensor(part, wide)
        with dist._coalescing_manager():
            dist.all_reduce(part)
        side.synchronize()
        assert not torch.neuron.default_stream().query()
        expected = float(sum(range(world_size)))
        assert tensor.tolist() == [expected] * 4
        assert part.tolist() == [expected * world_size * world_size] * 4
    gate.open()
    torch.neuron.synchronize()


def check_strided_input_is_prepared(rank: int, world_size: int) -> None:
    side = torch.neuron.Stream()
    base = torch.arange(6.0, device="neuron").reshape(2, 3)
    torch.neuron.synchronize()
    with torch.neuron.stream(side):
        dist.all_reduce(base.t())
        assert base.flatten().tolist() == [world_size * float(i) for i in range(6)]


def check_default_stream_keeps_its_order(rank: int, world_size: int) -> None:
    tensor = torch.ones(4, device="neuron")
    gate = hold_default()
    work = dist.all_reduce(tensor, async_op=True)
    assert not work.is_completed()
    gate.open()
    assert tensor.tolist() == [float(world_size)] * 4


def check_other_collectives_are_routed(rank: int, world_size: int) -> None:
    side = torch.neuron.Stream()
    tensor = torch.full((4,), float(rank), device="neuron")
    torch.neuron.synchronize()
    gate = hold_default()
    with torch.neuron.stream(side):
        work = dist.broadcast(tensor, src=1, async_op=True)
        assert not work.is_completed()
    gate.open()
    with torch.neuron.stream(side):
        assert tensor.tolist() == [1.0] * 4


def check_opposite_thread_orders(rank: int, world_size: int) -> None:
    """Two groups on two streams, submitted in opposite orders by the ranks."""
    groups = [dist.new_group(list(range(world_size))) for _ in range(2)]
    streams = [torch.neuron.Stream() for _ in range(2)]
    order = [0, 1] if rank % 2 == 0 else [1, 0]
    tensors = [torch.ones(1000, device="neuron") for _ in range(2)]
    torch.neuron.synchronize()
    for _ in range(50):
        for index in order:
            with torch.neuron.stream(streams[index]):
                dist.all_reduce(tensors[index], group=groups[index], op=dist.ReduceOp.MAX)
    for index in order:
        with torch.neuron.stream(streams[index]):
            assert tensors[index].sum().item() == 1000
    errors: list[BaseException] = []

    def run(index: int) -> None:
        try:
            with torch.neuron.stream(streams[index]):
                for _ in range(50):
                    dist.all_reduce(tensors[index], group=groups[index], op=dist.ReduceOp.MAX)
                streams[index].synchronize()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in order]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
