"""The `torch.backends` entry point: runs at the end of `import torch`, and can never break it.

Whatever goes wrong is kept, warned about once, and raised at the first use of the device: `torch.neuron` is then a
stand-in (unavailable.py). The entry point names this module and not `torch_neuronx`, whose files another distribution
may have overwritten; only this package can tell.
"""

from __future__ import annotations

import warnings

_done = False
_kept_error: Exception | None = None


def kept_error() -> Exception | None:
    """Why the device is not usable; None when it is registered (or autoload has not run)."""
    return _kept_error


def autoload() -> None:
    """Registers the device with torch. Runs once; later calls do nothing. Never raises an Exception."""
    global _done, _kept_error
    if _done:
        return
    _done = True
    try:
        from neuron_emu.registration import register

        register()
    except Exception as error:  # noqa: BLE001, whatever it is
        _kept_error = error
        _stand_in(error)


def _stand_in(error: Exception) -> None:
    try:
        from neuron_emu.unavailable import install

        install(error)
        warnings.warn(f"neuron-emu: device 'neuron' is not usable: {error}", RuntimeWarning, stacklevel=2)
    except Exception:  # noqa: BLE001, whatever it is
        # A filter that makes warnings errors, or a torch too foreign for the stand-in: the kept error tells the rest.
        return
