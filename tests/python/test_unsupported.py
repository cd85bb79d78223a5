"""What the device does not do is refused with the operator's name, the device's, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from comparison import assert_same


def on_device(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, device="neuron")


def csr() -> torch.Tensor:
    return torch.eye(3).to_sparse_csr().to("neuron")


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "sparse_factory": (
        lambda: torch.sparse_coo_tensor(on_device(2, 1).long(), on_device(1), (2, 2)),
        r"aten::_sparse_coo_tensor_with_dims_and_tensors: neuron does not take sparse tensors.*\.to_dense\(\)",
    ),
    "to_sparse": (lambda: on_device(2, 2).to_sparse(), r"aten::_to_sparse: neuron does not take sparse"),
    "sparse_moves": (lambda: torch.eye(2).to_sparse().to("neuron"), r"neuron does not take sparse"),
    "sparse_embedding": (
        lambda: F.embedding(on_device(2).long(), on_device(3, 2).requires_grad_(), sparse=True).sum().backward(),
        r"neuron does not take sparse",
    ),
    "sparse_embedding_bag": (
        lambda: (
            F.embedding_bag(
                on_device(2).long(),
                on_device(3, 2).requires_grad_(),
                on_device(1).long() * 0,
                sparse=True,
                mode="sum",
            )
            .sum()
            .backward()
        ),
        r"aten::_embedding_bag_backward: neuron does not take sparse",
    ),
    "csr_moves_back": (lambda: csr().cpu(), r"aten::\S+: neuron does not take sparse"),
    "csr_mm": (lambda: csr() @ on_device(3, 3), r"aten::\S+: neuron does not take sparse"),
    "csr_prints": (lambda: str(csr()), r"aten::\S+: neuron does not take sparse"),
    "nested_strided": (
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]).to("neuron"),
        r"aten::_to_copy: neuron does not take nested tensors.*torch\.jagged",
    ),
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


def jagged(device: str) -> torch.Tensor:
    parts = [torch.arange(4.0 * length).view(length, 4).to(device) / 8 for length in (2, 3)]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, device=device, requires_grad=True)


def test_jagged_tensors_run() -> None:
    results = []
    for device in ("cpu", "neuron"):
        value, weight = jagged(device), torch.full((4, 4), 0.25, device=device)
        output = F.layer_norm(F.gelu(F.linear(value, weight)) + value, (4,))
        output.values().square().sum().backward()
        results.append([output.values().detach(), value.grad.values()])
    assert_same(results[1], results[0])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", ["jagged", "strided"])
def test_nested_tensors_of_the_strided_layout(layout: str) -> None:
    """Attention of jagged ones makes such a tensor."""
    query = jagged("neuron").unflatten(-1, [2, 2]).transpose(1, 2)
    with pytest.raises(
        RuntimeError, match=r"aten::_nested_tensor_from_tensor_list: neuron does not take nested tensors"
    ):
        if layout == "jagged":
            F.scaled_dot_product_attention(query, query, query)
        else:
            torch.nested.as_nested_tensor([on_device(2).requires_grad_()])


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
