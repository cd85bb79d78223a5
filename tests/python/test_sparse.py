"""Sparse tensors (COO, CSR and its kin) on the device: the CPU's results, gradients, and layouts."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")

Call = Callable[[torch.Tensor, str], Any]


def coo(device: str) -> torch.Tensor:
    """With two values at one place, and one place out of order."""
    indices = torch.tensor([[0, 1, 1, 0, 0], [2, 2, 0, 2, 1]], device=device)
    return torch.sparse_coo_tensor(indices, torch.tensor([3.0, 4, 5, 6, 7], device=device), (2, 3))


def csr(device: str) -> torch.Tensor:
    return torch.sparse_csr_tensor(
        torch.tensor([0, 1, 3], device=device),
        torch.tensor([2, 0, 2], device=device),
        torch.tensor([3.0, 4, 5], device=device),
        (2, 3),
    )


def ones(device: str, *shape: int) -> torch.Tensor:
    return torch.ones(*shape, device=device)


def assert_alike(device: Any, cpu: Any) -> None:
    if isinstance(cpu, (list, tuple)):
        assert len(device) == len(cpu)
        for ours, theirs in zip(device, cpu, strict=True):
            assert_alike(ours, theirs)
    elif isinstance(cpu, torch.Tensor):
        assert device.device.type == "neuron"
        assert (device.layout, device.dtype, device.shape) == (cpu.layout, cpu.dtype, cpu.shape)
        if cpu.layout == torch.sparse_coo:
            assert device.is_coalesced() == cpu.is_coalesced()
            assert_alike((device._indices(), device._values()), (cpu._indices(), cpu._values()))
        torch.testing.assert_close(device.detach().cpu(), cpu.detach())
    else:
        assert device == cpu


OF_COO: dict[str, Call] = {
    "itself": lambda s, d: s,
    "coalesce": lambda s, d: s.coalesce(),
    "parts": lambda s, d: (s.coalesce().indices(), s.coalesce().values(), s._nnz(), s.sparse_dim(), s.dense_dim()),
    "to_dense": lambda s, d: s.to_dense(),
    "to_sparse": lambda s, d: s.to_dense().to_sparse(),
    "to_sparse_csr": lambda s, d: s.to_sparse_csr(),
    "clone and dtype": lambda s, d: (s.clone(), s.double(), torch.zeros_like(s), torch.empty_like(s)._nnz()),
    "mm": lambda s, d: (torch.sparse.mm(s, ones(d, 3, 2)), s @ ones(d, 3, 2), s @ ones(d, 3)),
    "addmm": lambda s, d: torch.addmm(ones(d, 2, 2), s, ones(d, 3, 2)),
    "sparse by sparse": lambda s, d: torch.sparse.mm(s, s.t()),
    "bmm": lambda s, d: torch.bmm(torch.stack([s, s]), ones(d, 2, 3, 2)),
    "arithmetic": lambda s, d: (s + s, s - s * 2, -s, s * s, s / 2, s.abs(), s.coalesce().pow(2)),
    "with dense": lambda s, d: (ones(d, 2, 3) + s, ones(d, 2, 3) * s, ones(d, 2, 3).sparse_mask(s.coalesce())),
    "sums": lambda s, d: (torch.sparse.sum(s), torch.sparse.sum(s, 1), s.sum(), s.norm()),
    "softmax": lambda s, d: (torch.sparse.softmax(s, 1), torch.sparse.log_softmax(s, 0)),
    "shapes": lambda s, d: (s.t(), s.unsqueeze(0), torch.cat([s, s], 1), s.transpose(0, 1), s.permute(1, 0)),
    "indexing": lambda s, d: (s[1], s.index_select(0, torch.tensor([1], device=d)), s.narrow_copy(1, 1, 2)),
    "dense in place": lambda s, d: ones(d, 2, 3).add_(s, alpha=2),
    "sparse in place": lambda s, d: (s.clone().add_(s), s.clone().sub_(s * 3), s.clone().mul_(2), s.clone().zero_()),
    "in place after a resize": lambda s, d: s.clone().sparse_resize_((4, 5), 2, 0),
    "copy_": lambda s, d: torch.zeros_like(s).copy_(s),
}
OF_CSR: dict[str, Call] = {
    "itself": lambda s, d: s,
    "parts": lambda s, d: (s.crow_indices(), s.col_indices(), s.values(), s._nnz()),
    "to_dense": lambda s, d: (s.to_dense(), s.to_sparse_coo()),
    "of dense": lambda s, d: (
        torch.eye(4, device=d).to_sparse_csr(),
        torch.eye(4, device=d).to_sparse_csc(),
        torch.eye(4, device=d).to_sparse_bsr((2, 2)),
    ),
    "products": lambda s, d: (s @ ones(d, 3, 2), s @ ones(d, 3), torch.addmm(ones(d, 2, 2), s, ones(d, 3, 2))),
    "sampled_addmm": lambda s, d: torch.sparse.sampled_addmm(s, ones(d, 2, 2), ones(d, 2, 3)),
    "arithmetic": lambda s, d: (s + s, s * 2, s.sin(), s.relu(), -s),
    "in place": lambda s, d: (s.clone().mul_(2), s.clone().zero_()),
    "clone": lambda s, d: s.clone(),
    "transposed": lambda s, d: s.t(),
}


@pytest.mark.parametrize("call", OF_COO.values(), ids=OF_COO.keys())
def test_coo(call: Call) -> None:
    assert_alike(call(coo("neuron"), "neuron"), call(coo("cpu"), "cpu"))


@pytest.mark.parametrize("call", OF_CSR.values(), ids=OF_CSR.keys())
def test_csr(call: Call) -> None:
    assert_alike(call(csr("neuron"), "neuron"), call(csr("cpu"), "cpu"))


@pytest.mark.parametrize("make", [coo, csr])
def test_moves_saves_and_prints(make: Callable[[str], torch.Tensor]) -> None:
    moved = make("cpu").to("neuron")
    assert_alike(moved, make("cpu"))
    assert "device='neuron:0'" in repr(moved)
    file = io.BytesIO()
    torch.save(moved, file)
    file.seek(0)
    assert_alike(torch.load(file), make("cpu"))


def gradients_of_products(device: str) -> list[Any]:
    values = torch.tensor([3.0, 4, 5], device=device, requires_grad=True)
    weight = torch.ones(3, 2, device=device, requires_grad=True)
    dense = torch.eye(3, device=device).requires_grad_()
    matrix = torch.sparse_coo_tensor(torch.tensor([[0, 1, 1], [2, 0, 2]], device=device), values, (2, 3))
    torch.sparse.mm(matrix, weight).square().sum().backward()
    (dense.to_sparse().to_dense() * 3).sum().backward()
    return [values.grad, weight.grad, dense.grad]


def test_gradients() -> None:
    assert_alike(gradients_of_products("neuron"), gradients_of_products("cpu"))


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_gradients_of_reducing_products(reduce: str) -> None:
    """The kernel says which element won only when a gradient is wanted."""
    for of_matrix, of_dense in ((True, True), (True, False), (False, True)):
        gradients = []
        for device in ("neuron", "cpu"):
            matrix = csr(device).requires_grad_(of_matrix)
            dense = (torch.arange(6.0).view(3, 2).to(device) - 3).requires_grad_(of_dense)
            torch.sparse.mm(matrix, dense, reduce).square().sum().backward()
            gradients.append([leaf.grad for leaf in (matrix, dense) if leaf.requires_grad])
        assert_alike(*gradients)


def train_embedding(device: str, make: Callable[..., torch.optim.Optimizer], **options: float) -> list[Any]:
    torch.manual_seed(0)
    table = nn.Embedding(10, 4, sparse=True).to(device)
    optimizer = make(table.parameters(), **options)
    for step in range(4):
        table(torch.tensor([1, 2, 2, 7], device=device)).square().sum().backward()
        if step % 2:  # gradients of two steps are summed
            optimizer.step()
            optimizer.zero_grad(set_to_none=step == 1)
    return [table.weight]


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (torch.optim.SparseAdam, {"lr": 0.1}),
        (torch.optim.SGD, {"lr": 0.1}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (torch.optim.Adagrad, {"lr": 0.1}),
    ],
)
def test_sparse_embedding_trains(make: Callable[..., torch.optim.Optimizer], options: dict[str, float]) -> None:
    assert_alike(train_embedding("neuron", make, **options), train_embedding("cpu", make, **options))


def test_gradient_of_a_sparse_embedding_bag() -> None:
    gradients = []
    for device in ("neuron", "cpu"):
        weight = torch.ones(10, 4, device=device).requires_grad_()
        index, offsets = torch.tensor([1, 2, 2, 7], device=device), torch.tensor([0, 2], device=device)
        F.embedding_bag(index, weight, offsets, sparse=True, mode="sum").square().sum().backward()
        gradients.append(weight.grad)
    assert_alike(*gradients)


def test_the_parts_are_the_tensors_own() -> None:
    values = torch.ones(2, device="neuron")
    matrix = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]], device="neuron"), values, (2, 2))
    values.mul_(3)
    assert matrix.to_dense().tolist() == [[0, 3], [3, 0]]
    matrix._values().add_(1)
    assert values.tolist() == [4, 4]
    matrix.mul_(2)
    assert matrix.to_dense().tolist() == [[0, 8], [8, 0]]


def test_an_operator_that_the_cpu_has_not_for_sparse_tensors() -> None:
    for make in (coo, csr):
        with pytest.raises(NotImplementedError, match=r"aten::\S+: neuron runs PyTorch's kernels.*for sparse tensors"):
            make("neuron").cumsum(0)
    assert coo("neuron").to_dense().sum().item() == 25
