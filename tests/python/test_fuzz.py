"""Random programs (programs.py) leave the same bits on the device as on the CPU, queued or inline, however streams
interleave.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from programs import SHAPES, STEPS, Machine, Step


def check(shapes: list[tuple[int, ...]], steps: list[Step]) -> None:
    expected, told_by_cpu = Machine("cpu").run(shapes, steps)
    raising = frozenset(index for index, what in enumerate(told_by_cpu) if isinstance(what, str))
    actual, told = Machine("neuron").run(shapes, steps, raising)
    assert repr(told) == repr(told_by_cpu)  # NaN is itself here
    assert len(actual) == len(expected)
    for index, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, index
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True, msg=lambda t, i=index: f"[{i}]: {t}")


COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]}


@settings(max_examples=150, derandomize=True, **COMMON)
@given(shapes=SHAPES, steps=STEPS)
def test_programs(either_policy: bool, shapes: list[tuple[int, ...]], steps: list[Step]) -> None:
    check(shapes, steps)


@pytest.mark.long
@settings(max_examples=5000, derandomize=True, **COMMON)
@given(shapes=SHAPES, steps=STEPS)
def test_many_programs(queued: bool, shapes: list[tuple[int, ...]], steps: list[Step]) -> None:
    check(shapes, steps)
