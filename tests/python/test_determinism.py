"""torch.use_deterministic_algorithms: the CPU's rules, on the device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from comparison import assert_matches_cpu, assert_raises_as_cpu


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_what_has_no_deterministic_form_is_refused() -> None:
    assert_raises_as_cpu(
        lambda x, i: x.clone().put_(i, x.new_ones(2)),
        torch.zeros(4),
        torch.tensor([0, 1]),
        match="deterministic",
    )


def test_warnings_only() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match="put_ does not have a deterministic implementation"):
        torch.zeros(4, device="neuron").put_(torch.tensor([0, 1], device="neuron"), torch.ones(2, device="neuron"))
        torch.neuron.synchronize()


def test_new_memory_is_filled(either_policy: bool) -> None:
    assert torch.empty(5, device="neuron").isnan().all().item()
    assert torch.empty(5, dtype=torch.int32, device="neuron").eq(torch.iinfo(torch.int32).max).all().item()
    assert torch.zeros(2, device="neuron").new_empty(3).isnan().all().item()
    grown = torch.zeros(2, device="neuron").resize_(4)
    assert grown[2:].isnan().all().item()


def test_accumulations_and_their_gradients(either_policy: bool) -> None:
    index = torch.tensor([0, 1, 1, 0, 1])

    def accumulate(x: torch.Tensor, index: torch.Tensor) -> list[torch.Tensor]:
        leaf = x.detach().clone().requires_grad_()
        results = [
            leaf.index_add(0, index, leaf),
            leaf.index_put((index,), leaf, accumulate=True),
            leaf.scatter_add(0, index, leaf),
            leaf[index],
            leaf.cumsum(0),
        ]
        sum(result.square().sum() for result in results).backward()
        return [*(result.detach() for result in results), leaf.grad]

    assert_matches_cpu(accumulate, torch.arange(5.0), index)
