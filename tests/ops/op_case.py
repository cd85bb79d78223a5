"""One sample input of an operator, called on the CPU and on the device in all its forms, and compared."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.autograd.forward_ad as forward_ad
from op_call import (
    DifferenceError,
    SampleTwins,
    attempt,
    compare,
    compare_aliasing,
    identical,
    judge_errors,
    map_tensors,
    tensors_in,
)
from torch.utils._python_dispatch import TorchDispatchMode

SEED = 1234


def seed_everything() -> None:
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)


class Side:
    """Fresh twins of a sample on one device, to be called once. `host_arguments`: all but the first stay on the CPU."""

    def __init__(self, kind: str, sample: Any, *, host_arguments: bool = False) -> None:
        self.kind = kind
        twins, arguments = SampleTwins(kind), SampleTwins("cpu" if host_arguments else kind)
        self.inputs = (twins.of(sample[0]), arguments.of(sample[1]), arguments.of(sample[2]))

    def call(self, function: Callable[..., Any], **more: Any) -> Any:
        first, args, kwargs = self.inputs
        seed_everything()
        with self._default_device(kwargs):
            return function(first, *args, **kwargs, **more)

    def _default_device(self, kwargs: dict[str, Any]) -> Any:
        """A factory's sample need not name a device."""
        named = "device" in kwargs or next(tensors_in(self.inputs), None) is not None
        return contextlib.nullcontext() if named else torch.device(self.kind)


class DrawsSeen(TorchDispatchMode):
    """Notes whether an operator moved the CPU's generator on. (Samples may put the old state back afterwards.)"""

    def __init__(self) -> None:
        super().__init__()
        self.any = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        before = torch.get_rng_state()
        result = func(*args, **(kwargs or {}))
        self.any = self.any or not torch.equal(before, torch.get_rng_state())
        return result


