"""The process-group backend `neuron`."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from neuron_emu.distributed.flight_recorder import dump_flight_recorder, failure_dump_path

__all__ = ["dump_flight_recorder", "failure_dump_path", "register"]


def register() -> None:
    """Makes `neuron` a backend of torch.distributed, and the default one for neuron devices."""
    if dist.is_available():
        dist.Backend.register_backend("neuron", _create, extended_api=True, devices=["neuron"])
        _join_fake_backend()


def _join_fake_backend() -> None:
    """torch's `fake` backend, a group without peers for dry runs, takes neuron tensors as it takes cuda's."""
    from torch.testing._internal.distributed import fake_pg  # noqa: F401  (registers the backend)

    devices = dist.Backend.backend_capability[dist.Backend.FAKE]
    if "neuron" not in devices:
        devices.append("neuron")


def _create(backend_options: Any, group_options: Any) -> Any:
    from neuron_emu import _C
    from neuron_emu.device.lazy import ensure_usable

    # First, since what is wrong on one rank must be told to all of them.
    group = _C.create_process_group(backend_options, group_options)
    ensure_usable()
    return group
