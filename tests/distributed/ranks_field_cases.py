"""Rank side of test_field_cases.py: what people hit on other backends, each with the smallest case that tells."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from every_call import COLLECTIVES, MESSAGES, EveryCall
from reference import ARITHMETIC, BITWISE, FLOAT8, INTEGERS, assert_same, fails_with, reduced, values

import torch_neuronx  # noqa: F401

Op = dist.ReduceOp


def in_step(world_size: int) -> None:
    """Whatever was refused or done before, the next call is the next call of all."""
    last = torch.ones(3, device="neuron")
    dist.all_reduce(last)
    assert last.tolist() == [float(world_size)] * 3


def wrapped(number: int, dtype: torch.dtype) -> int:
    limits = torch.iinfo(dtype)
    return (number - limits.min) % (limits.max - limits.min + 1) + limits.min


def reduced_integers(numbers: list[int], op: object, dtype: torch.dtype) -> int:
    """With Python's integers, which have no width."""
    total, product, both, either, odd = 0, 1, -1, 0, 0
    for number in numbers:
        total, product = total + number, product * number
        both, either, odd = both & number, either | number, odd ^ number
    if op == Op.AVG:
        mean = abs(wrapped(total, dtype)) // len(numbers)
        return mean if wrapped(total, dtype) >= 0 else -mean
    results = {Op.SUM: total, Op.PRODUCT: product, Op.MIN: min(numbers), Op.MAX: max(numbers)}
    results |= {Op.BAND: both, Op.BOR: either, Op.BXOR: odd}
    return wrapped(results[op], dtype)


def check_integers_keep_their_type(rank: int, world_size: int) -> None:
    """Field case 02: no detour through floating point, no narrowing; what is too large wraps as on the CPU."""
    for dtype in INTEGERS:
        limits = torch.iinfo(dtype)
        mine = [
            [-1, 2**53 + 1, -(2**62), limits.min, limits.max, 5 * r, limits.max - r, limits.min + r]
            for r in range(world_size)
        ]
        mine = [[wrapped(number, dtype) for number in numbers] for numbers in mine]
        for op in [*ARITHMETIC, *BITWISE]:
            tensor = torch.tensor(mine[rank], dtype=dtype, device="neuron")
            dist.all_reduce(tensor, op=op)
            expected = [reduced_integers(list(column), op, dtype) for column in zip(*mine, strict=True)]
            assert tensor.tolist() == expected, f"{dtype} {op}: {tensor.tolist()} instead of {expected}"


UNTOUCHED = 99


