"""Every collective and message of a group, on tensors laid out as a test wishes, with what must come out."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from reference import assert_same, reduced, values

Layout = Callable[[torch.Tensor], torch.Tensor]
COLLECTIVES = (
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "all_gather_into_tensor",
    "gather",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all",
    "all_to_all_single",
)
MESSAGES = ("send_recv", "batch_isend_irecv")


class EveryCall:
    """Each method is one call by every member of the group, and compares what came out.

    `place` brings what is read and written to the device, `place_input` what is only read: the same values, in whatever
    layout. One rank's tensor has `shape`; those of all ranks together are joined in dimension 0.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        place: Layout,
        *,
        place_input: Layout | None = None,
        dtype: torch.dtype = torch.float32,
        group: dist.ProcessGroup | None = None,
        label: str = "",
    ) -> None:
        self.shape, self.dtype, self.group, self.label = shape, dtype, group, label
        self.place, self.place_input = place, place_input or place
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.root = dist.get_global_rank(group or dist.group.WORLD, self.size - 1)
        self.is_root = self.rank == self.size - 1

    def given(self, rank: int, part: int = 0) -> torch.Tensor:
        return values(rank, self.shape, self.dtype, salt=part)

    def everyone(self, part: int = 0) -> list[torch.Tensor]:
        return [self.given(rank, part) for rank in range(self.size)]

    def parts(self, rank: int) -> list[torch.Tensor]:
        """What `rank` has for each member."""
        return [self.given(rank, part) for part in range(self.size)]

    def blank(self, members: int = 1) -> torch.Tensor:
        return self.place(torch.zeros(self.shape[0] * members, *self.shape[1:], dtype=self.dtype))

    def same(self, call: str, actual: torch.Tensor, expected: torch.Tensor) -> None:
        assert_same(actual, expected, f"{call} {self.label} of {self.shape} on {self.size} ranks")

    def all_reduce(self) -> None:
        tensor = self.place(self.given(self.rank))
        dist.all_reduce(tensor, group=self.group)
        self.same("all_reduce", tensor, reduced(self.everyone(), dist.ReduceOp.SUM))

    def broadcast(self) -> None:
        tensor = self.place(self.given(self.rank))
        dist.broadcast(tensor, self.root, group=self.group)
        self.same("broadcast", tensor, self.given(self.size - 1))

    def reduce(self) -> None:
        tensor = self.place(self.given(self.rank))
        dist.reduce(tensor, self.root, group=self.group)
        total = reduced(self.everyone(), dist.ReduceOp.SUM)
        self.same("reduce", tensor, total if self.is_root else self.given(self.rank))

    def all_gather(self) -> None:
        outputs = [self.blank() for _ in range(self.size)]
        dist.all_gather(outputs, self.place_input(self.given(self.rank)), group=self.group)
        for output, expected in zip(outputs, self.everyone(), strict=True):
            self.same("all_gather", output, expected)

    def all_gather_into_tensor(self) -> None:
        output = self.blank(self.size)
        dist.all_gather_into_tensor(output, self.place_input(self.given(self.rank)), group=self.group)
        self.same("all_gather_into_tensor", output, torch.cat(self.everyone()))

    def gather(self) -> None:
        outputs = [self.blank() for _ in range(self.size)] if self.is_root else None
        dist.gather(self.place_input(self.given(self.rank)), outputs, self.root, group=self.group)
        for output, expected in zip(outputs or [], self.everyone(), strict=False):
            self.same("gather", output, expected)

    def scatter(self) -> None:
        inputs = [self.place_input(part) for part in self.parts(self.rank)] if self.is_root else None
        output = self.blank()
        dist.scatter(output, inputs, self.root, group=self.group)
        self.same("scatter", output, self.given(self.size - 1, self.rank))

    def reduce_scatter(self) -> None:
        output = self.blank()
        dist.reduce_scatter(output, [self.place_input(part) for part in self.parts(self.rank)], group=self.group)
        self.same("reduce_scatter", output, reduced(self.everyone(self.rank), dist.ReduceOp.SUM))

    def reduce_scatter_tensor(self) -> None:
        output = self.blank()
        dist.reduce_scatter_tensor(output, self.place_input(torch.cat(self.parts(self.rank))), group=self.group)
        self.same("reduce_scatter_tensor", output, reduced(self.everyone(self.rank), dist.ReduceOp.SUM))

    def all_to_all(self) -> None:
        outputs = [self.blank() for _ in range(self.size)]
        dist.all_to_all(outputs, [self.place_input(part) for part in self.parts(self.rank)], group=self.group)
        for output, expected in zip(outputs, self.everyone(self.rank), strict=True):
            self.same("all_to_all", output, expected)

    def all_to_all_single(self) -> None:
        output = self.blank(self.size)
        dist.all_to_all_single(output, self.place_input(torch.cat(self.parts(self.rank))), group=self.group)
        self.same("all_to_all_single", output, torch.cat(self.everyone(self.rank)))

    def send_recv(self) -> None:
        """From the first member to the last."""
        if self.rank == 0:
            dist.send(self.place_input(self.given(0)), group=self.group, group_dst=self.size - 1)
        elif self.is_root:
            tensor = self.blank()
            assert dist.recv(tensor, group=self.group, group_src=0) == dist.get_global_rank(
                self.group or dist.group.WORLD, 0
            )
            self.same("recv", tensor, self.given(0))

    def batch_isend_irecv(self) -> None:
        """Around the ring."""
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        target = self.blank()
        source = self.place_input(self.given(self.rank))
        for work in dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, source, group=self.group, group_peer=after),
                dist.P2POp(dist.irecv, target, group=self.group, group_peer=before),
            ]
        ):
            work.wait()
        self.same("irecv", target, self.given(before))

    def run(self, names: tuple[str, ...]) -> None:
        for name in names:
            getattr(self, name)()
