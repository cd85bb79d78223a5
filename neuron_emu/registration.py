"""Makes `neuron` a device and a process-group backend of the running torch.

`register()` raises what is wrong; `autoload` keeps it for the first use. The order matters: other owners of the name
and a foreign torch are found before the extension is loaded, since loading it may crash the process.
"""

from __future__ import annotations

import atexit
import importlib.util
import struct
import sys
from pathlib import Path
from types import ModuleType

import torch
from torch.utils.backend_registration import generate_methods_for_privateuse1_backend, rename_privateuse1_backend

from neuron_emu import identity

_DRAIN_LIMIT_MS = 10_000
_ELF_HEADER_BYTES = 64


class UnusableError(RuntimeError):
    """neuron-emu must not, or cannot, run here; the message says why and what to do."""


def register() -> None:
    _check_identity()
    _check_torch()
    _load_extension()

    rename_privateuse1_backend("neuron")
    from neuron_emu import device

    torch._register_device_module("neuron", device)
    for name, submodule in device.SUBMODULES.items():
        sys.modules[f"torch.neuron.{name}"] = submodule
    generate_methods_for_privateuse1_backend(for_storage=True)

    from neuron_emu import distributed
    from neuron_emu.device import serialization

    serialization.register()
    distributed.register()
    # docs/adr/0007: a backward pass of this thread runs on it, as the CPU's does.
    torch.autograd.grad_mode.set_multithreading_enabled(False)
    atexit.register(_drain)


def _check_identity() -> None:
    if identity.forced():
        return
    found = identity.conflicts()
    if found:
        raise UnusableError("; ".join(str(conflict) for conflict in found))


def _check_torch() -> None:
    try:
        from neuron_emu import _build_info
    except ImportError as error:
        raise UnusableError(
            "the extension neuron_emu._C has not been built. From a source tree: make build; "
            "else install the wheel again: pip install --force-reinstall --no-deps neuron-emu"
        ) from error
    if _minor(torch.__version__) != _minor(_build_info.TORCH_VERSION):
        raise UnusableError(
            f"neuron-emu {_build_info.VERSION} was built with torch {_build_info.TORCH_VERSION}, and this is torch "
            f"{torch.__version__}. Install torch=={_build_info.TORCH_VERSION}, or the neuron-emu whose version begins "
            f"with {'.'.join(_minor(torch.__version__))}"
        )


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _load_extension() -> ModuleType:
    try:
        spec = importlib.util.find_spec("neuron_emu._C")
        if spec is not None and spec.origin is not None:
            _check_complete(Path(spec.origin))
        from neuron_emu import _C
    except (ImportError, OSError) as error:
        raise UnusableError(
            f"the extension neuron_emu._C cannot be loaded ({error}). Install neuron-emu again with this Python "
            f"({sys.version.split()[0]}): pip install --force-reinstall --no-deps neuron-emu"
        ) from error
    return _C


def _check_complete(library: Path) -> None:
    """Raises OSError for a file that was cut off: loading one ends the process with SIGBUS."""
    with library.open("rb") as stream:
        header = stream.read(_ELF_HEADER_BYTES)
        if len(header) < _ELF_HEADER_BYTES or not header.startswith(b"\x7fELF"):
            raise OSError(f"{library} is not a shared library")
        (table_offset,) = struct.unpack_from("<Q", header, 40)
        entry_bytes, entries = struct.unpack_from("<HH", header, 58)
        if stream.seek(0, 2) < table_offset + entry_bytes * entries:  # the last thing in the file
            raise OSError(f"{library} has been cut off")


def _drain() -> None:
    """At the interpreter's exit: a last chance for what was submitted; the rest is left to the end of the process."""
    from neuron_emu import _C

    if _C.in_bad_fork():
        return
    _C.wait_for_autograd_threads(_DRAIN_LIMIT_MS)
    if _C.is_started():
        _C.shutdown(_DRAIN_LIMIT_MS)
