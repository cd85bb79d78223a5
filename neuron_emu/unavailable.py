"""The stand-in for `torch.neuron` when the device cannot be used: every use raises the reason.

What torch itself asks of a device module while it looks around (is one there? shall I seed it?) is answered "nothing
here", so that programs which never name the device run as if neuron-emu were not installed.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, NoReturn

import torch
from torch.utils.backend_registration import rename_privateuse1_backend

from neuron_emu import identity


class UnavailableDevice(ModuleType):
    _initialized = False

    def __init__(self, error: Exception) -> None:
        super().__init__("torch.neuron", doc=f"Device 'neuron' is not usable: {error}")
        self._error = error

    def _lazy_init(self) -> NoReturn:
        """Called by torch before it makes anything on the device."""
        raise RuntimeError(f"neuron-emu: device 'neuron' is not usable: {self._error}") from self._error

    def _is_in_bad_fork(self) -> bool:
        return False

    def is_available(self) -> bool:
        return False

    def is_initialized(self) -> bool:
        return False

    def device_count(self) -> int:
        return 0

    def manual_seed_all(self, seed: int) -> None:
        """torch.manual_seed seeds every device there is: none."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module 'torch.neuron' has no attribute {name!r}")
        self._lazy_init()


def install(error: Exception) -> None:
    """Puts the stand-in where torch looks for the device.

    Where another distribution's `torch_neuronx` is the one that is imported, `torch.neuron` and the process group are
    left for it to take.
    """
    stand_in = UnavailableDevice(error)
    rename_privateuse1_backend("neuron")
    if not identity.face_is_ours():
        sys.modules.setdefault("torch.neuron", stand_in)
        return
    if not hasattr(torch, "neuron"):
        torch._register_device_module("neuron", stand_in)
    if torch.distributed.is_available() and not hasattr(torch.distributed.Backend, "NEURON"):
        torch.distributed.Backend.register_backend("neuron", lambda *_: stand_in._lazy_init(), devices=["neuron"])
