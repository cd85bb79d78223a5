"""Inputs that every rank can compute for every rank, and a plain reference for reductions.

Values are small whole numbers, exact in every type, so that results are compared with equality.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

INTEGERS = [
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]
ALL_TYPES = [*INTEGERS, *FLOATS, *COMPLEX, *FLOAT8, torch.bool]
ARITHMETIC_TYPES = [*INTEGERS, *FLOATS]

Op = dist.ReduceOp
ARITHMETIC = [Op.SUM, Op.AVG, Op.PRODUCT, Op.MIN, Op.MAX]
BITWISE = [Op.BAND, Op.BOR, Op.BXOR]


def values(rank: int, shape: tuple[int, ...], dtype: torch.dtype, salt: int = 0) -> torch.Tensor:
    """What `rank` puts in; on the CPU."""
    numel = 1
    for size in shape:
        numel *= size
    numbers = (torch.arange(numel) * 3 + 5 * rank + salt) % 7
    if dtype == torch.bool:
        return (numbers % 2 == 0).reshape(shape)
    if dtype.is_complex:
        return torch.complex(numbers.double(), (numbers * 2 - rank).double()).to(dtype).reshape(shape)
    if dtype not in (torch.uint8, torch.uint16, torch.uint32, torch.uint64):
        numbers = numbers - 3
    return numbers.to(dtype).reshape(shape)


def reduced(tensors: list[torch.Tensor], op: object) -> torch.Tensor:
    """The reduction of one tensor of each rank, in the type of the tensors."""
    dtype = tensors[0].dtype
    wide = torch.float64 if dtype.is_floating_point else torch.int64
    wide = torch.complex128 if dtype.is_complex else wide
    stack = torch.stack([tensor.to(wide) for tensor in tensors])
    if op == Op.SUM:
        out = stack.sum(0)
    elif op == Op.AVG:
        total = stack.sum(0)
        exact = dtype.is_floating_point or dtype.is_complex
        out = total / len(tensors) if exact else torch.div(total, len(tensors), rounding_mode="trunc")
        if dtype.is_complex:  # by parts: the division of complex numbers rounds more than once
            out = torch.view_as_complex(torch.view_as_real(total) / len(tensors))
    elif op == Op.PRODUCT:
        out = stack.prod(0)
    elif op == Op.MIN:
        out = stack.min(0).values
    elif op == Op.MAX:
        out = stack.max(0).values
    else:
        out = tensors[0].to(wide)
        for tensor in tensors[1:]:
            if op == Op.BAND:
                out = out & tensor.to(wide)
            elif op == Op.BOR:
                out = out | tensor.to(wide)
            else:
                out = out ^ tensor.to(wide)
    if dtype == torch.bool:
        return out != 0
    return out.to(dtype)


def assert_same(actual: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    actual = actual.detach().cpu()
    assert actual.dtype == expected.dtype, f"{what}: {actual.dtype} instead of {expected.dtype}"
    assert actual.shape == expected.shape, f"{what}: {tuple(actual.shape)} instead of {tuple(expected.shape)}"
    # float8 and the wide unsigned types lack comparison on the CPU: compare their bytes.
    mine, wanted = (t.contiguous().reshape(-1).view(torch.uint8) for t in (actual, expected))
    assert torch.equal(mine, wanted), f"{what}:\n{actual}\ninstead of\n{expected}"


def fails_with(kind: type[BaseException] | tuple[type[BaseException], ...], text: str, call: object) -> None:
    try:
        call()  # type: ignore[operator]
    except kind as error:
        assert text in str(error), f"{error!r} does not say {text!r}"
    else:
        raise AssertionError(f"no {kind} was raised")
