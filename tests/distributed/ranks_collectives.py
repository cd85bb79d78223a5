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


def fails_with(kind: type[BaseException] | tuple[type[BaseException], ...], text: str, call: object) -> None:
    try:
        call()  # type: ignore[operator]
    except kind as error:
        assert text in str(error), f"{error!r} does not say {text!r}"
    else:
        raise AssertionError(f"no {kind} was raised")


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


def check_integer_extremes(rank: int, world_size: int) -> None:
    """Field case 02: no detour through floating point, no narrowing."""
    numbers = [-1, 2**53 + 1, -(2**62), 5 + rank]
    expected = {
        Op.SUM: [n * world_size for n in numbers[:3]] + [5 * world_size + sum(range(world_size))],
        Op.MAX: [*numbers[:3], 5 + world_size - 1],
        Op.MIN: [*numbers[:3], 5],
    }
    for op, wanted in expected.items():
        tensor = torch.tensor(numbers, device="neuron")
        dist.all_reduce(tensor, op=op)
        wrapped = [(w + 2**63) % 2**64 - 2**63 for w in wanted]
        assert tensor.tolist() == wrapped, f"{op}: {tensor.tolist()} instead of {wrapped}"


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


def check_all_gather_uneven(rank: int, world_size: int) -> None:
    """Field case 06: rank r gives r rows; rank 0 none."""
    inputs = [values(r, (r, 3), torch.float32) for r in range(world_size)]
    outputs = [torch.zeros_like(t, device="neuron") for t in inputs]
    dist.all_gather(outputs, inputs[rank].to("neuron"))
    for output, expected in zip(outputs, inputs, strict=True):
        assert_same(output, expected, "uneven all_gather")


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


def check_coalesced(rank: int, world_size: int) -> None:
    """Field case 19: sizes and types may differ within a unit."""
    kinds = [(torch.float32, (5,)), (torch.bfloat16, (2, 3)), (torch.int64, (1,))]
    inputs = [everyone(world_size, shape, dtype) for dtype, shape in kinds]
    tensors = [of_kind[rank].to("neuron") for of_kind in inputs]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    for tensor, of_kind in zip(tensors, inputs, strict=True):
        assert_same(tensor, reduced(of_kind, Op.SUM), "coalesced all_reduce")

    gathered = [torch.zeros(world_size, *shape, dtype=dtype, device="neuron") for dtype, shape in kinds]
    with dist._coalescing_manager(async_ops=True) as manager:
        for whole, of_kind in zip(gathered, inputs, strict=True):
            dist.all_gather_into_tensor(whole, of_kind[rank].to("neuron"))
    manager.wait()
    for whole, of_kind in zip(gathered, inputs, strict=True):
        assert_same(whole, torch.stack(of_kind), "coalesced all_gather_into_tensor")

    wide = [everyone(world_size, (world_size, *shape), dtype) for dtype, shape in kinds]
    scattered = [torch.zeros(shape, dtype=dtype, device="neuron") for dtype, shape in kinds]
    with dist._coalescing_manager():
        for part, of_kind in zip(scattered, wide, strict=True):
            dist.reduce_scatter_tensor(part, of_kind[rank].to("neuron"))
    for part, of_kind in zip(scattered, wide, strict=True):
        assert_same(part, reduced(of_kind, Op.SUM)[rank], "coalesced reduce_scatter_tensor")


def check_coalescing_by_device(rank: int, world_size: int) -> None:
    """The way with start and end calls: anything may be mixed, the Work at the end stands for all."""
    first, second = torch.full((4,), float(rank), device="neuron"), torch.full((3,), rank, device="neuron")
    with dist._coalescing_manager(device=torch.device("neuron"), async_ops=True) as manager:
        dist.broadcast(first, src=world_size - 1)
        dist.broadcast(second, src=0)
    manager.wait()
    assert first.tolist() == [world_size - 1.0] * 4 and second.tolist() == [0] * 3


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


def check_all_to_all_uneven(rank: int, world_size: int) -> None:
    """Field case 07: rank r gives (r + p) % 3 rows to p, zero rows among them."""

    def rows(source: int, target: int) -> torch.Tensor:
        return values(source, ((source + target) % 3, 2), torch.int64, salt=target)

    give = [rows(rank, p) for p in range(world_size)]
    get = [rows(r, rank) for r in range(world_size)]
    output = torch.zeros(sum(len(g) for g in get), 2, dtype=torch.int64, device="neuron")
    dist.all_to_all_single(output, torch.cat(give).to("neuron"), [len(g) for g in get], [len(g) for g in give])
    assert_same(output, torch.cat(get), "uneven all_to_all_single")


