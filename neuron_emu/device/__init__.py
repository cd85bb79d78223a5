"""`torch.neuron`: the module that torch and its users know the device by."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from neuron_emu import _C
from neuron_emu.device import amp, lazy, memory, random, streams
from neuron_emu.device.amp import get_amp_supported_dtype, is_bf16_supported
from neuron_emu.device.inductor import CppWrapperCodegen, PythonWrapperCodegen, Scheduling, WrapperFxCodegen
from neuron_emu.device.lazy import init, is_initialized
from neuron_emu.device.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)
from neuron_emu.device.properties import (
    DeviceProperties,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_device_name,
    get_device_properties,
    is_available,
    set_device,
)
from neuron_emu.device.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from neuron_emu.device.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
    synchronize,
)

# Importable as torch.neuron.<name>.
SUBMODULES: dict[str, ModuleType] = {"amp": amp, "memory": memory, "random": random, "streams": streams}

# What torch itself asks for.
_lazy_init = lazy.ensure_usable
_lazy_call = lazy.lazy_call
_is_in_bad_fork = _C.in_bad_fork
_exchange_device = _C.exchange_device
_maybe_exchange_device = _C.maybe_exchange_device


def __getattr__(name: str) -> Any:
    """What changes while the program runs."""
    if name == "_initialized":
        return is_initialized()
    if name == "default_generators":
        return random.default_generators()
    raise AttributeError(f"module 'torch.neuron' has no attribute {name!r}")


__all__ = [
    "CppWrapperCodegen",
    "DeviceProperties",
    "Event",
    "PythonWrapperCodegen",
    "Scheduling",
    "Stream",
    "StreamContext",
    "WrapperFxCodegen",
    "amp",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "random",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "streams",
    "synchronize",
]
