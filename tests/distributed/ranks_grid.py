"""Rank side of test_grid.py: the product of call × dtype × op × count × in place × async × group shape.

Every cell is compared bit for bit with plain arithmetic on inputs that all ranks can compute for all ranks.
NEURON_TEST_GRID=whole is the whole product; else every call in every group shape with few types, and every type and
operator once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.distributed as dist
from reference import ALL_TYPES, ARITHMETIC, BITWISE, COMPLEX, FLOAT8, INTEGERS, assert_same, reduced, values

import torch_neuronx  # noqa: F401

WHOLE = os.environ.get("NEURON_TEST_GRID") == "whole"
Op = dist.ReduceOp
# None, one, odd, and more than goes through the control block.
COUNTS = (0, 1, 7, 300_007 if WHOLE else 70_001)
SMALL_COUNTS = (0, 1, 7)
MOST_IN_FLIGHT = 16

Outcome = list[tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Cell:
    dtype: torch.dtype
    op: object
    count: int
    in_place: bool
    is_async: bool
    group: dist.ProcessGroup | None

    @property
    def rank(self) -> int:
        return dist.get_rank(self.group)

    @property
    def size(self) -> int:
        return dist.get_world_size(self.group)

    @property
    def root(self) -> int:
        """Of the group; another one for each count."""
        return (self.count + 1) % self.size

    @property
    def root_of_all(self) -> int:
        return dist.get_global_rank(self.group or dist.group.WORLD, self.root)

    def everyone(self, part: int = 0) -> list[torch.Tensor]:
        return inputs(self.size, self.count, self.dtype, part)

    def mine(self, part: int = 0) -> torch.Tensor:
        return self.everyone(part)[self.rank].to("neuron")

    def my_parts(self) -> list[torch.Tensor]:
        return [self.mine(part) for part in range(self.size)]

    def blank(self, members: int = 1) -> torch.Tensor:
        return torch.full((members * self.count,), 1, dtype=torch.uint8, device="neuron").to(self.dtype)

    def total(self, part: int = 0) -> torch.Tensor:
        return total(self.size, self.count, self.dtype, self.op, part)

    @property
    def options(self) -> dict[str, object]:
        return {"group": self.group, "async_op": self.is_async}


@lru_cache(maxsize=64)
def inputs(size: int, count: int, dtype: torch.dtype, part: int) -> list[torch.Tensor]:
    return [values(rank, (count,), dtype, salt=part) for rank in range(size)]


@lru_cache(maxsize=64)
def total(size: int, count: int, dtype: torch.dtype, op: object, part: int) -> torch.Tensor:
    return reduced(inputs(size, count, dtype, part), op)


# ---- the calls: each gives its Work, and what came out beside what should have ----


def all_reduce(cell: Cell) -> tuple[dist.Work | None, Outcome]:
    tensor = cell.mine()
    return dist.all_reduce(tensor, op=cell.op, **cell.options), [(tensor, cell.total())]


def reduce(cell: Cell) -> tuple[dist.Work | None, Outcome]:
    tensor = cell.mine()
    work = dist.reduce(tensor, cell.root_of_all, op=cell.op, **cell.options)
    return work, [(tensor, cell.total() if cell.rank == cell.root else cell.everyone()[cell.rank])]


def reduce_scatter(cell: Cell) -> tuple[dist.Work | None, Outcome]:
    parts = cell.my_parts()
    output = parts[cell.rank] if cell.in_place else cell.blank()
    return dist.reduce_scatter(output, parts, op=cell.op, **cell.options), [(output, cell.total(cell.rank))]


def reduce_scatter_tensor(cell: Cell) -> tuple[dist.Work | None, Outcome]:
    whole = torch.cat(cell.my_parts())
    output = whole[cell.rank * cell.count :][: cell.count] if cell.in_place else cell.blank()
    return dist.reduce_scatter_tensor(output, whole, op=cell.op, **cell.options), [(output, cell.total(cell.rank))]


def broadcast(cell: Cell) -> tuple[dist.Work | None, Outcome]:
    tensor = cell.mine()
    return dist.broadcast(tensor, cell.root_of_all, **cell.options), [(tensor, cell.everyone()[cell.root])]


def all_gather(cell: Cell) -> tuple[dist.Work | None, Outcome]:
    outputs = [cell.blank() for _ in range(cell.size)]
    given = outputs[cell.rank].copy_(cell.mine()) if cell.in_place else cell.mine()
    return dist.all_gather(outputs, given, **cell.options), list(zip(outputs, cell.everyone(), strict=True))


def all_gather_into_tensor(cell: Cell) -> tuple[dist.Work | None, Outcome]:
    output = cell.blank(cell.size)
    place = output[cell.rank * cell.count :][: cell.count]
    given = place.copy_(cell.mine()) if cell.in_place else cell.mine()
    return dist.all_gather_into_tensor(output, given, **cell.options), [(output, torch.cat(cell.everyone()))]


def gather(cell: Cell) -> tuple[dist.Work | None, Outcome]:
    outputs = [cell.blank() for _ in range(cell.size)] if cell.rank == cell.root else None
    given = outputs[cell.rank].copy_(cell.mine()) if cell.in_place and outputs else cell.mine()
    work = dist.gather(given, outputs, cell.root_of_all, **cell.options)
    return work, list(zip(outputs or [], cell.everyone() if outputs else [], strict=True))


def scatter(cell: Cell) -> tuple[dist.Work | None, Outcome]:
    parts = cell.my_parts() if cell.rank == cell.root else None
    output = parts[cell.rank] if cell.in_place and parts else cell.blank()
    work = dist.scatter(output, parts, cell.root_of_all, **cell.options)
    return work, [(output, cell.everyone(cell.rank)[cell.root])]


def all_to_all(cell: Cell) -> tuple[dist.Work | None, Outcome]:
    outputs = [cell.blank() for _ in range(cell.size)]
    work = dist.all_to_all(outputs, cell.my_parts(), **cell.options)
    return work, list(zip(outputs, cell.everyone(cell.rank), strict=True))


def all_to_all_single(cell: Cell) -> tuple[dist.Work | None, Outcome]:
    output = cell.blank(cell.size)
    work = dist.all_to_all_single(output, torch.cat(cell.my_parts()), **cell.options)
    return work, [(output, torch.cat(cell.everyone(cell.rank)))]


Call = Callable[[Cell], tuple[dist.Work | None, Outcome]]
REDUCTIONS: tuple[Call, ...] = (all_reduce, reduce, reduce_scatter, reduce_scatter_tensor)
MOVES: tuple[Call, ...] = (
    broadcast,
    all_gather,
    all_gather_into_tensor,
    gather,
    scatter,
    all_to_all,
    all_to_all_single,
)
# The others are in place always, or never.
MAY_BE_IN_PLACE = (reduce_scatter, reduce_scatter_tensor, all_gather, all_gather_into_tensor, gather, scatter)


def operators(dtype: torch.dtype) -> list[object]:
    if dtype == torch.bool:
        return [Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX, *BITWISE]
    if dtype in COMPLEX:
        return [Op.SUM, Op.AVG]
    if dtype in FLOAT8:
        # Their products and quotients have no exact value.
        return [Op.SUM, Op.MIN, Op.MAX]
    return [*ARITHMETIC, *(BITWISE if dtype in INTEGERS else [])]


def variants(call: Call) -> Iterator[tuple[bool, bool]]:
    for in_place in (False, True) if call in MAY_BE_IN_PLACE else (False,):
        for is_async in (False, True):
            yield in_place, is_async


def cells(call: Call, group: dist.ProcessGroup | None) -> Iterator[Cell]:
    with_operator = call in REDUCTIONS
    for dtype in ALL_TYPES:
        for op in operators(dtype) if with_operator else [None]:
            common = dtype == torch.float32 and op in (None, Op.SUM)
            # The types and operators that the reduced grid takes once.
            once = group is None and not common
            for in_place, is_async in variants(call):
                if WHOLE or common:
                    # Gigabytes of the same thing, for the less common types and operators.
                    counts = COUNTS if common or (is_async and op in (None, Op.SUM, Op.MAX)) else SMALL_COUNTS
                elif once and not in_place and not is_async:
                    counts = (7,)
                else:
                    continue
                for count in counts:
                    yield Cell(dtype, op, count, in_place, is_async, group)


def run(group: dist.ProcessGroup | None, calls: tuple[Call, ...] = (*REDUCTIONS, *MOVES)) -> None:
    pending: list[tuple[str, Cell, dist.Work | None, Outcome]] = []

    def finish() -> None:
        for what, cell, work, outcome in reversed(pending):
            if work is not None:
                work.wait()
            for actual, expected in outcome:
                assert_same(actual, expected, f"{what} {cell}")
        pending.clear()

    for call in calls:
        for cell in cells(call, group):
            work, outcome = call(cell)
            assert (work is not None) == cell.is_async, f"{call.__name__} {cell}"
            pending.append((call.__name__, cell, work, outcome))
            if not cell.is_async or len(pending) == MOST_IN_FLIGHT:
                finish()
        finish()


def check_world(rank: int, world_size: int) -> None:
    run(None)


def check_other_order(rank: int, world_size: int) -> None:
    """The group's ranks are not those of the world."""
    backwards = dist.new_group(list(reversed(range(world_size))), sort_ranks=False)
    assert dist.get_rank(backwards) == world_size - 1 - rank
    run(backwards)


def check_overlapping_groups(rank: int, world_size: int) -> None:
    """Two groups that have the rank in the middle in common: one after the other, and both at once."""
    middle = world_size // 2
    members = [list(range(middle + 1)), list(range(middle, world_size))]
    groups = [dist.new_group(ranks) for ranks in members]
    mine = [(group, ranks) for group, ranks in zip(groups, members, strict=True) if rank in ranks]
    for group, _ in mine:
        run(group)
    tensors = [torch.full((1000,), float(rank), device="neuron") for _ in mine]
    works = [
        [dist.all_reduce(tensor, op=Op.MAX, group=group, async_op=True) for _ in range(20)]
        for tensor, (group, _) in zip(tensors, mine, strict=True)
    ]
    for of_group in reversed(works):
        for work in of_group:
            work.wait()
    for tensor, (_, ranks) in zip(tensors, mine, strict=True):
        assert tensor.min().item() == tensor.max().item() == float(ranks[-1])


def check_groups_of_one(rank: int, world_size: int) -> None:
    run([dist.new_group([r]) for r in range(world_size)][rank])
