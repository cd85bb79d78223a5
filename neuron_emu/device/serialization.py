"""Where `torch.load` and pickle put the tensors that another process had on its device."""

from __future__ import annotations

import re
from typing import Any

import torch

from neuron_emu import _C
from neuron_emu.device.index import checked_index

_BEFORE_TORCHS_OWN = 9


def _restore(storage: Any, location: str) -> Any:
    match = re.fullmatch(r"neuron(?::(\d+))?", location)
    if match is None:
        return None
    index = int(match[1]) if match[1] else _C.current_device()
    if index >= _C.device_count():
        return None  # torch's own says what there is, and what map_location does
    # A worker has one device, so what a fellow worker had on its own goes there: checkpoints of another rank, objects
    # that came through all_gather_object.
    bound = _C.bound_index()
    return storage.to(device=torch.device("neuron", checked_index(index if bound is None else bound)))


def register() -> None:
    """Once, when the device is registered. See torch.serialization.register_package."""
    torch.serialization.register_package(_BEFORE_TORCHS_OWN, lambda storage: None, _restore)
