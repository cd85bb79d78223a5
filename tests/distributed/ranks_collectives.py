"""Rank side of test_collectives.py: every collective against a plain reference."""

from __future__ import annotations

import torch
import torch.distributed as dist
from reference import (
    ALL_TYPES,
    ARITHMETIC,
    ARITHMETIC_TYPES,
    BITWISE,
    COMPLEX,
    FLOATS,
    INTEGERS,
    assert_same,
    fails_with,
    reduced,
    values,
)

import torch_neuronx  # noqa: F401

Op = dist.ReduceOp
SHAPES: list[tuple[int, ...]] = [(), (1,), (7,), (3, 5), (4099,)]
# Larger than what goes through the control block, and than one segment.
LARGE = 300_001


def everyone(world_size: int, shape: tuple[int, ...], dtype: torch.dtype, salt: int = 0) -> list[torch.Tensor]:
    return [values(rank, shape, dtype, salt) for rank in range(world_size)]


def check_all_reduce(rank: int, world_size: int) -> None:
    for dtype in ARITHMETIC_TYPES:
        for op in [*ARITHMETIC, *(BITWISE if dtype in INTEGERS else [])]:
            for shape in SHAPES:
                inputs = everyone(world_size, shape, dtype)
                tensor = inputs[rank].to("neuron")
                dist.all_reduce(tensor, op=op)
                assert_same(tensor, reduced(inputs, op), f"all_reduce {dtype} {op} {shape}")


def check_all_reduce_large(rank: int, world_size: int) -> None:
    for dtype in [torch.float32, torch.bfloat16, torch.int8]:
        inputs = everyone(world_size, (LARGE,), dtype)
        tensor = inputs[rank].to("neuron")
        dist.all_reduce(tensor)
        assert_same(tensor, reduced(inputs, Op.SUM), f"all_reduce large {dtype}")


def check_all_reduce_bool(rank: int, world_size: int) -> None:
    inputs = everyone(world_size, (9,), torch.bool)
    for op in [Op.SUM, Op.MAX, Op.MIN, Op.PRODUCT, *BITWISE]:
        tensor = inputs[rank].to("neuron")
        dist.all_reduce(tensor, op=op)
        assert_same(tensor, reduced(inputs, op), f"all_reduce bool {op}")


def check_all_reduce_complex(rank: int, world_size: int) -> None:
    for dtype in COMPLEX:
        inputs = everyone(world_size, (6,), dtype)
        tensor = inputs[rank].to("neuron")
        dist.all_reduce(tensor)
        assert_same(tensor, reduced(inputs, Op.SUM), f"all_reduce {dtype}")


def check_premul_sum(rank: int, world_size: int) -> None:
    for dtype in FLOATS:
        inputs = everyone(world_size, (5,), dtype)
        for factor in [2.0, torch.tensor([2.0], dtype=dtype, device="neuron")]:
            tensor = inputs[rank].to("neuron")
            dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(factor))
            assert_same(tensor, reduced([i * 2 for i in inputs], Op.SUM), f"premul {dtype} {factor}")


def check_broadcast(rank: int, world_size: int) -> None:
    for dtype in ALL_TYPES:
        for root in range(world_size):
            for shape in [(), (7,), (4099,), (0, 3)]:
                tensor = values(rank, shape, dtype).to("neuron")
                dist.broadcast(tensor, src=root)
                assert_same(tensor, values(root, shape, dtype), f"broadcast {dtype} {root} {shape}")


def check_all_gather(rank: int, world_size: int) -> None:
    for dtype in ALL_TYPES:
        for shape in [(), (5,), (2, 3), (4099,)]:
            inputs = everyone(world_size, shape, dtype)
            outputs = [torch.zeros_like(t, device="neuron") for t in inputs]
            dist.all_gather(outputs, inputs[rank].to("neuron"))
            for output, expected in zip(outputs, inputs, strict=True):
                assert_same(output, expected, f"all_gather {dtype} {shape}")


