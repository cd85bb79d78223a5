"""`neuron-emu info`: what would run here, and why not if nothing would."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    argparse.ArgumentParser(prog="neuron-emu info", description=__doc__).parse_args(arguments)
    import torch

    import neuron_emu
    from neuron_emu.autoload import autoload, kept_error

    autoload()
    print(f"neuron-emu {neuron_emu.__version__} (emulated), torch {torch.__version__}")
    error = kept_error()
    if error is not None:
        print(f"not usable: {error}")
        return 1
    from neuron_emu import _C

    status = _C.runtime_status()
    if status is not None:
        print(f"not usable: {status}")
        return 1
    count = _C.device_count()
    first = torch.neuron.get_device_properties(_C.current_device())  # type: ignore[attr-defined]
    print(
        f"{first.instance}: {count} device(s) for this process, {first.lnc} physical core(s) each, "
        f"{first.total_memory / 2**30:.0f} GiB of device memory each, first logical core {first.logical_core}"
    )
    return 0
