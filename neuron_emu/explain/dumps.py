"""Files to dumps."""

from __future__ import annotations

import ast
import io
import pickle
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuron_emu.explain.calls import Call, call_of, requests_of

_RANK = re.compile(r"(\d+)$")


class UnusableError(Exception):
    """There is nothing here that could be explained; the message says why."""


@dataclass
class Dump:
    """What one rank recorded."""

    path: Path
    rank: int  # in the job
    groups: dict[str, tuple[str, list[int]]]  # name -> description, the members' ranks in the job
    calls: list[Call]  # in the order of the host's calls
    is_whole: bool  # nothing was overwritten
    errors: dict[str, str] = field(default_factory=dict)  # of the groups that failed
    reason: str = ""
    time_ns: int = 0  # 0: not known


def load(paths: Iterable[Path]) -> list[Dump]:
    """The dumps of files and of the folders' files, by rank. Raises UnusableError."""
    dumps: dict[int, Dump] = {}
    for path in _files(paths):
        dump = _read(path)
        other = dumps.setdefault(dump.rank, dump)
        if other is not dump:
            raise UnusableError(f"two dumps of rank {dump.rank}: {other.path} and {path}; name the files of one job")
    if not dumps:
        raise UnusableError("no dump was found: files whose names end with the rank, such as trace_rank_0")
    return [dumps[rank] for rank in sorted(dumps)]


def _files(paths: Iterable[Path]) -> Iterable[Path]:
    for path in paths:
        if path.is_dir():
            named = (file for file in path.iterdir() if _RANK.search(file.name) and not file.name.startswith("."))
            yield from sorted(file for file in named if file.is_file())
        elif path.is_file():
            yield path
        else:
            raise UnusableError(f"{path}: there is no such file or folder")


class _PlainUnpickler(pickle.Unpickler):
    """Dumps hold plain values; anything else could run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it refers to {module}.{name}")


def _read(path: Path) -> Dump:
    try:
        content = _PlainUnpickler(io.BytesIO(path.read_bytes())).load()
        return _dump_of(path, content)
    # Whatever a file holds that is no dump.
    except (OSError, pickle.PickleError, EOFError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise UnusableError(f"{path} is no flight-recorder dump: {type(error).__name__}: {error}") from error


def _dump_of(path: Path, content: dict[str, Any]) -> Dump:
    version = str(content["version"])
    if not version.startswith("2."):
        raise ValueError(f"version {version}; 2.x is understood")
    own = content.get("neuron", {})
    ours = bool(own)
    entries = content["entries"]
    groups = {
        name: (str(group["desc"]), [int(rank) for rank in ast.literal_eval(group["ranks"])])
        for name, group in content["pg_config"].items()
    }
    members = {name: ranks for name, (_, ranks) in groups.items()}
    calls = [call_of(entry, members) for entry in entries]
    return Dump(
        path=path,
        rank=int(own["rank"]) if own.get("rank", -1) >= 0 else _rank_in_name(path),
        groups=groups,
        calls=[request for call in calls for request in (requests_of(call) if ours else [call])],
        is_whole=not entries or entries[0]["record_id"] == 0,
        errors={str(group): str(text) for group, text in own.get("errors", {}).items()},
        reason=str(own.get("reason", "")),
        time_ns=int(own.get("time_ns", 0)),
    )


def _rank_in_name(path: Path) -> int:
    found = _RANK.search(path.name)
    if found is None:
        raise ValueError("neither it nor its name says which rank it is of")
    return int(found[1])
