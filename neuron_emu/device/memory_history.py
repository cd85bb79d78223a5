"""Snapshots of the device memory and the history behind them, as torch.cuda.memory's.

What is written opens in PyTorch's memory_viz page and with `python -m torch.cuda._memory_viz`.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from typing import Any

from neuron_emu import _C
from neuron_emu.device.index import DeviceLike

# Which call sites are kept, each with those before it.
_CONTEXTS = {None: 0, "state": 1, "alloc": 2, "all": 3}


def _record_memory_history(
    enabled: str | bool | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    device: DeviceLike = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: Sequence[str] | None = None,
) -> None:
    """Records which lines of the program allocate and free device memory, on all devices, until `enabled=None`.

    `enabled`: "all", or "state" for no more than the lines that allocated what is alive. `context`: whose lines are
    kept: of what is alive ("state"), of every allocation ("alloc"), of frees as well ("all"), or no one's (None).
    `max_entries`: older events go. `stacks` may be "python" or "all"; either way the lines are Python's.
    """
    del device  # torch.cuda takes it, and records on all devices as well
    if enabled in (None, False):
        _C.stop_memory_history()
        return
    _check("enabled", enabled, ("all", "state", True))
    _check("context", context, tuple(_CONTEXTS))
    _check("stacks", stacks, ("python", "all"))
    for name, asked in (
        ("compile_context", compile_context),
        ("global_record_annotations", global_record_annotations),
    ):
        if asked:
            raise ValueError(f"torch.neuron.memory._record_memory_history: {name} is not recorded on neuron")
    for action in skip_actions or ():
        _check("skip_actions", action, tuple(_C.memory_actions()))
    if clear_history:
        _C.clear_memory_history()
    _C.start_memory_history(
        _CONTEXTS[context], 0 if enabled == "state" else min(max_entries, sys.maxsize), list(skip_actions or ())
    )


def _check(name: str, value: Any, known: tuple[Any, ...]) -> None:
    if value not in known:
        expected = ", ".join(repr(choice) for choice in known)
        raise ValueError(f"torch.neuron.memory._record_memory_history: {name}={value!r}; expected one of {expected}")


def _snapshot(device: DeviceLike = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """The segments and blocks of all devices, and what was recorded since _record_memory_history()."""
    del device  # as torch.cuda
    if augment_with_fx_traces:
        raise ValueError("torch.neuron.memory._snapshot: augment_with_fx_traces is not available on neuron")
    return _C.memory_snapshot()


def memory_snapshot() -> list[dict[str, Any]]:
    """The segments of all devices, with their blocks."""
    segments: list[dict[str, Any]] = _C.memory_snapshot()["segments"]
    return segments


def _dump_snapshot(filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    """Writes _snapshot() to a file, for PyTorch's memory_viz page or `python -m torch.cuda._memory_viz`."""
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(augment_with_fx_traces=augment_with_fx_traces), file)
