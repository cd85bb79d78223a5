"""How many devices there are, which is current, and what each one is."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

import torch

from neuron_emu import _C
from neuron_emu.device.index import DeviceLike, checked_index, device_index


@dataclass(frozen=True)
class DeviceProperties:
    name: str
    total_memory: int  # bytes
    instance: str  # the instance that is emulated: "trn2.48xlarge"
    chip: str  # "trn2"
    logical_core: int  # number of the core on the instance, as NEURON_RT_VISIBLE_CORES counts
    lnc: int  # physical cores in this logical core
    emulated: bool  # always True


def is_available() -> bool:
    """Whether there is a device to use. Never raises."""
    return _C.device_count() > 0


def device_count() -> int:
    """Visible logical cores; in a distributed job the number of local workers."""
    return _C.device_count()


def current_device() -> int:
    return _C.current_device()


def set_device(device: DeviceLike) -> None:
    """Makes `device` the current one of this thread. Does not start it."""
    _C.set_device(device_index(device))


def get_device_name(device: DeviceLike = 0) -> str:
    return get_device_properties(device).name


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    return DeviceProperties(**_C.device_properties(device_index(device)))


def can_device_access_peer(device: DeviceLike, peer: DeviceLike) -> bool:
    return _C.can_access_peer(device_index(device), device_index(peer))


class device:  # noqa: N801, the name that every device module has
    """`with torch.neuron.device(1):` makes a device current, and puts the previous one back. None does nothing."""

    def __init__(self, device: DeviceLike) -> None:
        self.idx = -1 if device is None else checked_index(device)
        self.prev_idx = -1

    def __enter__(self) -> device:
        self.prev_idx = _C.maybe_exchange_device(self.idx)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _C.maybe_exchange_device(self.prev_idx)


class device_of(device):  # noqa: N801
    """`with torch.neuron.device_of(tensor):` makes the tensor's device current; does nothing for another kind."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.device if tensor.device.type == "neuron" else None)
