"""The entries of the sweep: every OpInfo of torch.testing with each dtype that its CPU kernel takes."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations as upstream

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
DERIVATIVE_DTYPES = (torch.float32, torch.float64)

SHORT_SAMPLES = 20
IN_EVERY_MODEL = {
    f"{name}/float32"
    for name in (
        "add",
        "addmm",
        "bmm",
        "cat",
        "cumsum",
        "gather",
        "index_put",
        "log_softmax",
        "mm",
        "mul",
        "native_layer_norm",
        "nn.functional.conv2d",
        "nn.functional.cross_entropy",
        "nn.functional.embedding",
        "nn.functional.gelu",
        "nn.functional.linear",
        "nn.functional.scaled_dot_product_attention",
        "softmax",
        "sum",
        "topk",
        "where",
        "_foreach_add",
    )
}


def operators() -> dict[str, Any]:
    """By the name that the entry has in the report."""
    named: dict[str, Any] = {op.full_name: op for op in upstream.op_db}
    for group in ("unary", "binary", "pointwise", "reduce", "other"):
        named.update({op.full_name: op for op in getattr(upstream, f"foreach_{group}_op_db")})
    return named


def entries() -> list[str]:
    """`name/dtype`, in the order of torch's lists."""
    return [
        f"{name}/{str(dtype).removeprefix('torch.')}"
        for name, op in operators().items()
        for dtype in DTYPES
        if op.supports_dtype(dtype, "cpu")
    ]


def derivative_entries() -> list[str]:
    """Those with a second derivative or a forward-mode one."""
    return [
        f"{name}/{str(dtype).removeprefix('torch.')}"
        for name, op in operators().items()
        for dtype in DERIVATIVE_DTYPES
        if op.supports_autograd and (op.supports_gradgrad or op.supports_forward_ad)
        if dtype in op.supported_backward_dtypes("cpu")
    ]


def a_tenth(entries: list[str]) -> list[str]:
    """Always the same ones."""
    return [entry for entry in entries if _digest(entry) % 10 == 0]


def short_entries() -> list[str]:
    """One entry in ten, always the same ones, and what every model uses."""
    return [entry for entry in entries() if _digest(entry) % 10 == 0 or entry in IN_EVERY_MODEL]


def _digest(entry: str) -> int:
    return int(hashlib.sha256(entry.encode()).hexdigest(), 16)


def parse(entry: str) -> tuple[str, torch.dtype]:
    name, _, dtype = entry.rpartition("/")
    return name, getattr(torch, dtype)
