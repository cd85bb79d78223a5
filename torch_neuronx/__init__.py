"""The public names of torch_neuronx, on software NeuronCores (neuron-emu; not affiliated with AWS).

Importing it is optional: torch finds the device by itself. Where the device cannot be used, every name raises why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch as _torch

from neuron_emu.autoload import autoload as _autoload
from neuron_emu.autoload import kept_error as _kept_error

__emulated__ = True

_autoload()

if TYPE_CHECKING or _kept_error() is None:
    from neuron_emu.device import (
        Event,
        Stream,
        current_stream,
        default_stream,
        empty_cache,
        max_memory_allocated,
        max_memory_reserved,
        memory_allocated,
        memory_reserved,
        memory_stats,
        memory_summary,
        reset_accumulated_memory_stats,
        reset_peak_memory_stats,
        set_stream,
        stream,
        synchronize,
    )
    from neuron_emu.device import is_initialized as is_neuron_runtime_initialized
    from neuron_emu.op_tracking import clear_op_tracking, get_executed_ops, get_fallback_ops


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from neuron_emu import __version__

        return __version__
    if not name.startswith("__") and _kept_error() is not None:
        return getattr(_torch.neuron, name)  # type: ignore[attr-defined]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Event",
    "Stream",
    "clear_op_tracking",
    "current_stream",
    "default_stream",
    "empty_cache",
    "get_executed_ops",
    "get_fallback_ops",
    "is_neuron_runtime_initialized",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_stream",
    "stream",
    "synchronize",
]
