"""Comparing what the device computes with what the CPU computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch


class Twins:
    """Copies of tensors for one device, byte for byte: strides, offsets and lazy conj and neg bits stay, and tensors
    that share a storage share one there as well.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._kept: list[torch.Tensor] = []

    def of(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._of_tensor(value)
        if isinstance(value, (list, tuple)):
            return type(value)(self.of(element) for element in value)
        if isinstance(value, dict):
            return {key: self.of(element) for key, element in value.items()}
        return value

    def _of_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            storage = tensor.untyped_storage()
            self._kept.append(tensor)
            if storage.nbytes() == 0:  # all without memory look like one
                self._storages.pop(storage.data_ptr(), None)
            if storage.data_ptr() not in self._storages:
                raw = torch.empty(0, dtype=torch.uint8).set_(storage)
                self._storages[storage.data_ptr()] = (
                    torch.empty_like(raw, device=self._device).copy_(raw).untyped_storage()
                )
            twin = torch.empty(0, dtype=tensor.dtype, device=self._device)
            twin.set_(self._storages[storage.data_ptr()], tensor.storage_offset(), tensor.size(), tensor.stride())
            twin = twin.conj() if tensor.is_conj() else twin
            twin = torch._neg_view(twin) if tensor.is_neg() else twin
        return twin.requires_grad_() if tensor.requires_grad else twin


def assert_same(actual: Any, expected: Any, *, exact: bool = True, strides: bool = True, where: str = "result") -> None:
    """`actual`, on the device, is `expected`, on the CPU: type, dtype, shape, strides and values."""
    if isinstance(expected, torch.Tensor):
        assert isinstance(actual, torch.Tensor), where
        assert actual.device.type == "neuron", f"{where} is on {actual.device}"
        assert actual.dtype == expected.dtype, where
        assert actual.shape == expected.shape, where
        if strides:
            assert actual.stride() == expected.stride(), where
        assert actual.requires_grad == expected.requires_grad, where
        bounds = {"rtol": 0, "atol": 0} if exact else {}
        torch.testing.assert_close(
            actual.detach().cpu(), expected.detach(), equal_nan=True, msg=lambda text: f"{where}: {text}", **bounds
        )
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected), where
        for index, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
            assert_same(ours, theirs, exact=exact, strides=strides, where=f"{where}[{index}]")
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys(), where
        for key, theirs in expected.items():
            assert_same(actual[key], theirs, exact=exact, strides=strides, where=f"{where}[{key!r}]")
    else:
        assert actual == expected or (actual != actual and expected != expected), where


def assert_matches_cpu(
    function: Callable[..., Any], *arguments: Any, exact: bool = True, strides: bool = True, calls: int = 2
) -> None:
    """function(*arguments) gives the same on the device as on the CPU, and leaves its arguments the same.

    Called twice, so that the second call takes the plan of the first.
    """
    for _ in range(calls):
        on_cpu, on_device = Twins("cpu").of(arguments), Twins("neuron").of(arguments)
        expected = function(*on_cpu)
        actual = function(*on_device)
        assert_same(actual, expected, exact=exact, strides=strides)
        assert_same(on_device, on_cpu, exact=exact, strides=strides, where="arguments")


def assert_raises_as_cpu(function: Callable[..., Any], *arguments: Any, match: str | None = None) -> None:
    """function(*arguments) raises on the device, at the latest when it is synchronized, what it raises on the CPU."""
    with pytest.raises(Exception) as on_cpu:
        function(*Twins("cpu").of(arguments))
    with pytest.raises(on_cpu.type, match=match) as on_device:
        function(*Twins("neuron").of(arguments))
        torch.neuron.synchronize()
    assert on_device.type is on_cpu.type
