"""What a tensor prints as: the CPU's text, and where it is. And what will not turn into an array."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.bool,
    torch.complex128,
    torch.complex64,
    torch.complex32,
]


def text_without_device(tensor: torch.Tensor) -> str:
    """The line may break before or after what tells the device."""
    text, found = re.subn(r",\s+device='neuron:0'", "", repr(tensor))
    assert found == 1
    return " ".join(text.split())


def text_of(tensor: torch.Tensor) -> str:
    return " ".join(repr(tensor).split())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 2), (2000,)], ids=str)
def test_dtypes(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    host = torch.arange(float(torch.Size(shape).numel())).remainder(5).view(shape).to(dtype)
    assert text_without_device(host.to("neuron")) == text_of(host)


@pytest.mark.parametrize(
    "values",
    [
        [float("nan"), 1.0],
        [float("inf"), -float("inf"), 0.5],
        [-0.0, 0.0],
        [1e-8, 1e8, 1.0],
        [1e10, 2.5],
        [1e-40],
        [complex(float("nan"), 1), complex(1e-8, -float("inf"))],
    ],
    ids=str,
)
def test_special_values(values: list[complex]) -> None:
    host = torch.tensor(values)
    assert text_without_device(host.to("neuron")) == text_of(host)


def test_kinds_of_tensors() -> None:
    host = torch.tensor([1 + 2j, 3 - 1j])
    views: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda x: x.conj(),
        lambda x: x.conj().imag,
        lambda x: x[::2],
        lambda x: x.real.requires_grad_() * 2,
    ]
    for view in views:
        assert text_without_device(view(host.to("neuron"))) == text_of(view(host))
    parameter = torch.nn.Parameter(torch.ones(2, device="neuron"))
    assert repr(parameter).startswith("Parameter containing:\ntensor([1., 1.], device='neuron:0', requires_grad=True)")
    assert "device='neuron:1'" in repr(torch.ones(1, device="neuron:1"))
    with torch.device("neuron"):
        assert "device" in repr(torch.ones(1))
    assert "device=neuron:0" in repr(torch.ones(2, device="neuron").untyped_storage())


def test_print_options() -> None:
    host = torch.arange(5000.0) / 3
    torch.set_printoptions(precision=2, threshold=10, edgeitems=2)
    try:
        assert text_without_device(host.to("neuron")) == text_of(host)
    finally:
        torch.set_printoptions(profile="default")


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.numpy(),
        lambda x: np.asarray(x),
        lambda x: np.array(x),
        lambda x: np.add(x, 1),
        lambda x: torch.tensor(3) in np.zeros(3) or np.stack([x, x]),
    ],
    ids=["numpy", "asarray", "array", "ufunc", "stack"],
)
def test_arrays_are_refused(convert: Callable[[torch.Tensor], object]) -> None:
    with pytest.raises(TypeError, match=r"can't convert neuron:0 device type tensor to numpy. Use Tensor\.cpu\(\)"):
        convert(torch.ones(2, device="neuron"))


def test_arrays_that_are_asked_for() -> None:
    x = torch.arange(3.0, device="neuron", requires_grad=True)
    assert x.numpy(force=True).tolist() == [0, 1, 2]
    assert x.detach().cpu().numpy().tolist() == [0, 1, 2]
    assert np.array(x.tolist()).sum() == 3
    moved = torch.from_numpy(np.ones(3, np.float32)).to("neuron")
    assert (moved + x.detach()).tolist() == [1, 2, 3]
