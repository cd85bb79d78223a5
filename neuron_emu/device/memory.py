"""Statistics of the device memory. None of these starts a device; one that has not started has zeros.

The values move with the host's calls and with the streams' progress: synchronize() before reading them.
"""

from __future__ import annotations

from typing import Any

from neuron_emu import _C
from neuron_emu.device.index import DeviceLike, device_index
from neuron_emu.device.memory_history import _dump_snapshot, _record_memory_history, _snapshot, memory_snapshot

__all__ = [
    "_dump_snapshot",
    "_record_memory_history",
    "_snapshot",
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
]

_KINDS = (
    ("Allocated memory", "allocated_bytes"),
    ("Requested memory", "requested_bytes"),
    ("Active memory", "active_bytes"),
    ("Freed, in use by other streams", "kept_bytes"),
    ("Reserved memory", "reserved_bytes"),
)
_COLUMNS = ("current", "peak", "allocated", "freed")


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """All statistics, nested (`stats["allocated_bytes"]["peak"]`) and flat (`stats["allocated_bytes.all.peak"]`).

    `kept_bytes`, ours, are freed but another stream is not done with them; the product's keys leave those out.
    """
    stats: dict[str, Any] = dict(_C.memory_stats(device_index(device)))
    flat = {
        f"{name}.all.{column}": number
        for name, value in stats.items()
        if isinstance(value, dict)
        for column, number in value.items()
    }
    return {**stats, **flat}


def _bytes(kind: str, column: str, device: DeviceLike) -> int:
    return int(_C.memory_stats(device_index(device))[kind][column])


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes that live tensors occupy."""
    return _bytes("allocated_bytes", "current", device)


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most bytes that live tensors occupied since the start, or since reset_peak_memory_stats()."""
    return _bytes("allocated_bytes", "peak", device)


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes that the pools hold, in tensors or for reuse."""
    return _bytes("reserved_bytes", "current", device)


def max_memory_reserved(device: DeviceLike = None) -> int:
    return _bytes("reserved_bytes", "peak", device)


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    _C.reset_peak_memory_stats(device_index(device))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Sets the totals of allocated and freed bytes, and the event counts, to zero."""
    _C.reset_accumulated_memory_stats(device_index(device))


def empty_cache() -> None:
    """Gives the pages of unused segments back to the system."""
    _C.empty_cache()


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """(free, total) bytes of the device's memory; what the pools hold is not free."""
    index = device_index(device)
    total = int(_C.device_properties(index)["total_memory"])
    return total - int(_C.memory_stats(index)["reserved_bytes"]["current"]), total


def _size(nbytes: int) -> str:
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{nbytes} B" if unit == "B" else f"{value:.1f} {unit}"


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """The statistics as a table for people. `abbreviated` leaves out the counts of events."""
    index = device_index(device)
    stats = _C.memory_stats(index)
    width = 18 + 4 * 14
    rule = "=" * width
    lines = [
        rule,
        "Neuron Memory Summary (emulated)".center(width),
        f"Device neuron:{index}, {_size(int(_C.device_properties(index)['total_memory']))}".center(width),
        rule,
        f"{'':18}" + "".join(f"{title:>14}" for title in ("now", "peak", "allocated", "freed")),
    ]
    for title, kind in _KINDS:
        cells = "".join(f"{_size(int(stats[kind][column])):>14}" for column in _COLUMNS)
        lines.append(f"{title:18}{cells}")
    if not abbreviated:
        lines.append("-" * width)
        for title, kind in (("Segments", "segments"), ("Blocks", "blocks")):
            lines.append(f"{title:18}" + "".join(f"{int(stats[kind][column]):>14}" for column in ("current", "peak")))
        for title, kind in (
            ("Allocation requests", "allocation_requests"),
            ("Tensor frees", "num_tensor_frees"),
            ("Allocation retries", "num_alloc_retries"),
            ("Out of memory", "num_ooms"),
        ):
            lines.append(f"{title:22}{int(stats[kind]):>10}")
    lines.append(rule)
    return "\n".join(lines)
