"""The first use of the device: what must hold before it, and what is said then. Starts no core."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from neuron_emu import _C, identity

_usable = False


def ensure_usable() -> None:
    """Raises why the device cannot be used here: forked child, malformed variable, more workers than cores.

    torch calls it (as `torch.neuron._lazy_init`) before it makes anything on the device for the first time.
    """
    global _usable
    if _C.in_bad_fork():
        raise RuntimeError(
            "Cannot re-initialize neuron in forked subprocess. To use neuron with multiprocessing, you must use the "
            "'spawn' start method"
        )
    if _usable:
        return
    problems = _C.environment_errors()
    if problems:
        raise ValueError("; ".join(problems))
    properties = _C.device_properties(_C.current_device())  # raises why there is none
    for sentence in _C.unknown_variables():
        warnings.warn(sentence, UserWarning, stacklevel=3)
    identity.announce(properties["instance"], _C.device_count())
    _usable = True


def init() -> None:
    """Starts the current device. Nothing needs it: the first tensor does the same."""
    ensure_usable()
    _C.lazy_init()


def is_initialized() -> bool:
    """Whether a core of this process has started: something was allocated or submitted."""
    return _C.is_started() and not _C.in_bad_fork()


def lazy_call(function: Callable[[], Any], **_: Any) -> None:
    """Runs `function`: nothing on this device has to wait for the start."""
    function()