class Strided:
    """Lays tensors out with gaps, or in another order, and looks whether the gaps stay as they were."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.gaps: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        rows, columns = tensor.shape
        if self.kind == "x.t()":
            return tensor.t().contiguous().to("neuron").t()
        base = torch.full((rows * 2, columns, 3), UNTOUCHED, dtype=tensor.dtype)
        gap = torch.ones_like(base, dtype=torch.bool)
        on_device = base.to("neuron")
        views = {
            "x[:, 0]": lambda whole: whole[:rows, :, 0],
            "x[::2]": lambda whole: whole[::2, :, 1],
            "offset": lambda whole: whole[rows:, :, 2],
        }
        view = views[self.kind](on_device)
        view.copy_(tensor)
        views[self.kind](gap).fill_(False)
        self.gaps.append((on_device, gap))
        return view

    def check(self) -> None:
        for base, gap in self.gaps:
            assert bool((base.cpu()[gap] == UNTOUCHED).all()), f"{self.kind}: a neighbour in the storage was written to"


def check_strided(rank: int, world_size: int) -> None:
    """Field case 03: logical order in every call, for inputs and outputs."""
    for kind in ("x.t()", "x[:, 0]", "x[::2]", "offset"):
        place = Strided(kind)
        EveryCall((4, 3), place, label=kind).run((*COLLECTIVES, *MESSAGES))
        place.check()


def expanded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[:, :1].to("neuron").expand(tensor.shape)


def check_expanded(rank: int, world_size: int) -> None:
    """Field case 03: expand() may be read; as an output it is refused on all ranks before anything is sent."""
    only_read = tuple(name for name in COLLECTIVES if name not in ("all_reduce", "broadcast", "reduce"))

    class OneColumn(EveryCall):
        """Inputs that are the same in all columns, as an expanded tensor is."""

        def given(self, rank: int, part: int = 0) -> torch.Tensor:
            return super().given(rank, part)[:, :1].expand(self.shape).contiguous()

    def plain(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to("neuron")

    OneColumn((4, 3), plain, place_input=expanded, label="expand()").run((*only_read, *MESSAGES))
    output = OneColumn((4, 3), expanded, place_input=plain, label="expand()")
    for name in COLLECTIVES:
        # Of the rooted calls, only the ranks with an output would refuse: the others would wait for them.
        if name not in ("gather", "reduce"):
            fails_with(ValueError, "expand()", getattr(output, name))
    in_step(world_size)


def check_odd_offsets(rank: int, world_size: int) -> None:
    """Field case 04: any storage offset; neighbours stay untouched."""
    for dtype in [torch.int8, torch.bfloat16, torch.float32, torch.float64, torch.complex128]:
        buffer = values(rank, (12,), dtype).to("neuron")
        before = buffer.cpu()
        dist.all_reduce(buffer[1:8])
        expected = reduced([values(r, (12,), dtype) for r in range(world_size)], Op.SUM)
        assert_same(buffer[1:8], expected[1:8], f"offset {dtype}")
        assert_same(buffer[:1], before[:1], f"before {dtype}")
        assert_same(buffer[8:], before[8:], f"after {dtype}")


def check_empty(rank: int, world_size: int) -> None:
    """Field case 05: a tensor without elements passes through every call, which counts in the order of calls."""
    backend = dist.group.WORLD._get_backend(torch.device("neuron"))
    for shape in [(0,), (4, 0, 3)]:
        before = backend._get_sequence_number_for_group()
        empty = EveryCall(shape, lambda tensor: tensor.to("neuron"), label="empty")
        empty.run(COLLECTIVES)
        assert backend._get_sequence_number_for_group() == before + len(COLLECTIVES)
        empty.run(MESSAGES)
    in_step(world_size)


def check_uneven_lists(rank: int, world_size: int) -> None:
    """Field case 06: rank r has r + 1 rows, the last one none."""
    rows = [*range(1, world_size), 0]
    inputs = [values(r, (rows[r], 3), torch.float32) for r in range(world_size)]
    outputs = [torch.zeros_like(t, device="neuron") for t in inputs]
    dist.all_gather(outputs, inputs[rank].to("neuron"))
    for output, expected in zip(outputs, inputs, strict=True):
        assert_same(output, expected, "uneven all_gather")

    given = [
        [values(r, (rows[part], 3), torch.float32, salt=part) for r in range(world_size)] for part in range(world_size)
    ]
    output = torch.zeros(rows[rank], 3, device="neuron")
    dist.reduce_scatter(output, [part[rank].to("neuron") for part in given])
    assert_same(output, reduced(given[rank], Op.SUM), "uneven reduce_scatter")
    in_step(world_size)


def check_uneven_splits(rank: int, world_size: int) -> None:
    """Field case 07: zeros among the splits; sums that do not fit are refused at once."""
    splits = {2: [[0, 3], [2, 1]], 3: [[0, 2, 1], [3, 0, 0], [1, 1, 4]]}[world_size]
    give, get = splits[rank], [row[rank] for row in splits]
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        parts = [[values(r, (splits[r][p], 2), dtype, salt=p) for p in range(world_size)] for r in range(world_size)]
        output = torch.zeros(sum(get), 2, dtype=torch.uint8, device="neuron").to(dtype)
        dist.all_to_all_single(output, torch.cat(parts[rank]).to("neuron"), get, give)
        assert_same(output, torch.cat([parts[r][rank] for r in range(world_size)]), f"all_to_all_single {dtype}")

    source, target = torch.zeros(sum(give), 2, device="neuron"), torch.zeros(sum(get), 2, device="neuron")
    too_many = [give[0] + 1, *give[1:]]
    fails_with(ValueError, "add up", lambda: dist.all_to_all_single(target, source, get, too_many))
    fails_with(ValueError, "add up", lambda: dist.all_to_all_single(target, source, [get[0] + 1, *get[1:]], give))
    in_step(world_size)


def check_groups_of_one(rank: int, world_size: int) -> None:
    """Field case 19: every call in a group of one, output and input the same memory too; AVG of integers."""
    alone = [dist.new_group([r]) for r in range(world_size)][rank]
    EveryCall((4, 3), lambda tensor: tensor.to("neuron"), group=alone).run(COLLECTIVES)
    source = torch.arange(6.0, device="neuron")
    output = source.view(1, -1)[0]
    dist.reduce_scatter_tensor(output, source, group=alone)
    dist.reduce_scatter(output, [source], group=alone)
    dist.all_gather_into_tensor(output, source, group=alone)
    dist.all_to_all_single(output, source, group=alone)
    with dist._coalescing_manager(group=alone):
        dist.reduce_scatter_tensor(output, source, group=alone)
        dist.reduce_scatter_tensor(output[:2], source[:2], group=alone)
    with dist._coalescing_manager(group=alone):
        dist.all_gather_into_tensor(output, source, group=alone)
    assert source.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    whole = torch.tensor([7, -3], device="neuron")
    dist.all_reduce(whole, op=Op.AVG, group=alone)
    assert whole.tolist() == [7, -3]
    dist.barrier(group=alone)


def check_coalesced_types(rank: int, world_size: int) -> None:
    """Field case 19: three tensors of different type in one unit, by the manager and by the *_coalesced calls."""
    kinds = [(torch.float32, (5,)), (torch.bfloat16, (2, 3)), (torch.int64, (1,))]
    inputs = [[values(r, shape, dtype) for r in range(world_size)] for dtype, shape in kinds]
    wide = [[values(r, (world_size, *shape), dtype) for r in range(world_size)] for dtype, shape in kinds]
    everyone = list(range(world_size))

    def mine(given: list[list[torch.Tensor]]) -> list[torch.Tensor]:
        return [of_kind[rank].to("neuron") for of_kind in given]

    def blank(*members: int) -> list[torch.Tensor]:
        return [torch.zeros(*members, *shape, dtype=dtype, device="neuron") for dtype, shape in kinds]

    def same(actual: list[torch.Tensor], expected: list[torch.Tensor], what: str) -> None:
        for got, wanted in zip(actual, expected, strict=True):
            assert_same(got, wanted, what)

    totals = [reduced(of_kind, Op.SUM) for of_kind in inputs]
    rows = [reduced(of_kind, Op.SUM)[rank] for of_kind in wide]
    gathered = [torch.stack(of_kind) for of_kind in inputs]

    tensors = mine(inputs)
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    same(tensors, totals, "coalesced all_reduce")

    whole = blank(world_size)
    with dist._coalescing_manager(async_ops=True) as manager:
        for output, tensor in zip(whole, mine(inputs), strict=True):
            dist.all_gather_into_tensor(output, tensor)
    manager.wait()
    same(whole, gathered, "coalesced all_gather_into_tensor")

    parts = blank()
    with dist._coalescing_manager():
        for part, tensor in zip(parts, mine(wide), strict=True):
            dist.reduce_scatter_tensor(part, tensor)
    same(parts, rows, "coalesced reduce_scatter_tensor")

    same(functional.all_reduce_coalesced(mine(inputs), "sum", everyone), totals, "all_reduce_coalesced")
    joined = [torch.cat([t.reshape(1, *t.shape) for t in of_kind]).flatten(0, 1) for of_kind in inputs]
    same(
        functional.all_gather_into_tensor_coalesced(mine(inputs), everyone), joined, "all_gather_into_tensor_coalesced"
    )
    scattered = functional.reduce_scatter_tensor_coalesced(mine(wide), "sum", [0] * 3, everyone)
    same([part[0] for part in scattered], rows, "reduce_scatter_tensor_coalesced")


def check_objects(rank: int, world_size: int) -> None:
    """Field case 20: this backend alone; from nothing to megabytes, other sizes on each rank; tensors of the device."""

    def thing(r: int) -> dict[str, object]:
        return {"t": torch.full((2,), float(r), device="neuron"), "blob": bytes(r * 3_000_000)}

    def good(got: object, r: int) -> bool:
        tensor, blob = got["t"], got["blob"]  # type: ignore[index]
        return tensor.device.type == "neuron" and tensor.tolist() == [float(r)] * 2 and blob == bytes(r * 3_000_000)

    last = world_size - 1
    gathered: list[object] = [None] * world_size
    dist.all_gather_object(gathered, thing(rank))
    assert all(good(got, r) for r, got in enumerate(gathered))
    at_root: list[object] | None = [None] * world_size if rank == last else None
    dist.gather_object(thing(rank), at_root, dst=last)
    assert all(good(got, r) for r, got in enumerate(at_root or []))
    box: list[object] = [thing(rank)]
    dist.broadcast_object_list(box, src=last)
    assert good(box[0], last)
    scattered: list[object] = [None]
    dist.scatter_object_list(scattered, [thing(r) for r in range(world_size)] if rank == last else None, src=last)
    assert good(scattered[0], rank)
    if rank == 0:
        dist.send_object_list([thing(1), None, ""], dst=last)
    elif rank == last:
        received: list[object] = [None] * 3
        dist.recv_object_list(received, src=0)
        assert good(received[0], 1) and received[1:] == [None, ""]


def check_float8(rank: int, world_size: int) -> None:
    """Field case 21: float8 moves in all calls, and is reduced by value."""
    moving = (
        "broadcast",
        "all_gather",
        "all_gather_into_tensor",
        "gather",
        "scatter",
        "all_to_all",
        "all_to_all_single",
    )
    for dtype in FLOAT8:
        EveryCall((4, 3), lambda tensor: tensor.to("neuron"), dtype=dtype, label=str(dtype)).run((*moving, *MESSAGES))
        tensor = torch.tensor([0.5, 2.0]).to(dtype).to("neuron")
        dist.all_reduce(tensor)
        assert tensor.float().tolist() == [0.5 * world_size, 2.0 * world_size]


def check_all_types_move(rank: int, world_size: int) -> None:
    """Field case 22: whatever has elements of a fixed size can be broadcast, gathered and sent."""
    types = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    moved = 0
    for dtype in sorted(types, key=str):

        def raw(of: int, dtype: torch.dtype = dtype) -> torch.Tensor:
            # Bytes of our choice, seen as the type: some types have no arithmetic and no conversion.
            return torch.full((32,), 60 + of, dtype=torch.uint8, device="neuron").view(dtype)

        def bytes_of(tensor: torch.Tensor) -> list[int]:
            return tensor.view(torch.uint8).cpu().tolist()

        if dtype in (torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4):
            continue  # not plain elements: they have a scale besides
        if dtype == torch.bool:
            continue  # only 0 and 1; below
        tensor = raw(rank)
        dist.broadcast(tensor, src=1)
        assert bytes_of(tensor) == [61] * 32, dtype
        outputs = [raw(9) for _ in range(world_size)]
        dist.all_gather(outputs, raw(rank))
        assert [bytes_of(output) for output in outputs] == [[60 + r] * 32 for r in range(world_size)], dtype
        if rank == 0:
            dist.send(raw(0), dst=1)
        elif rank == 1:
            target = raw(9)
            dist.recv(target, src=0)
            assert bytes_of(target) == [60] * 32, dtype
        moved += 1
    assert moved > 25, types


def check_bool(rank: int, world_size: int) -> None:
    """Field case 22: bool moves, and is reduced by and/or."""
    EveryCall((4, 3), lambda tensor: tensor.to("neuron"), dtype=torch.bool).run((*COLLECTIVES, *MESSAGES))
    for op, expected in [(Op.MAX, [True, False, True]), (Op.MIN, [True, False, False]), (Op.SUM, [True, False, True])]:
        tensor = torch.tensor([True, False, rank == 0], device="neuron")
        dist.all_reduce(tensor, op=op)
        assert tensor.tolist() == expected, op
