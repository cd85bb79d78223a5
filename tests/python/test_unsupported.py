"""What the device does not do is refused with the operator's name, the device's, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch


def on_device(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, device="neuron")


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "quantize": (
        lambda: torch.quantize_per_tensor(on_device(3), 0.1, 0, torch.qint8),
        r"aten::quantize_per_tensor: neuron does not take quantized tensors.*\.dequantize\(\)",
    ),
    "quantized_moves": (
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8).to("neuron"),
        r"aten::empty_quantized: neuron does not take quantized",
    ),
    "mkldnn": (lambda: on_device(2, 2).to_mkldnn(), r"aten::to_mkldnn: neuron does not take mkldnn"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_by_name(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(NotImplementedError, match=message):
        call()
    assert on_device(3).sum().item() == 3


def test_an_operator_without_a_cpu_kernel() -> None:
    with torch.library._scoped_library("neuron_tests", "DEF") as library:
        library.define("only_cuda(Tensor x) -> Tensor")
        library.impl("only_cuda", lambda x: x, "CUDA")
        with pytest.raises(
            NotImplementedError, match=r"neuron_tests::only_cuda: neuron runs PyTorch's kernels for the CPU"
        ):
            torch.ops.neuron_tests.only_cuda(on_device(2))
        library.impl("only_cuda", lambda x: x + 1, "CPU")
        assert torch.ops.neuron_tests.only_cuda(on_device(2)).tolist() == [2, 2]
