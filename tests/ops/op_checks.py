"""What is checked of one OpInfo entry: an operator and a dtype, with its sample inputs."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from op_call import DifferenceError, RefusedError, tensors_in
from op_case import Case, seed_everything

UNINITIALISED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
}
# Their tensor arguments are indices for the host, on other accelerators as well.
HOST_ARGUMENTS = {"tensor_split"}
# torch's kernel writes past the end of an out= whose matrices do not follow each other: the CPU's heap breaks, too.
OVERRUN_STRIDED_OUT = {"tril", "triu", "lu_unpack", "linalg.lu"}


class Entry:
    """Takes at most `most_samples`: of more, every second, third, …"""

    def __init__(self, op: Any, dtype: torch.dtype, most_samples: int) -> None:
        self.op = op
        self.dtype = dtype
        self.most_samples = most_samples
        self.passed: Counter[str] = Counter()
        self.inexact: Counter[str] = Counter()
        self.failures: list[dict[str, Any]] = []
        self.refusals: list[dict[str, Any]] = []

    def run(self) -> None:
        differentiable = self.op.supports_autograd and self.dtype in self.op.supported_backward_dtypes("cpu")
        for index, sample in self._samples(differentiable):
            case = self._case(sample)
            if differentiable:
                self._check("backward", index, lambda case=case: case.forward(grad=True))
            self._check("forward", index, lambda case=case: case.forward(grad=False))
            if _is_strided(sample):
                case = self._case(sample.noncontiguous())
                self._check("non-contiguous", index, lambda case=case: case.forward(grad=differentiable))
        for index, sample in self._samples(False):
            case = self._case(sample)
            if self.op.supports_out:
                strided = self.op.name not in OVERRUN_STRIDED_OUT
                self._check("out", index, functools.partial(case.out, strided=strided))
            if self.op.inplace_variant is not None and isinstance(sample.input, (torch.Tensor, list)):
                call = functools.partial(case.in_place, self.op.inplace_variant, grows=sample.broadcasts_input)
                self._check("in-place", index, call)
        if self.dtype == torch.float32 and self.op.error_inputs_func is not None:
            for index, error in enumerate(self.op.error_inputs("cpu")):
                case = Case(self.op, error.sample_input)
                self._check("errors", index, lambda case=case, error=error: case.error(error.error_regex))

    def run_derivatives(self) -> None:
        for index, sample in self._samples(True):
            case = self._case(sample)
            if self.op.supports_gradgrad:
                self._check("double backward", index, case.double_backward)
            if self.op.supports_forward_ad:
                self._check("forward mode", index, case.forward_mode)

    def _case(self, sample: Any) -> Case:
        name = self.op.name
        return Case(self.op, sample, uninitialised=name in UNINITIALISED, host_arguments=name in HOST_ARGUMENTS)

    def _samples(self, requires_grad: bool) -> Iterator[tuple[int, Any]]:
        seed_everything()
        samples = list(enumerate(self.op.sample_inputs("cpu", self.dtype, requires_grad=requires_grad)))
        return itertools.islice(samples, 0, None, 1 + (len(samples) - 1) // self.most_samples)

    def _check(self, kind: str, index: int, body: Callable[[], bool | None]) -> None:
        try:
            exact = body()
        except RefusedError as refusal:
            self.refusals.append({"kind": kind, "sample": index, "error": str(refusal)})
        except DifferenceError as difference:
            self.failures.append({"kind": kind, "sample": index, "error": str(difference)})
        else:
            self.passed[kind] += 1
            self.inexact[kind] += exact is False


def _is_strided(sample: Any) -> bool:
    return all(tensor.layout == torch.strided for tensor in tensors_in((sample.input, sample.args, sample.kwargs)))