def check_all_gather_into_tensor(rank: int, world_size: int) -> None:
    for dtype in ALL_TYPES:
        inputs = everyone(world_size, (3, 4), dtype)
        mine = inputs[rank].to("neuron")
        concatenated = torch.zeros(3 * world_size, 4, dtype=torch.uint8, device="neuron").to(dtype)
        dist.all_gather_into_tensor(concatenated, mine)
        for r, expected in enumerate(inputs):
            assert_same(concatenated[3 * r : 3 * r + 3], expected, f"all_gather_into_tensor {dtype}")


def check_all_gather_in_place(rank: int, world_size: int) -> None:
    inputs = everyone(world_size, (LARGE,), torch.float32)
    whole = torch.zeros(world_size, LARGE, device="neuron")
    whole[rank].copy_(inputs[rank])
    dist.all_gather_into_tensor(whole, whole[rank])
    assert_same(whole, torch.stack(inputs), "all_gather in place")


def check_reduce_scatter(rank: int, world_size: int) -> None:
    for dtype in ARITHMETIC_TYPES:
        for op in [Op.SUM, Op.AVG, Op.MIN, Op.MAX]:
            parts = [everyone(world_size, (6,), dtype, salt) for salt in range(world_size)]  # by part, then by rank
            output = torch.zeros(6, dtype=torch.uint8, device="neuron").to(dtype)
            dist.reduce_scatter(output, [part[rank].to("neuron") for part in parts], op=op)
            assert_same(output, reduced(parts[rank], op), f"reduce_scatter {dtype} {op}")


def check_reduce_scatter_tensor(rank: int, world_size: int) -> None:
    for count in [1, 7, 4099, LARGE]:
        inputs = everyone(world_size, (world_size, count), torch.float32)
        output = torch.zeros(count, device="neuron")
        dist.reduce_scatter_tensor(output, inputs[rank].to("neuron"))
        assert_same(output, reduced(inputs, Op.SUM)[rank], f"reduce_scatter_tensor {count}")


def check_coalescing_by_device(rank: int, world_size: int) -> None:
    """The way with start and end calls: anything may be mixed, the Work at the end stands for all."""
    first, second = torch.full((4,), float(rank), device="neuron"), torch.full((3,), rank, device="neuron")
    with dist._coalescing_manager(device=torch.device("neuron"), async_ops=True) as manager:
        dist.broadcast(first, src=world_size - 1)
        dist.broadcast(second, src=0)
    manager.wait()
    assert first.tolist() == [world_size - 1.0] * 4 and second.tolist() == [0] * 3


def check_tensors_of_another_core(rank: int, world_size: int) -> None:
    """A process with the limits lifted may use two cores, as a model that is spread over both does under DDP."""
    core = torch.device("neuron", (rank + 1) % world_size)
    inputs = everyone(world_size, (4099,), torch.float32)
    tensor = inputs[rank].to(core)
    work = dist.all_reduce(tensor, async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0] * 2)
    work.wait()
    result = doubled.wait()
    assert tensor.device == result.device == core
    expected = reduced(inputs, Op.SUM)
    assert_same(tensor, expected, "all_reduce")
    assert_same(result, expected * 2, "then")


def check_rooted(rank: int, world_size: int) -> None:
    for root in range(world_size):
        inputs = everyone(world_size, (33,), torch.float32)
        tensor = inputs[rank].to("neuron")
        dist.reduce(tensor, dst=root)
        expected = reduced(inputs, Op.SUM) if rank == root else inputs[rank]
        assert_same(tensor, expected, f"reduce to {root}")

        outputs = [torch.zeros(33, device="neuron") for _ in range(world_size)] if rank == root else None
        dist.gather(inputs[rank].to("neuron"), outputs, dst=root)
        for output, expected in zip(outputs or [], inputs, strict=False):
            assert_same(output, expected, f"gather to {root}")

        output = torch.zeros(33, device="neuron")
        dist.scatter(output, [i.to("neuron") for i in inputs] if rank == root else None, src=root)
        assert_same(output, inputs[rank], f"scatter from {root}")


