"""Tensors that may be spread over ranks, to compare."""

from __future__ import annotations

import torch
from torch.distributed.tensor import DTensor


def full(tensor: torch.Tensor) -> torch.Tensor:
    """All of it, on the CPU, without its graph. A DTensor is gathered: every rank has to ask."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().cpu()
