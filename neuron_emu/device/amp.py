"""What torch.autocast asks of a device."""

from __future__ import annotations

import torch


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float32, torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: bfloat16 arithmetic is native on the device that is emulated, and complete on this one."""
    return True