def check_all_to_all(rank: int, world_size: int) -> None:
    sent = [[values(r, (4,), torch.float32, salt=p) for p in range(world_size)] for r in range(world_size)]
    outputs = [torch.zeros(4, device="neuron") for _ in range(world_size)]
    dist.all_to_all(outputs, [t.to("neuron") for t in sent[rank]])
    for r, output in enumerate(outputs):
        assert_same(output, sent[r][rank], "all_to_all")

    whole = torch.zeros(world_size * 4, device="neuron")
    dist.all_to_all_single(whole, torch.cat(sent[rank]).to("neuron"))
    assert_same(whole, torch.cat([sent[r][rank] for r in range(world_size)]), "all_to_all_single")


def check_requires_grad(rank: int, world_size: int) -> None:
    leaf = torch.full((3,), float(rank), device="neuron", requires_grad=True)
    dist.broadcast(leaf, src=world_size - 1)
    assert leaf.requires_grad and leaf.is_leaf and leaf.tolist() == [world_size - 1.0] * 3
    strided = torch.full((3, 2), float(rank), device="neuron", requires_grad=True)
    with torch.no_grad():
        dist.all_reduce(strided.t())
    assert strided.sum().item() == 6.0 * sum(range(world_size))


def check_argument_errors(rank: int, world_size: int) -> None:
    """Raised before anything is sent: the group stays in step, as the last call shows."""
    one, two = torch.zeros(2, device="neuron"), torch.zeros(2, device="neuron", dtype=torch.int32)
    too_wide = torch.zeros(3 * world_size + 1, device="neuron")
    anything = (RuntimeError, ValueError, TypeError)
    fails_with(anything, "cpu", lambda: dist.all_reduce(torch.zeros(2)))
    mixed = [torch.zeros(2)] * world_size
    fails_with(ValueError, "Expected neuron device, got cpu", lambda: dist.all_gather(mixed, one))
    fails_with(anything, "rank", lambda: dist.all_gather([one] * (world_size + 1), one))
    fails_with(anything, "type", lambda: dist.all_gather_into_tensor(torch.zeros(2 * world_size, device="neuron"), two))
    fails_with(ValueError, "elements", lambda: dist.all_gather_into_tensor(too_wide, one))
    fails_with(ValueError, "elements", lambda: dist.reduce_scatter_tensor(one, too_wide))
    pg = dist.group.WORLD
    options = dist.BroadcastOptions()
    options.rootRank = world_size + 3
    words = f"Invalid rootRank {world_size + 3} (for broadcast) with world size {world_size}"
    fails_with(ValueError, words, lambda: pg.broadcast([one], options))
    fails_with(ValueError, "add up", lambda: dist.all_to_all_single(one, one, [1] * world_size, [9] * world_size))
    dist.all_reduce(one)
    assert one.tolist() == [0.0, 0.0]


def check_barrier(rank: int, world_size: int) -> None:
    """Field case 23, the part that is not about the first call."""
    dist.barrier()
    dist.barrier(device_ids=[torch.neuron.current_device()])
    work = dist.barrier(async_op=True)
    work.wait()
    assert work.is_completed()


def check_subgroups(rank: int, world_size: int) -> None:
    if world_size < 4:
        return
    evens, odds = dist.new_group([0, 2]), dist.new_group([1, 3])
    mine, members = (evens, [0, 2]) if rank % 2 == 0 else (odds, [1, 3])
    tensor = torch.full((5,), float(rank), device="neuron")
    dist.all_reduce(tensor, group=mine)
    assert tensor.tolist() == [float(sum(members))] * 5
    dist.broadcast(tensor.fill_(rank), src=members[1], group=mine)
    assert tensor.tolist() == [float(members[1])] * 5
    reverse = dist.new_group([3, 1], use_local_synchronization=True, sort_ranks=False) if rank % 2 else None
    if reverse is not None:
        assert dist.get_group_rank(reverse, 3) == 0
        dist.all_reduce(tensor, group=reverse)
    dist.destroy_process_group(mine)
