"""Messages that somebody waits for and nobody sends or receives."""

from __future__ import annotations

from dataclasses import dataclass

from neuron_emu.explain.calls import Call, numel
from neuron_emu.explain.collectives import Group
from neuron_emu.explain.dumps import Dump


@dataclass(frozen=True)
class Wait:
    """A message that has not come to its end. Ranks are the job's."""

    rank: int
    call: Call
    peer: int  # for whom it waits; -1: anybody
    why: str  # about the peer


def waits(group: Group) -> list[Wait]:
    """By time of the call. A message that both sides have posted alike is under way, and not told."""
    found = []
    for rank, dump in group.dumps.items():
        for call in messages_of(dump, group.name):
            if call.completed or call.peer is None:
                continue
            why = _why(group, rank, call, call.peer)
            if why:
                found.append(Wait(rank, call, call.peer, why))
    return sorted(found, key=lambda wait: wait.call.created_ns)


def messages_of(dump: Dump, group: str) -> list[Call]:
    return [call for call in dump.calls if call.group == group and call.is_message]


def _why(group: Group, rank: int, call: Call, peer: int) -> str:
    if peer == -1:
        return "no message came from any rank"
    if peer not in group.dumps:
        return f"rank {peer} left no dump"
    own = _channel(group, rank, call)
    place = next(i for i, message in enumerate(own) if message is call)
    theirs = _counterparts(group, peer, rank, call)
    if not (group.dumps[rank].is_whole and group.dumps[peer].is_whole):
        # The beginnings are lost: what is not completed on either side is compared instead.
        own, theirs = _pending(own), _pending(theirs)
        place = next(i for i, message in enumerate(own) if message is call)
    if place >= len(theirs):
        return f"rank {peer} {'never receives' if call.kind == 'send' else 'never sends'} it"
    other = theirs[place]
    mine, its = _elements(call), _elements(other)
    return f"rank {peer} has {other}" if mine != its else ""


def _channel(group: Group, rank: int, call: Call) -> list[Call]:
    """All messages of one direction, peer and tag, in their order: so they match."""
    return [
        message
        for message in messages_of(group.dumps[rank], group.name)
        if (message.kind, message.peer, message.tag) == (call.kind, call.peer, call.tag)
    ]


def _counterparts(group: Group, peer: int, rank: int, call: Call) -> list[Call]:
    kind = "recv" if call.kind == "send" else "send"
    return [
        message
        for message in messages_of(group.dumps[peer], group.name)
        if message.kind == kind and message.tag == call.tag and message.peer in (rank, -1)
    ]


def _pending(messages: list[Call]) -> list[Call]:
    return [message for message in messages if not message.completed]


def _elements(call: Call) -> tuple[tuple[str, ...], int]:
    return call.dtypes, sum(numel(shape) for shape in call.inputs)
