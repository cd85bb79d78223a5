"""torch.func's transforms and forward-mode derivatives give what they give on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn as nn
import torch.nn.functional as F
from comparison import Twins, assert_same
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, stack_module_state, vjp, vmap


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))


def per_sample_gradients(x: torch.Tensor, labels: torch.Tensor) -> Any:
    model = small_model().to(x.device)
    weights = {name: weight.detach() for name, weight in model.named_parameters()}

    def loss(weights: dict[str, torch.Tensor], x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(model, weights, (x[None],)), label[None])

    return vmap(grad(loss), (None, 0, 0))(weights, x, labels)


def ensemble(x: torch.Tensor) -> torch.Tensor:
    models = [small_model().to(x.device) for _ in range(3)]
    weights, buffers = stack_module_state(models)
    skeleton = small_model().to("meta")
    outputs: torch.Tensor = vmap(lambda w, b: functional_call(skeleton, (w, b), (x,)))(weights, buffers)
    return outputs.detach()


def dual(x: torch.Tensor) -> Any:
    with forward_ad.dual_level():
        value = F.softmax(forward_ad.make_dual(x, x + 1), -1) @ x.T
        return tuple(forward_ad.unpack_dual(value))


def cubed(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() ** 3).sum()


CASES: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "grad": (grad(cubed), [rand(4)]),
    "grad of grad": (grad(lambda x: grad(cubed)(x).square().sum()), [rand(4)]),
    "vmap": (vmap(torch.mv), [rand(5, 3, 4), rand(5, 4)]),
    "vmap of a convolution": (
        lambda x, w: vmap(lambda one: F.conv2d(one, w))(x),
        [rand(3, 2, 3, 8, 8), rand(4, 3, 3, 3)],
    ),
    "vmap with in-place": (vmap(lambda x: x.clone().mul_(2).sort().values), [rand(3, 5)]),
    "vmap over indexing": (vmap(lambda x, i: x.gather(0, i)), [rand(3, 5), torch.tensor([[0, 4], [1, 1], [2, 3]])]),
    "vmap in chunks": (lambda x: vmap(cubed, chunk_size=2)(x), [rand(5, 4)]),
    "vjp": (lambda x: vjp(torch.exp, x)[1](x)[0], [rand(4)]),
    "jvp": (lambda x: jvp(lambda y: F.gelu(y) * y, (x,), (x + 1,)), [rand(4)]),
    "jacrev": (jacrev(lambda x: x.softmax(0)), [rand(4)]),
    "jacfwd": (jacfwd(lambda x: F.layer_norm(x, (4,))), [rand(4)]),
    "hessian": (hessian(cubed), [rand(4)]),
    "linearize": (lambda x: linearize(torch.tanh, x)[1](x + 1), [rand(4)]),
    "per-sample gradients": (per_sample_gradients, [rand(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])]),
    "ensemble": (ensemble, [rand(6, 4)]),
    "dual numbers": (dual, [rand(3, 4)]),
    "autograd.functional": (
        lambda x: (
            torch.autograd.functional.hessian(cubed, x),
            torch.autograd.functional.jacobian(torch.tanh, x, vectorize=True),
        ),
        [rand(4)],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_transforms(case: tuple[Callable[..., Any], list[torch.Tensor]], either_policy: bool) -> None:
    function, arguments = case
    expected = function(*arguments)
    assert_same(function(*Twins("neuron").of(arguments)), expected, exact=False, strides=False)


def test_random_numbers_under_vmap() -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn(3, device=x.device)

    value = torch.zeros(4, 3, device="neuron")
    assert vmap(noisy, randomness="different")(value).unique().numel() == 12
    assert vmap(noisy, randomness="same")(value).unique().numel() == 3
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(noisy)(value)


def test_gradcheck_in_all_modes() -> None:
    value = rand(3, 3).double().to("neuron").requires_grad_()

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).sin() * x

    assert torch.autograd.gradcheck(function, value, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(function, value, check_fwd_over_rev=True)
