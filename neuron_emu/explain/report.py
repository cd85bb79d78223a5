"""Plain words for what a job's dumps show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from neuron_emu.explain.calls import Call
from neuron_emu.explain.collectives import Divergence, Group, collectives_of, first_divergence
from neuron_emu.explain.dumps import Dump
from neuron_emu.explain.messages import Wait, waits

_OLD_NS = 10 * 60 * 1_000_000_000  # dumps of one failure are written within seconds


@dataclass
class Report:
    diverged: bool
    lines: list[str] = field(default_factory=list)


def explain(dumps: Sequence[Dump]) -> Report:
    groups = _groups(dumps)
    report = Report(diverged=False, lines=list(_notes(dumps, groups)))
    agreed = 0
    found: list[tuple[int, str, list[str]]] = []  # time, headline, lines
    awaited: list[tuple[int, int]] = []  # who waits for whom
    for group in groups:
        divergence, agreed_here = first_divergence(group)
        agreed += agreed_here
        if divergence is not None:
            lines = list(_divergence_lines(group, divergence, agreed_here, dumps))
            found.append((divergence.time_ns, _headline(group, divergence), lines))
            awaited += [(rank, absent) for rank in divergence.calls for absent in divergence.absent]
        waiting = waits(group)
        if waiting:
            headline = f"{_ranks([waiting[0].rank])} waits for a message that does not come to its end."
            found.append((waiting[0].call.created_ns, headline, list(_wait_lines(group, waiting, dumps))))
            awaited += [(wait.rank, wait.peer) for wait in waiting]
    if not found:
        report.lines.append(f"All ranks agree: {agreed} {_plural('collective', agreed)} in {_count(groups)}.")
        report.lines += _errors(groups)
        return report
    report.diverged = True
    found.sort(key=lambda finding: finding[0])
    report.lines.append(found[0][1])
    for _, _, lines in found:
        report.lines += ["", *lines]
    circle = _circle(awaited)
    if circle:
        report.lines += ["", "They wait for each other: " + ", which waits for ".join(map(_rank, circle)) + "."]
    report.lines += _errors(groups)
    return report


def _groups(dumps: Sequence[Dump]) -> list[Group]:
    members: dict[str, tuple[str, list[int]]] = {}
    for dump in dumps:
        members.update(dump.groups)
    return [
        Group(name, description, ranks, {dump.rank: dump for dump in dumps if dump.rank in ranks})
        for name, (description, ranks) in members.items()
    ]


def _notes(dumps: Sequence[Dump], groups: Sequence[Group]) -> Iterator[str]:
    ranks = [dump.rank for dump in dumps]
    yield f"{len(dumps)} {_plural('dump', len(dumps))}, of {_ranks(ranks)}; {_count(groups)}."
    newest = max(dump.time_ns for dump in dumps)
    old = [dump.rank for dump in dumps if 0 < dump.time_ns < newest - _OLD_NS]
    if old:
        yield f"Note: {_of_ranks('dump', old)} is more than 10 minutes older than the newest. Is it of this job?"
    cut = [dump.rank for dump in dumps if not dump.is_whole]
    if cut:
        yield f"Note: {_ranks(cut)} made more calls than the recorder keeps; only the last ones are compared."


def _headline(group: Group, divergence: Divergence) -> str:
    place = f"call #{divergence.number} of {_title(group)}"
    if divergence.absent:
        return f"{_ranks(divergence.absent)} diverged first: {_never_made(group, divergence)} {place}."
    if divergence.culprits:
        return f"{_ranks(divergence.culprits)} diverged first, at {place}."
    first, *others = (_ranks(party) for party in divergence.parties)
    if divergence.misfit:
        return f"The ranks' sizes do not fit together at {place}: {divergence.misfit}."
    return f"{first} and {' and '.join(others)} diverged at {place}; neither side is in the majority."


def _never_made(group: Group, divergence: Divergence) -> str:
    return (
        "no dump of it, and the others wait in"
        if set(divergence.absent) <= set(group.without_dump)
        else "it never reached"
    )


def _divergence_lines(group: Group, divergence: Divergence, agreed: int, dumps: Sequence[Dump]) -> Iterator[str]:
    number = divergence.number
    agreeing = f"{agreed} {'call agrees' if agreed == 1 else 'calls agree'}"
    yield f"{_title(group)}, {_ranks(group.ranks)}: {agreeing}, then call #{number}:"
    for party in divergence.parties:
        by_place: dict[str, list[int]] = {}
        for rank in party:
            call = divergence.calls[rank]
            by_place.setdefault(_described(call), []).append(rank)
        for text, ranks in by_place.items():
            yield f"  {_ranks(ranks)}: {text}{' (waiting)' if divergence.absent else ''}"
    for rank in divergence.absent:
        yield f"  {_ranks([rank])}: not here; {_last_seen(group, rank, dumps)}"
    if divergence.misfit:
        yield f"  {divergence.misfit}"
    yield from _shifts(group, divergence)


def _described(call: Call) -> str:
    return call.describe() + (f" at {call.where}" if call.where else "")


def _last_seen(group: Group, rank: int, dumps: Sequence[Dump]) -> str:
    dump = next((dump for dump in dumps if dump.rank == rank), None)
    if dump is None:
        return "it left no dump: it was killed, or it has not noticed the failure"
    calls = collectives_of(dump, group.name)
    last = calls[max(calls)] if calls else None
    text = f"its last call in this group was {last}" if last else "it made no call in this group"
    elsewhere = dump.calls[-1] if dump.calls else None
    if elsewhere is not None and elsewhere is not last:
        group_text = "" if elsewhere.group == group.name else f" of group '{elsewhere.group}'"
        text += f"; the last one it {'made' if elsewhere.completed else 'came to'} is {elsewhere}{group_text}"
    if dump.reason.startswith("this rank ended"):
        text += f"; {dump.reason}"
    return text


def _shifts(group: Group, divergence: Divergence) -> Iterator[str]:
    """A call that one side makes one number later was left out by the other, or is one too many."""
    if len(divergence.parties) != 2:
        return
    for ahead, behind in (divergence.parties, divergence.parties[::-1]):
        following = collectives_of(group.dumps[behind[0]], group.name).get(divergence.number + 1)
        call = divergence.calls[ahead[0]]
        if following is not None and following.describe() == call.describe():
            skipped = divergence.calls[behind[0]]
            yield (
                f"  {_ranks(behind)} makes that call next: either {_ranks(ahead)} left out {_described(skipped)}, "
                f"or {_ranks(behind)} made it once too often"
            )


def _wait_lines(group: Group, waiting: Sequence[Wait], dumps: Sequence[Dump]) -> Iterator[str]:
    yield f"{_title(group)}, {_ranks(group.ranks)}: messages that do not come to their end:"
    for wait in waiting:
        yield f"  {_ranks([wait.rank])}: {wait.call}: {wait.why}"
    for peer in sorted({wait.peer for wait in waiting if wait.peer in group.dumps}):
        dump = next(dump for dump in dumps if dump.rank == peer)
        last = next((call for call in reversed(dump.calls) if call.kind != "coalesced"), None)
        if last is not None and last not in [wait.call for wait in waiting]:
            yield f"  {_ranks([peer])}: its last call is {last}"
        if dump.reason.startswith("this rank ended"):
            yield f"  {_ranks([peer])}: {dump.reason}"


def _circle(awaited: Sequence[tuple[int, int]]) -> list[int]:
    """Ranks each of which waits for the next, the first one again at the end; empty when there is none."""
    for start, _ in awaited:
        path, seen = [start], {start}
        while path:
            following = [peer for rank, peer in awaited if rank == path[-1]]
            if start in following:
                return [*path, start]
            unseen = [peer for peer in following if peer not in seen]
            if unseen:
                path.append(unseen[0])
                seen.add(unseen[0])
            else:
                path.pop()
    return []


def _errors(groups: Sequence[Group]) -> list[str]:
    """What the groups themselves said when they failed."""
    told: list[str] = []
    for group in groups:
        if group.error:
            told += ["", "The group reported:", *(f"  {line}" for line in group.error.splitlines())]
    return told


def _title(group: Group) -> str:
    return f"group '{group.name}'" + (f" ({group.description})" if group.description not in ("", "undefined") else "")


def _ranks(ranks: Sequence[int]) -> str:
    """ "rank 1", "ranks 0-3, 5"."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [", ".join(map(str, run)) if len(run) < 3 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"{_plural('rank', len(ranks))} {', '.join(parts)}"


def _rank(rank: int) -> str:
    return _ranks([rank])


def _of_ranks(what: str, ranks: Sequence[int]) -> str:
    return f"the {what} of {_ranks(ranks)}"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else word + "s"


def _count(groups: Sequence[Group]) -> str:
    return f"{len(groups)} {_plural('group', len(groups))}"
