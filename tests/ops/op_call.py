"""Calls of one sample input on the CPU and on the device, and what differs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from comparison import Twins


class DifferenceError(Exception):
    """What the device did is not what the CPU did."""


class RefusedError(Exception):
    """The device said that it does not do this, by name."""


@dataclass
class Outcome:
    value: Any = None
    error: Exception | None = None


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from tensors_in(element)
    elif isinstance(value, dict):
        for element in value.values():
            yield from tensors_in(element)


def map_tensors(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(element, function) for element in value))
    if type(value) in (list, tuple):
        return type(value)(map_tensors(element, function) for element in value)
    if type(value) is dict:
        return {key: map_tensors(element, function) for key, element in value.items()}
    return value


def settle() -> None:
    """Waits for the device; raises what a command raised. Afterwards no error is left."""
    first: Exception | None = None
    for _ in range(100):
        try:
            torch.neuron.synchronize()
            break
        except Exception as error:  # noqa: BLE001  (whatever a kernel may throw)
            first = first or error
    if first is not None:
        raise first


def attempt(call: Callable[[], Any]) -> Outcome:
    try:
        value = call()
        settle()
    except Exception as error:  # noqa: BLE001
        with contextlib.suppress(Exception):
            settle()
        return Outcome(error=error)
    return Outcome(value)


class SampleTwins(Twins):
    """Twins of everything that a sample may hold: devices and tensors that are not strided, too."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self._kind = device

    def of(self, value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device(self._kind)
        if value == "cpu" and isinstance(value, str):
            return self._kind
        if isinstance(value, torch.Generator):
            return torch.Generator(self._kind).manual_seed(value.initial_seed())
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self.of(element) for element in value))
        if isinstance(value, torch.Size):
            return value
        return super().of(value)

    def _of_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type != "cpu":
            return tensor  # of a call that mixes devices
        if tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_quantized:
            return super()._of_tensor(tensor)
        copy = tensor.detach().clone() if self._kind == "cpu" else tensor.detach().to(self._kind)
        return copy.requires_grad_() if tensor.requires_grad else copy


def judge_errors(device: Outcome, cpu: Outcome, where: str = "") -> bool:
    """True when both succeeded; False when both failed alike. Raises DifferenceError or RefusedError otherwise."""
    if device.error is None and cpu.error is None:
        return True
    before = f"{where}: " if where else ""
    if device.error is None:
        raise DifferenceError(f"{before}the CPU raises {_described(cpu.error)}; the device does not")
    if cpu.error is None:
        text = f"{before}the device raises {_described(device.error)}"
        raise RefusedError(text) if _is_refusal(device.error) else DifferenceError(text)
    if type(device.error) is not type(cpu.error):
        raise DifferenceError(f"{before}the CPU raises {_described(cpu.error)}; the device {_described(device.error)}")
    return False


def _described(error: Exception | None) -> str:
    return f"{type(error).__name__}: {str(error)[:500]}"


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, NotImplementedError) and ": neuron " in str(error)


def _where(tensor: torch.Tensor, inputs: list[torch.Tensor]) -> list[tuple[int, int]]:
    """Which inputs the tensor shares memory with, and where in it it begins."""
    if tensor.layout != torch.strided or tensor.numel() == 0:
        return []
    storage = tensor.untyped_storage().data_ptr()
    return [
        (index, tensor.storage_offset())
        for index, other in enumerate(inputs)
        if other.layout == torch.strided and other.untyped_storage().data_ptr() == storage
    ]


def compare(device: Any, cpu: Any, *, metadata_only: bool = False, where: str = "result") -> bool:
    """Raises DifferenceError. True: bit for bit the same."""
    if isinstance(cpu, torch.Tensor):
        return _compare_tensors(device, cpu, metadata_only=metadata_only, where=where)
    if isinstance(cpu, (list, tuple, dict)) and not isinstance(cpu, torch.Size):
        if type(device) is not type(cpu) or len(device) != len(cpu):
            raise DifferenceError(f"{where}: {device!r}, CPU {cpu!r}")
        exact = True
        for key in cpu if isinstance(cpu, dict) else range(len(cpu)):
            exact &= compare(device[key], cpu[key], metadata_only=metadata_only, where=f"{where}[{key!r}]")
        return exact
    if isinstance(cpu, torch.device) or cpu == "cpu" or metadata_only:
        return True
    if device != cpu and not (device != device and cpu != cpu):
        raise DifferenceError(f"{where}: {device!r}, CPU {cpu!r}")
    return True


def _compare_tensors(device: Any, cpu: torch.Tensor, *, metadata_only: bool, where: str) -> bool:
    if not isinstance(device, torch.Tensor):
        raise DifferenceError(f"{where}: {type(device).__name__}, CPU Tensor")
    if device.device.type != "neuron":
        raise DifferenceError(f"{where} is on {device.device}")
    for name in ("dtype", "shape", "layout", "requires_grad"):
        ours, theirs = getattr(device, name), getattr(cpu, name)
        if ours != theirs:
            raise DifferenceError(f"{where}: {name} {ours}, CPU {theirs}")
    if cpu.layout == torch.strided and cpu.numel() > 0 and device.stride() != cpu.stride():
        raise DifferenceError(f"{where}: strides {device.stride()}, CPU {cpu.stride()} (shape {tuple(cpu.shape)})")
    if metadata_only:
        return True
    if identical(device, cpu):
        return True
    try:
        torch.testing.assert_close(device.detach().cpu(), cpu.detach(), equal_nan=True)
    except AssertionError as error:
        raise DifferenceError(f"{where}: {' '.join(str(error).split())}") from None
    return False


def identical(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Bit for bit, NaNs included."""
    if theirs.layout != torch.strided:
        return False
    first, second = (
        t.detach().cpu().resolve_conj().resolve_neg().reshape(-1).clone(memory_format=torch.contiguous_format)
        for t in (ours, theirs)
    )
    return torch.equal(first.view(torch.uint8), second.view(torch.uint8))


def compare_aliasing(device: Any, device_inputs: Any, cpu: Any, cpu_inputs: Any) -> None:
    ours, theirs = list(tensors_in(device_inputs)), list(tensors_in(cpu_inputs))
    for index, (a, b) in enumerate(zip(tensors_in(device), tensors_in(cpu), strict=True)):
        if _where(a, ours) != _where(b, theirs):
            raise DifferenceError(
                f"result[{index}] shares memory with inputs (and offset) {_where(a, ours)}, CPU {_where(b, theirs)}"
            )
        if _where(b, theirs) and (a.is_conj(), a.is_neg()) != (b.is_conj(), b.is_neg()):
            raise DifferenceError(f"result[{index}], a view, is not as lazily conjugated or negated as the CPU's")
