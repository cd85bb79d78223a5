"""Operators for DTensors, and what is wrong with one of them for inputs that are placed in a certain way."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from full_tensor import full
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import implicit_replication

# name -> function, shapes of its floating point inputs
OPERATORS: dict[str, tuple[Callable[..., torch.Tensor], list[tuple[int, ...]]]] = {
    "add": (lambda a, b: a + 2 * b, [(7, 10), (7, 10)]),
    "mul with broadcast": (lambda a, b: a * b, [(7, 10), (10,)]),
    "where": (lambda a, b: torch.where(a > b, a, b), [(7, 10), (7, 10)]),
    "mm": (lambda a, b: a @ b, [(7, 10), (10, 7)]),
    "bmm": (torch.bmm, [(4, 7, 10), (4, 10, 5)]),
    "linear": (F.linear, [(5, 7, 10), (8, 10), (8,)]),
    "gelu": (F.gelu, [(7, 10)]),
    "softmax": (lambda a: a.softmax(-1), [(7, 10)]),
    "log_softmax over dim 0": (lambda a: a.log_softmax(0), [(7, 10)]),
    "layer_norm": (lambda a, w, b: F.layer_norm(a, (10,), w, b), [(7, 10), (10,), (10,)]),
    "rms_norm": (lambda a, w: F.rms_norm(a, (10,), w), [(7, 10), (10,)]),
    "sum": (lambda a: a.sum(), [(7, 10)]),
    "mean over a dimension": (lambda a: a.mean(0), [(7, 10)]),
    "amax": (lambda a: a.amax(1, keepdim=True), [(7, 10)]),
    "var": (lambda a: a.var(0), [(7, 10)]),
    "norm": (lambda a: torch.linalg.vector_norm(a), [(7, 10)]),
    "cumsum": (lambda a: a.cumsum(0), [(7, 10)]),
    "sort": (lambda a: a.sort(dim=0).values, [(7, 10)]),
    "topk": (lambda a: a.topk(2, dim=1).values, [(7, 10)]),
    "transpose": (lambda a: a.transpose(0, 1).contiguous(), [(7, 10)]),
    "view": (lambda a: a.view(4, 7, 4, 3), [(4, 7, 12)]),
    "flatten": (lambda a: a.flatten(0, 1), [(4, 7, 10)]),
    "cat": (lambda a, b: torch.cat([a, b]), [(7, 10), (5, 10)]),
    "stack": (lambda a, b: torch.stack([a, b], 1), [(7, 10), (7, 10)]),
    "split": (lambda a: a.split(2)[1], [(7, 10)]),
    "index": (lambda a: a[torch.tensor([4, 0, 4], device=a.device)], [(7, 10)]),
    "slice": (lambda a: a[1:5, ::2], [(7, 10)]),
    "expand": (lambda a: a.unsqueeze(0).expand(5, 7, 10) * 2, [(7, 10)]),
    "tril": (torch.tril, [(7, 7)]),
    "conv2d": (lambda a, w: F.conv2d(a, w), [(4, 2, 6, 6), (3, 2, 3, 3)]),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [(4, 4, 6, 8)] * 3),
}


def run_operator(function: Callable[..., torch.Tensor], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The result and the inputs' gradients."""
    result = function(*inputs)
    (result * result).sum().backward()
    return [full(t) for t in (result, *(t.grad for t in inputs))]


def operator_fault(
    name: str,
    mesh: DeviceMesh,
    first: Placement,
    others: Placement,
    given: list[torch.Tensor],
    expected: list[torch.Tensor],
) -> str | None:
    """What is wrong with the operator where the first input and, as far as they have the dimension, the others are
    placed so.
    """
    wanted = [first] + [
        others if not isinstance(others, Shard) or others.dim < t.dim() else Replicate() for t in given[1:]
    ]
    placed = [
        distribute_tensor(t.to(mesh.device_type), mesh, [place]).requires_grad_()
        for t, place in zip(given, wanted, strict=True)
    ]
    try:
        with implicit_replication():  # the index tensor is plain
            results = run_operator(OPERATORS[name][0], placed)
        for actual, right in zip(results, expected, strict=True):
            torch.testing.assert_close(actual, right, rtol=1e-4, atol=1e-4)
    except Exception as error:  # noqa: BLE001
        return f"{name} {first} {others}: {type(error).__name__} {str(error)[:300]}"
    return None
