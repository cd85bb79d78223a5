"""A call as one rank recorded it, and how it reads."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

# Forms that members of a group may mix, by the kind that the engine runs.
_KINDS = {
    "allreduce_coalesced": "all_reduce",
    "all_reduce_barrier": "barrier",
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
    "_all_gather_base": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_v": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "ALLGATHER_coalesced": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_v": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "REDUCE_SCATTER_coalesced": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "all_to_all_v_single": "all_to_all",
}
_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Bool": "bool",
}
_MESSAGE = re.compile(r"(send|recv) (-?\d+)(?:->|<-)(-?\d+)$")
_FIRST_MESSAGE = 1_000_000_000  # messages are numbered from here (bridge/distributed/flight_dump.h)

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Call:
    """One call of one rank. Ranks in it (`root`, `peer`) are the job's."""

    group: str
    number: int  # in its group, from 1; of a message, among the rank's messages
    kind: str  # "all_reduce", …, "send", "recv", or "coalesced" for the end of a batch of messages
    name: str  # as the program calls it
    inputs: Shapes
    outputs: Shapes
    dtypes: tuple[str, ...]
    reduce_op: str | None
    root: int | None
    peer: int | None  # of a message; -1: any
    tag: int
    completed: bool
    created_ns: int
    where: str  # "train.py:12 (step)", or empty

    @property
    def is_message(self) -> bool:
        return self.peer is not None

    def describe(self) -> str:
        """The call without its place: "all_reduce(float32[16], sum)"."""
        parts = [self._tensors()] if self.dtypes else []
        if self.kind == "send":
            parts.append(f"to rank {self.peer}")
        elif self.kind == "recv":
            parts.append("from any rank" if self.peer == -1 else f"from rank {self.peer}")
        if self.tag:
            parts.append(f"tag {self.tag}")
        if self.reduce_op is not None:
            parts.append(self.reduce_op)
        if self.root is not None:
            parts.append(f"root {self.root}")
        return f"{self.name}({', '.join(parts)})"

    def __str__(self) -> str:
        return f"#{self.number} {self.describe()}" + (f" at {self.where}" if self.where else "")

    def _tensors(self) -> str:
        dtype = self.dtypes[0] if len(set(self.dtypes)) == 1 else "/".join(self.dtypes)
        shapes, outputs = self.inputs or self.outputs, self.outputs
        text = f"{dtype}{_shapes_text(shapes)}"
        return text if outputs in (shapes, ()) or self.is_message else f"{text} -> {_shapes_text(outputs)}"


def numel(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


def call_of(entry: dict[str, Any], groups: Mapping[str, Sequence[int]]) -> Call:
    """`groups`: the members' ranks in the job, by group.

    Raises LookupError, TypeError or ValueError for what is no entry of a flight recorder."""
    own = entry.get("neuron", {})
    members = groups[entry["process_group"][0]]
    recorded = entry["profiling_name"].partition(":")[2]
    message = _MESSAGE.match(recorded)
    is_p2p = bool(entry["is_p2p"])
    number = int(entry["p2p_seq_id" if is_p2p else "collective_seq_id"])
    kind = message[1] if message else _KINDS.get(recorded, recorded)
    dtypes = entry["input_dtypes"] or entry["output_dtypes"]
    return Call(
        group=str(entry["process_group"][0]),
        number=number - _FIRST_MESSAGE if number > _FIRST_MESSAGE else number,
        kind=kind,
        name=own.get("name", kind if message else recorded),
        inputs=_shapes(entry["input_sizes"]),
        outputs=_shapes(entry["output_sizes"]),
        dtypes=tuple(_DTYPES.get(dtype, dtype) for dtype in dtypes),
        reduce_op=own.get("reduce_op"),
        root=members[own["root"]] if "root" in own else None,
        peer=_member(members, int(message[3])) if message else None,
        tag=int(own.get("tag", 0)),
        completed=entry["state"] == "completed",
        created_ns=int(entry["time_created_ns"]),
        where=_users_line(entry.get("frames", [])),
    )


def requests_of(call: Call) -> list[Call]:
    """A call on several tensors takes a number for each: the calls on one tensor that it stands for."""
    count = len(call.inputs)
    if call.is_message or count < 2 or len(call.outputs) != count or call.kind == "all_to_all":
        return [call]
    return [
        replace(
            call,
            number=call.number + i,
            inputs=(call.inputs[i],),
            outputs=(call.outputs[i],),
            dtypes=(call.dtypes[i],),
        )
        for i in range(count)
    ]


def _member(members: Sequence[int], rank: int) -> int:
    return members[rank] if rank >= 0 else -1


def _shapes(sizes: list[list[int]]) -> Shapes:
    return tuple(tuple(int(size) for size in shape) for shape in sizes)


def _shapes_text(shapes: Shapes) -> str:
    text = ", ".join("[" + ", ".join(str(size) for size in shape) + "]" for shape in shapes[:4])
    return text if len(shapes) <= 4 else f"{text}, … {len(shapes)} tensors"


def _users_line(frames: list[dict[str, Any]]) -> str:
    """Of the innermost frame outside torch."""
    for frame in frames:
        file = str(frame["filename"])
        if "/torch/" not in file and not file.startswith("<"):
            return f"{PurePath(file).name}:{frame['line']} ({frame['name']})"
    return ""