class Case:
    """Each form gives True: bit for bit the CPU's; False: close; None: nothing to compare, as it raises on both sides.

    It raises DifferenceError or RefusedError.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        sample: Any,
        *,
        uninitialised: bool = False,
        host_arguments: bool = False,
    ) -> None:
        self.function = function
        self.host_arguments = host_arguments
        self.sample = (sample.input, tuple(sample.args), dict(sample.kwargs))
        self.process = getattr(sample, "output_process_fn_grad", None) or (lambda output: output)
        self.draws = self._draws()
        # Of random numbers and of memory as it was found only type, shape and strides can be compared.
        self.metadata_only = uninitialised or self.draws

    def _sides(self) -> tuple[Side, Side]:
        return Side("cpu", self.sample), Side("neuron", self.sample, host_arguments=self.host_arguments)

    def _draws(self) -> bool:
        side = Side("cpu", self.sample)
        with torch.no_grad(), DrawsSeen() as seen:
            outcome = attempt(lambda: side.call(self.function))
        return outcome.error is None and seen.any

    def forward(self, *, grad: bool) -> bool | None:
        """With `grad` its gradients, too."""
        on_cpu, on_device = self._sides()
        with torch.set_grad_enabled(grad):
            cpu = attempt(lambda: on_cpu.call(self.function))
            device = attempt(lambda: on_device.call(self.function))
        if not judge_errors(device, cpu):
            return None
        exact = compare(device.value, cpu.value, metadata_only=self.metadata_only)
        compare_aliasing(device.value, on_device.inputs, cpu.value, on_cpu.inputs)
        if not self.metadata_only:
            taken = 1 if self.host_arguments else None
            exact &= compare(on_device.inputs[:taken], on_cpu.inputs[:taken], where="arguments")
        elif self.draws:
            self._check_repeats(device.value)
        if grad:
            exact &= self._backward(device.value, on_device.inputs, cpu.value, on_cpu.inputs)
        return exact

    def _check_repeats(self, value: Any) -> None:
        _, again_on_device = self._sides()
        again = again_on_device.call(self.function)
        for first, second in zip(tensors_in(value), tensors_in(again), strict=True):
            if not identical(first, second):
                raise DifferenceError("the same seed gives other numbers")

    def _backward(self, device: Any, device_inputs: Any, cpu: Any, cpu_inputs: Any) -> bool:
        ours, theirs = ([t for t in tensors_in(self.process(side)) if t.requires_grad] for side in (device, cpu))
        leaves, cpu_leaves = (
            [t for t in tensors_in(side) if t.requires_grad and t.is_leaf] for side in (device_inputs, cpu_inputs)
        )
        if not theirs or not cpu_leaves:
            return True
        generator = torch.Generator().manual_seed(SEED)
        grads = [_gradient(tensor, generator) for tensor in theirs]
        on_device = [grad.to("neuron") for grad in grads]
        cpu_result = attempt(lambda: torch.autograd.grad(theirs, cpu_leaves, grads, allow_unused=True))
        result = attempt(lambda: torch.autograd.grad(ours, leaves, on_device, allow_unused=True))
        if not judge_errors(result, cpu_result):
            return True
        return compare(result.value, cpu_result.value, metadata_only=self.metadata_only, where="gradient")

    def double_backward(self) -> bool | None:
        """Gradients of gradients, with respect to inputs and to what the first backward was given."""
        on_cpu, on_device = self._sides()
        # Nodes are numbered by thread: autograd's own thread for the device would visit those of the first backward in
        # another order, and gradients of the same values might be summed in other strides.
        with torch.autograd.set_multithreading_enabled(False):
            cpu = attempt(lambda: self._second_gradients(on_cpu))
            device = attempt(lambda: self._second_gradients(on_device))
        if not judge_errors(device, cpu):
            return None
        return compare(device.value, cpu.value, metadata_only=self.metadata_only, where="second gradient")

    def _second_gradients(self, side: Side) -> Any:
        outputs = [t for t in tensors_in(self.process(side.call(self.function))) if t.requires_grad]
        leaves = [t for t in tensors_in(side.inputs) if t.requires_grad and t.is_leaf]
        generator = torch.Generator().manual_seed(SEED)
        given = [_gradient(tensor, generator).to(side.kind).requires_grad_() for tensor in outputs]
        if not outputs or not leaves:
            return []
        first = torch.autograd.grad(outputs, leaves, given, create_graph=True, allow_unused=True)
        first = [gradient for gradient in first if gradient is not None and gradient.requires_grad]
        if not first:
            return []
        seeds = [_gradient(tensor, generator).to(side.kind) for tensor in first]
        return torch.autograd.grad(first, [*leaves, *given], seeds, allow_unused=True)

    def forward_mode(self) -> bool | None:
        on_cpu, on_device = self._sides()
        cpu = attempt(lambda: self._tangents(on_cpu))
        device = attempt(lambda: self._tangents(on_device))
        if not judge_errors(device, cpu):
            return None
        return compare(device.value, cpu.value, metadata_only=self.metadata_only, where="tangent")

    def _tangents(self, side: Side) -> Any:
        generator = torch.Generator().manual_seed(SEED)

        def dual(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.requires_grad:
                return tensor
            return forward_ad.make_dual(tensor.detach(), _gradient(tensor, generator).to(side.kind))

        with forward_ad.dual_level():
            side.inputs = map_tensors(side.inputs, dual)
            outputs = tensors_in(self.process(side.call(self.function)))
            return [forward_ad.unpack_dual(output).tangent for output in outputs if output.is_floating_point()]

    @torch.no_grad()
    def out(self, *, strided: bool) -> bool | None:
        """out= as the call would make it, without elements, and (`strided`) with other strides."""
        expected = attempt(lambda: Side("cpu", self.sample).call(self.function))
        results = expected.value if isinstance(expected.value, (tuple, list)) else (expected.value,)
        if expected.error is not None or not all(isinstance(result, torch.Tensor) for result in results):
            return None
        exact = True
        for make in (_alike, _empty, _transposed) if strided else (_alike, _empty):
            exact &= self._out_form(expected.value, make)
        return exact

    def _out_form(self, expected: Any, make: Callable[[torch.Tensor], torch.Tensor]) -> bool:
        single = isinstance(expected, torch.Tensor)
        made = [make(expected)] if single else [make(tensor) for tensor in expected]
        on_cpu, on_device = self._sides()
        cpu_out, out = SampleTwins("cpu").of(made), SampleTwins("neuron").of(made)
        cpu = attempt(lambda: on_cpu.call(self.function, out=cpu_out[0] if single else tuple(cpu_out)))
        device = attempt(lambda: on_device.call(self.function, out=out[0] if single else tuple(out)))
        where = f"out= ({make.__name__.strip('_')})"
        if not judge_errors(device, cpu, where):
            return True
        returned = list(tensors_in(device.value))
        if any(ours is not given for ours, given in zip(returned, out, strict=bool(returned))):
            raise DifferenceError(f"{where} is not what the call returns")
        return compare(out, cpu_out, metadata_only=self.metadata_only, where=where)

    @torch.no_grad()
    def in_place(self, function: Callable[..., Any], *, grows: bool) -> bool | None:
        on_cpu, on_device = self._sides()
        cpu = attempt(lambda: on_cpu.call(function))
        device = attempt(lambda: on_device.call(function))
        if grows and device.error is not None and cpu.error is None:
            return None  # to be an error; a few CPU kernels resize the operand
        if not judge_errors(device, cpu):
            return None
        target, cpu_target = on_device.inputs[0], on_cpu.inputs[0]
        if (device.value is target) != (cpu.value is cpu_target):
            raise DifferenceError("the in-place form does not return its argument")
        return compare(target, cpu_target, metadata_only=self.metadata_only, where="self")

    def error(self, pattern: str) -> bool | None:
        """A wrong call: the same type of error, and a message that says what the CPU's says."""
        on_cpu, on_device = self._sides()
        cpu = attempt(lambda: on_cpu.call(self.function))
        device = attempt(lambda: on_device.call(self.function))
        if judge_errors(device, cpu):
            return None
        if re.search(pattern, str(cpu.error)) and not re.search(pattern, str(device.error)):
            raise DifferenceError(f"the CPU says: {cpu.error}; the device: {device.error}")
        return True


def _gradient(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    dtype = tensor.dtype if tensor.is_complex() else torch.float32
    return torch.randn(tensor.shape, generator=generator, dtype=dtype).to(tensor.dtype)


def _alike(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, requires_grad=False).fill_(1)


def _empty(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=tensor.dtype)


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    made = torch.empty(tensor.shape[::-1], dtype=tensor.dtype).fill_(1)
    return made.permute(tuple(range(tensor.dim() - 1, -1, -1)))