def check_strided(rank: int, world_size: int) -> None:
    """Field case 03: logical order, for inputs and outputs."""
    makers = [
        lambda base: base.t(),
        lambda base: base[:, 0],
        lambda base: base[::2],
        lambda base: base[1:, 2:],
    ]
    for make in makers:
        inputs = [make(values(r, (6, 5), torch.float32)) for r in range(world_size)]
        base = values(rank, (6, 5), torch.float32).to("neuron")
        untouched = base.clone()
        view = make(base)
        dist.all_reduce(view)
        assert_same(view, reduced(inputs, Op.SUM), "strided all_reduce")
        mask = torch.zeros(6, 5, dtype=torch.bool)
        make(mask).fill_(True)
        assert_same(base.cpu()[~mask], untouched.cpu()[~mask], "neighbours of a strided all_reduce")

        view = make(values(rank, (6, 5), torch.float32).to("neuron"))
        dist.broadcast(view, src=0)
        assert_same(view, inputs[0], "strided broadcast")

        outputs = [make(torch.zeros(6, 5, device="neuron")) for _ in range(world_size)]
        dist.all_gather(outputs, make(values(rank, (6, 5), torch.float32).to("neuron")))
        for output, expected in zip(outputs, inputs, strict=True):
            assert_same(output, expected, "strided all_gather")

        output = make(torch.zeros(6, 5, device="neuron"))
        part = make(values(rank, (6, 5), torch.float32).to("neuron"))
        dist.reduce_scatter(output, [part] * world_size)
        assert_same(output, reduced(inputs, Op.SUM), "strided reduce_scatter")


def check_expanded(rank: int, world_size: int) -> None:
    outputs = [torch.zeros(3, 4, device="neuron") for _ in range(world_size)]
    dist.all_gather(outputs, torch.full((3, 1), float(rank), device="neuron").expand(3, 4))
    assert [o.sum().item() for o in outputs] == [12.0 * r for r in range(world_size)]
    shared = torch.zeros(1, 4, device="neuron").expand(3, 4)
    fails_with(ValueError, "expand()", lambda: dist.all_reduce(shared))


def check_odd_offsets(rank: int, world_size: int) -> None:
    """Field case 04: any storage offset; neighbours stay untouched."""
    for dtype in [torch.int8, torch.bfloat16, torch.float32, torch.float64]:
        buffer = values(rank, (12,), dtype).to("neuron")
        before = buffer.cpu()
        dist.all_reduce(buffer[1:8])
        expected = reduced([values(r, (12,), dtype) for r in range(world_size)], Op.SUM)
        assert_same(buffer[1:8], expected[1:8], f"offset {dtype}")
        assert_same(buffer[:1], before[:1], f"before {dtype}")
        assert_same(buffer[8:], before[8:], f"after {dtype}")


def check_empty(rank: int, world_size: int) -> None:
    """Field case 05: a tensor without elements is a call like any other."""
    for shape in [(0,), (4, 0, 3)]:
        empty = torch.zeros(shape, device="neuron")
        dist.all_reduce(empty)
        dist.broadcast(empty, src=0)
        outputs = [torch.zeros(shape, device="neuron") for _ in range(world_size)]
        dist.all_gather(outputs, empty)
        dist.reduce_scatter(empty, outputs)
        dist.all_gather_into_tensor(torch.zeros(0, device="neuron"), torch.zeros(0, device="neuron"))
        assert empty.shape == shape and all(o.shape == shape for o in outputs)
    last = torch.ones(3, device="neuron")
    dist.all_reduce(last)
    assert last.tolist() == [float(world_size)] * 3


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


def check_objects(rank: int, world_size: int) -> None:
    """Field case 20: this backend alone, sizes that differ, tensors of the device inside."""
    gathered: list[object] = [None] * world_size
    mine = {"t": torch.full((2,), float(rank), device="neuron"), "blob": bytes(rank * 100_000)}
    dist.all_gather_object(gathered, mine)
    for r, got in enumerate(gathered):
        assert got["t"].tolist() == [float(r)] * 2 and len(got["blob"]) == r * 100_000  # type: ignore[index]
    box = [{"from": rank}]
    dist.broadcast_object_list(box, src=world_size - 1)
    assert box == [{"from": world_size - 1}]


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


def check_groups_of_one(rank: int, world_size: int) -> None:
    """Field case 19, first part."""
    groups = [dist.new_group([r]) for r in range(world_size)]
    alone = groups[rank]
    source = torch.arange(6.0, device="neuron")
    output = source.view(1, -1)[0]
    dist.reduce_scatter_tensor(output, source, group=alone)
    dist.all_reduce(source, group=alone)
    dist.all_gather_into_tensor(output, source, group=alone)
    dist.broadcast(source, src=rank, group=alone)
    assert source.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
