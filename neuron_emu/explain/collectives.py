"""The first collective of a group on which its members do not agree."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from neuron_emu.explain.calls import Call, Shapes, numel
from neuron_emu.explain.dumps import Dump


@dataclass(frozen=True)
class Group:
    """Of the dumps, those of the group's members."""

    name: str
    description: str
    ranks: list[int]  # of all members, in the job
    dumps: dict[int, Dump]  # by rank in the job

    @property
    def without_dump(self) -> list[int]:
        return [rank for rank in self.ranks if rank not in self.dumps]

    @property
    def error(self) -> str:
        return next((dump.errors[self.name] for dump in self.dumps.values() if self.name in dump.errors), "")


@dataclass
class Divergence:
    """Where a group's members part."""

    number: int
    calls: dict[int, Call]  # of those that made the call
    # Members that came to the same call, the largest party first. One party: the rest never came.
    parties: list[list[int]]
    absent: list[int] = field(default_factory=list)
    misfit: str = ""  # calls of one kind whose sizes do not fit together

    @property
    def culprits(self) -> list[int]:
        """Who parted from the majority; empty when there is none."""
        if self.absent:
            return self.absent
        if len(self.parties) > 1 and len(self.parties[0]) > len(self.parties[1]):
            return sorted(rank for party in self.parties[1:] for rank in party)
        return []

    @property
    def time_ns(self) -> int:
        return min(call.created_ns for call in self.calls.values())


def collectives_of(dump: Dump, group: str) -> dict[int, Call]:
    return {call.number: call for call in dump.calls if call.group == group and not call.is_message and call.number > 0}


def first_divergence(group: Group) -> tuple[Divergence | None, int]:
    """Also the number of calls before it on which all agree. Calls that some rank has overwritten are left out."""
    made = {rank: collectives_of(dump, group.name) for rank, dump in group.dumps.items()}
    start = max((_first_kept(dump, made[rank]) for rank, dump in group.dumps.items()), default=0)
    agreed = 0
    for number in sorted({number for calls in made.values() for number in calls}):
        if number < start:
            continue
        calls = {rank: made[rank][number] for rank in made if number in made[rank]}
        found = _divergence_at(number, calls, group)
        if found is not None:
            return found, agreed
        agreed += 1
    return None, agreed


def _first_kept(dump: Dump, calls: dict[int, Call]) -> int:
    return 0 if dump.is_whole else min(calls, default=0)


def _divergence_at(number: int, calls: dict[int, Call], group: Group) -> Divergence | None:
    parties = _parties(calls)
    if len(parties) > 1:
        return Divergence(number, calls, parties)
    misfit = _misfit(calls, group.ranks)
    if misfit:
        return Divergence(number, calls, parties, misfit=misfit)
    absent = sorted(set(group.dumps) - set(calls))
    # Nobody completes a call for which somebody is missing: the record is what is missing then.
    if absent and not any(call.completed for call in calls.values()):
        return Divergence(number, calls, parties, absent)
    if group.without_dump and not any(call.completed for call in calls.values()):
        return Divergence(number, calls, parties, group.without_dump)
    return None


def _parties(calls: dict[int, Call]) -> list[list[int]]:
    """Ranks whose calls are alike, the largest party first."""
    compare_amounts = not any(_is_uneven(call) for call in calls.values())
    parties = defaultdict(list)
    for rank, call in sorted(calls.items()):
        amount = _amount(call) if compare_amounts else None
        parties[call.kind, call.dtypes[:1], call.reduce_op, call.root, amount].append(rank)
    return sorted(parties.values(), key=lambda ranks: (-len(ranks), ranks))


def _is_uneven(call: Call) -> bool:
    """One tensor for each member, and not all of one size."""
    lists: list[Shapes] = [call.inputs, call.outputs]
    return call.kind != "all_to_all" and any(len(set(shapes)) > 1 for shapes in lists)


def _amount(call: Call) -> int | None:
    """The elements that must be the same on all members."""
    if call.kind in ("all_reduce", "broadcast", "reduce", "all_gather", "gather"):
        shapes = call.inputs or call.outputs
    elif call.kind in ("reduce_scatter", "scatter"):
        shapes = call.outputs or call.inputs
    else:
        return None
    return numel(shapes[0]) if shapes else None


def _misfit(calls: dict[int, Call], members: list[int]) -> str:
    """What one member gives is what the other expects: for forms whose parts differ in size."""
    kind = next(iter(calls.values())).kind
    if kind == "all_to_all" and len(calls) == len(members):
        given = sum(numel(call.inputs[0]) for call in calls.values() if call.inputs)
        taken = sum(numel(call.outputs[0]) for call in calls.values() if call.outputs)
        return "" if given == taken else f"all ranks together give {given} elements and expect {taken}"
    if kind not in ("all_gather", "gather", "reduce_scatter", "scatter"):
        return ""
    for rank, call in calls.items():
        whole, part = (call.outputs, "gives") if kind in ("all_gather", "gather") else (call.inputs, "takes")
        if len(whole) != len(members):
            continue
        for member, other in calls.items():
            own = other.inputs if part == "gives" else other.outputs
            expected = numel(whole[members.index(member)])
            if len(own) == 1 and numel(own[0]) != expected:
                return f"rank {rank} has {expected} elements for rank {member}, which {part} {numel(own[0])}"
    return ""
