"""Seeds and random states. A state is 16 bytes, (seed, offset); none of these starts the device."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from neuron_emu import _C
from neuron_emu.device.index import DeviceLike, device_index


def default_generators() -> tuple[torch.Generator, ...]:
    return tuple(_C.default_generator(index) for index in range(_C.device_count()))


def get_rng_state(device: DeviceLike = "neuron") -> torch.Tensor:
    """The state of the device's generator, as a ByteTensor on the CPU."""
    return _C.default_generator(device_index(device)).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    return [generator.get_state() for generator in default_generators()]


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "neuron") -> None:
    _C.default_generator(device_index(device)).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator."""
    _C.default_generator(_C.current_device()).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    for generator in default_generators():
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seeds the current device's generator with a random number."""
    _C.default_generator(_C.current_device()).seed()


def seed_all() -> None:
    """Seeds all devices' generators with one random number."""
    generators = default_generators()
    if generators:
        manual_seed_all(generators[0].seed())


def initial_seed() -> int:
    return _C.default_generator(_C.current_device()).initial_seed()
