"""Operators of other libraries, whose kernels know the CPU only: in Python and in C++."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from comparison import assert_same
from torch.utils import cpp_extension

LIBRARY = "neuron_custom_tests"


@torch.library.custom_op(f"{LIBRARY}::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.from_numpy(x.numpy() * factor) if x.device.type == "cpu" else x * factor


scaled.register_fake(lambda x, factor: torch.empty_like(x))
scaled.register_autograd(
    lambda ctx, gradient: (gradient * ctx.factor, None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
)
scaled.register_vmap(lambda info, in_dims, x, factor: (scaled(x, factor), in_dims[0]))


@torch.library.custom_op(f"{LIBRARY}::add_in_place", mutates_args={"x"})
def add_in_place(x: torch.Tensor, amount: int) -> None:
    x += amount


def test_custom_op_with_gradient_and_transforms() -> None:
    results = []
    for device in ("cpu", "neuron"):
        x = torch.arange(4.0, device=device).requires_grad_()
        output = scaled(x * 2, 1.5)
        output.square().sum().backward()
        results.append([output.detach(), x.grad, torch.func.vmap(lambda row: scaled(row, 2.0))(x.detach()[None])])
    assert_same(results[1], results[0])


def test_custom_op_that_writes_to_its_argument(either_policy: bool) -> None:
    base = torch.zeros(4, device="neuron")
    add_in_place(base[1:3], 5)
    assert base.tolist() == [0, 5, 5, 0]
    assert base._version >= 1


def test_custom_op_in_a_captured_graph() -> None:
    function = torch.compile(lambda x: scaled(x, 3.0).sum(), backend="aot_eager", fullgraph=True)
    x = torch.ones(3, device="neuron", requires_grad=True)
    function(x).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3, 3, 3]


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    with torch.library._scoped_library(f"{LIBRARY}_plain", "FRAGMENT") as fragment:
        yield fragment


def test_python_kernels(library: torch.library.Library) -> None:
    """A list, an optional, several results, a device, a view: what schemas can say."""
    library.define("many(Tensor[] xs, Tensor? bias=None, *, Device? device=None) -> (Tensor, Tensor, int)")

    def many(
        xs: list[torch.Tensor], bias: torch.Tensor | None = None, *, device: torch.device | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, int]:
        assert device is None or device.type == "cpu"
        total = sum(xs[1:], xs[0])
        return total if bias is None else total + bias, xs[0], len(xs)

    library.impl("many", many, "CPU")
    xs = [torch.full((2,), float(value), device="neuron") for value in (1, 2, 3)]
    total, first, count = torch.ops.neuron_custom_tests_plain.many(xs, xs[2], device=torch.device("neuron"))
    assert (total.tolist(), first.tolist(), count) == ([9, 9], [1, 1], 3)
    assert total.device.type == first.device.type == "neuron"


def test_a_kernel_of_ones_own_for_the_device(library: torch.library.Library) -> None:
    library.define("where_am_i(Tensor x) -> str")
    library.impl("where_am_i", lambda x: "cpu", "CPU")
    library.impl("where_am_i", lambda x: "neuron", "PrivateUse1")
    assert torch.ops.neuron_custom_tests_plain.where_am_i(torch.ones(1, device="neuron")) == "neuron"


def test_errors_of_a_kernel_are_raised_at_the_call(library: torch.library.Library) -> None:
    library.define("fails(Tensor x) -> Tensor")

    def fails(x: torch.Tensor) -> torch.Tensor:
        raise LookupError("not here")

    library.impl("fails", fails, "CPU")
    with pytest.raises(LookupError, match="not here"):
        torch.ops.neuron_custom_tests_plain.fails(torch.ones(1, device="neuron"))
    assert torch.ones(2, device="neuron").sum().item() == 2


SOURCE = """
#include <torch/extension.h>
at::Tensor plus_index(const at::Tensor& x) {
  TORCH_CHECK(x.device().is_cpu(), "a CPU kernel was given ", x.device());
  at::Tensor out = at::empty(x.sizes(), x.options());
  const auto from = x.contiguous();
  for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = from.data_ptr<float>()[i] + i;
  return out;
}
void double_(at::Tensor x) { x.mul_(2); }
TORCH_LIBRARY(neuron_cpp_tests, m) {
  m.def("plus_index(Tensor x) -> Tensor");
  m.def("double_(Tensor(a!) x) -> ()");
}
TORCH_LIBRARY_IMPL(neuron_cpp_tests, CPU, m) {
  m.impl("plus_index", &plus_index);
  m.impl("double_", &double_);
}
"""


@pytest.mark.long
def test_kernels_in_cpp(tmp_path: Path) -> None:
    cpp_extension.load_inline(
        "neuron_cpp_tests", SOURCE, is_python_module=False, build_directory=str(tmp_path), extra_cflags=["-O0"]
    )
    x = torch.ones(2, 3, device="neuron")
    torch.ops.neuron_cpp_tests.double_(x[1])
    assert x.tolist() == [[1, 1, 1], [2, 2, 2]]
    result = torch.ops.neuron_cpp_tests.plus_index(x.t())
    assert result.device.type == "neuron"
    assert result.tolist() == [[1, 3], [3, 5], [5, 7]]
    assert torch.ops.neuron_cpp_tests.plus_index.default is not None


def test_an_operator_of_torchs_own_cpp_libraries() -> None:
    """A C++ kernel for the CPU outside of aten, as a library's would be."""
    x, weight = torch.ones(2, 3, device="neuron"), torch.full((4, 3), 2.0, device="neuron")
    result = torch.ops.mkldnn._linear_pointwise(x, weight, None, "relu", [], "")
    assert result.device.type == "neuron"
    assert result.eq(6).all().item()
