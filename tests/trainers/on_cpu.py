"""TorchTitan's trainer on the CPU and gloo, where it does not run by itself: the reference of test_titan.py.

It takes whatever accelerator torch knows, else cuda. Here it is told "cpu", and given the functions of a device module
that torch.cpu lacks; and FSDP's gradients are added up plainly, since gloo has no reduction with a factor.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
import torch._utils
from torch.distributed.fsdp import FSDPModule

torch._utils._get_available_device_type = lambda: "cpu"
torch.cpu.get_device_name = lambda device=None: "cpu"
torch.cpu.current_device = lambda: 0
torch.cpu.get_device_properties = lambda device=None: SimpleNamespace(total_memory=1 << 34)
torch.cpu.memory_stats = lambda device=None: {}
torch.cpu.reset_peak_memory_stats = lambda device=None: None
torch.cpu.empty_cache = lambda: None

_set_factor = FSDPModule.set_gradient_divide_factor


def _set_factor_of_plain_sums(self: FSDPModule, factor: float) -> None:
    self.set_force_sum_reduction_for_comms(True)
    _set_factor(self, factor)


FSDPModule.set_gradient_divide_factor = _set_factor_of_plain_sums

if __name__ == "__main__":
    # Only now: TorchTitan asks for the device when it is imported.
    from torchtitan.train import Trainer, main

    main(Trainer)
