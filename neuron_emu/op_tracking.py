"""Which operators ran as device commands, and which ran on the caller after a wait ("fell back to the CPU")."""

from __future__ import annotations

from neuron_emu import _C


def get_executed_ops() -> list[str]:
    """Names of the operators that ran on the device since the start or the last clear, each once."""
    return sorted(_C.op_counts())


def get_fallback_ops() -> list[str]:
    """Names of the operators that ran on the CPU instead, each once."""
    return sorted(_C.fallback_counts())


def clear_op_tracking() -> None:
    _C.reset_op_counts()
