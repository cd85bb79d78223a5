"""Device arguments: from what users write (`None`, 3, "neuron", "neuron:3", a torch.device) to an index."""

from __future__ import annotations

from typing import TypeAlias

import torch

from neuron_emu import _C

DeviceLike: TypeAlias = torch.device | str | int | None


def device_index(device: DeviceLike) -> int:
    """The index that `device` means; the current device for None, a negative index or "neuron" without one.

    Raises ValueError for another kind of device. Does not check the range.
    """
    if device is None:
        return _C.current_device()
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type != "neuron":
            raise ValueError(f"Expected neuron device, got {device}")
        index = -1 if device.index is None else device.index
    elif isinstance(device, int) and not isinstance(device, bool):
        index = device
    else:
        raise TypeError(f"Expected a neuron device, its index or None, got {type(device).__name__} {device!r}")
    return index if index >= 0 else _C.current_device()


def checked_index(device: DeviceLike) -> int:
    """`device_index`, refused where this process may not use the device. Does not start it."""
    index = device_index(device)
    _C.device_properties(index)  # raises: out of range, another worker's, or what is wrong with the environment
    return index
