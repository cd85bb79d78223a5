"""Autograd: hooks, streams, custom functions, higher derivatives, checkpointing; gradients that are the CPU's."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from comparison import Twins, assert_same
from gates import Hold
from scripts import start_script
from torch import nn
from torch.utils.checkpoint import checkpoint

from neuron_emu import _C

_GENERATOR = torch.Generator().manual_seed(23)


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=_GENERATOR)


def leaf(*values: float, device: str = "neuron") -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device, requires_grad=True)


def test_backward_basics(either_policy: bool) -> None:
    x = leaf(1, 2, 3)
    y = (x * x).sum()
    assert y.grad_fn is not None
    y.backward()
    assert x.grad.tolist() == [2, 4, 6]
    (x * 3).sum().backward()
    assert x.grad.tolist() == [5, 7, 9], "gradients accumulate"
    assert torch.autograd.grad((x * x).sum(), x)[0].tolist() == [2, 4, 6]
    with torch.no_grad():
        assert not (x * 2).requires_grad
    x.grad.zero_()
    x.detach().add_(1)
    assert x.tolist() == [2, 3, 4]
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()
    z = (x * x).sum()
    z.backward(retain_graph=True)
    z.backward()
    assert x.grad.tolist() == [8, 12, 16]


GRADIENTS: dict[str, tuple[Callable[..., torch.Tensor], list[torch.Tensor]]] = {
    "broadcast": (lambda a, b: (a * b + b).exp().sum(), [rand(3, 4), rand(4)]),
    "views": (lambda a: (a.t()[1:, ::2] * a.flatten()[2:4]).sum(), [rand(4, 3)]),
    "inplace": (lambda a: (a * 1).mul_(3).add_(a).pow(2).sum(), [rand(5)]),
    "inplace_view": (lambda a: _write_into_a_view(a), [rand(3, 4)]),
    "index": (lambda a: (a[[0, 2, 2]] * a[torch.tensor([1, 1, 0], device=a.device)]).sum(), [rand(3, 4)]),
    "matmul": (lambda a, b: (a @ b).tanh().sum(), [rand(3, 4), rand(4, 5)]),
    "softmax": (lambda a: a.softmax(-1).log().mul(a).sum(), [rand(3, 4)]),
    "sort": (lambda a: a.sort(0).values[1].sum() + a.max(1).values.sum(), [rand(3, 4)]),
    "norm": (lambda a: a.norm() + a.norm(dim=0).sum() + a.std(), [rand(3, 4)]),
    "complex": (lambda a: torch.view_as_complex(a.view(-1, 2)).abs().sum(), [rand(3, 4)]),
    "linalg": (lambda a: torch.linalg.inv(a @ a.t() + torch.eye(3, device=a.device)).diagonal().sum(), [rand(3, 3)]),
    "where": (lambda a, b: torch.where(a > 0, a * b, b / 2).sum(), [rand(3, 4), rand(3, 4)]),
    "cumulative": (lambda a: a.cumsum(0).cumprod(1).sum(), [rand(3, 3)]),
    "cat": (lambda a, b: torch.cat([a, b, a]).pow(2).sum(), [rand(2, 3), rand(1, 3)]),
    "scatter": (lambda a: torch.zeros_like(a).scatter_add(1, (a > 0).long(), a).pow(2).sum(), [rand(3, 4)]),
    "host_scalar": (lambda a: (a * torch.tensor(3.0) + torch.tensor(1)).pow(2).sum(), [rand(3)]),
    "zero_dim": (lambda a, b: (a * b).sum(), [rand(3), rand(1).squeeze()]),
    "unused": (lambda a, b: a.sum(), [rand(3), rand(3)]),
    "mixed_precision": (lambda a, b: (a.bfloat16() * b).float().sum(), [rand(3), rand(3)]),
}


def _write_into_a_view(a: torch.Tensor) -> torch.Tensor:
    base = torch.zeros(3, 4, device=a.device)
    base[1] = a[0] * 2
    base[:, 2].mul_(a[:, 1])
    return (base * a).sum()


@pytest.mark.parametrize("case", GRADIENTS.values(), ids=GRADIENTS.keys())
def test_gradients(case: tuple[Callable[..., torch.Tensor], list[torch.Tensor]], either_policy: bool) -> None:
    function, inputs = case
    for _ in range(2):
        results = []
        for device in ("cpu", "neuron"):
            leaves = [tensor.requires_grad_() for tensor in Twins(device).of(inputs)]
            value = function(*leaves)
            value.backward()
            gradients = [x.grad if x.grad is not None else torch.zeros_like(x) for x in leaves]
            results.append([value, *gradients])
        assert_same(results[1], results[0], exact=False, strides=False)


def test_gradcheck() -> None:
    x = rand(3, 4).double().to("neuron").requires_grad_()
    w = rand(4, 2).double().to("neuron").requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: (a @ b).tanh().softmax(-1), (x, w))
    assert torch.autograd.gradgradcheck(lambda a, b: (a @ b).sigmoid(), (x, w))


def test_double_backward(either_policy: bool) -> None:
    x = leaf(1, 2, 3)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    assert first.tolist() == [3, 12, 27]
    first.sum().backward()
    assert x.grad.tolist() == [6, 12, 18]
    hessian = torch.autograd.functional.hessian(lambda v: (v**3).sum(), torch.ones(2, device="neuron"))
    assert hessian.tolist() == [[6, 0], [0, 6]]


def test_hooks() -> None:
    x = leaf(1, 2)
    seen: list[object] = []
    x.register_hook(lambda grad: seen.append(grad.device.type) or grad * 10)
    x.register_post_accumulate_grad_hook(lambda tensor: seen.append(tensor.grad.tolist()))
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda grad: grad + 1)
    y.sum().backward()
    assert x.grad.tolist() == [40, 40]
    assert y.grad.tolist() == [2, 2]
    assert seen == ["neuron", [40, 40]]
    module = nn.Linear(2, 2).to("neuron")
    calls: list[str] = []
    module.register_forward_hook(lambda *_: calls.append("forward"))
    module.register_full_backward_hook(lambda *_: calls.append("backward"))
    module(torch.ones(1, 2, device="neuron", requires_grad=True)).sum().backward()
    assert calls == ["forward", "backward"]
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.cpu(), lambda t: t.to("neuron")):
        z = (x * x).sum()
    x.grad = None
    z.backward()
    assert x.grad.tolist() == [20, 40]
    with torch.autograd.graph.save_on_cpu(pin_memory=True, device_type="neuron"):
        z = (x * x).sum()
    x.grad = None
    z.backward()
    assert x.grad.tolist() == [20, 40]


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor, scale: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * x * scale

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x * ctx.scale, None


def test_custom_function(either_policy: bool) -> None:
    x = leaf(1, 2)
    Cube.apply(x, 2.0).sum().backward()
    assert x.grad.tolist() == [6, 24]
    (gradient,) = torch.autograd.grad(Cube.apply(x, 1.0).sum(), x, create_graph=True)
    assert torch.autograd.grad(gradient.sum(), x)[0].tolist() == [6, 12]


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_replays_the_random_numbers(reentrant: bool, either_policy: bool) -> None:
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.GELU(), nn.Linear(16, 16), nn.Dropout(0.3)).to(
        "neuron"
    )
    data = rand(8, 16).to("neuron")
    gradients = []
    for checkpointed in (False, True):
        torch.neuron.manual_seed(5)
        block.zero_grad()
        x = data.clone().requires_grad_()
        output = checkpoint(block, x, use_reentrant=reentrant) if checkpointed else block(x)
        output.square().sum().backward()
        gradients.append([x.grad, *(parameter.grad.clone() for parameter in block.parameters())])
    for plain, replayed in zip(*gradients, strict=True):
        assert torch.equal(plain, replayed)


def test_checkpoint_saves_memory() -> None:
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(8)]).to("neuron")
    data = torch.randn(2048, 64, device="neuron", requires_grad=True)
    peaks = []
    for checkpointed in (False, True):
        torch.neuron.synchronize()
        base = torch.neuron.memory_allocated()
        torch.neuron.reset_peak_memory_stats()
        x = data
        for layer in layers:
            x = checkpoint(layer, x, use_reentrant=False) if checkpointed else layer(x)
        x.sum().backward()
        torch.neuron.synchronize()
        peaks.append(torch.neuron.max_memory_allocated() - base)
        del x
    assert peaks[1] < 0.7 * peaks[0]


def test_a_program_may_end_right_after_backward() -> None:
    """autograd's thread lets go of its graph after backward has returned: the interpreter must not end under it."""
    programs = [start_script("torch.ones(2, device='neuron', requires_grad=True).sum().backward()") for _ in range(8)]
    ends = [(program.communicate(timeout=120)[1], program.returncode) for program in programs]
    assert [code for _, code in ends] == [0] * 8, ends


def test_a_program_may_end_right_after_its_first_backward_on_the_cpu() -> None:
    """The 64 threads that autograd starts then have not all begun."""
    programs = [start_script("torch.ones(2, requires_grad=True).sum().backward()") for _ in range(16)]
    ends = [(program.communicate(timeout=120)[1], program.returncode) for program in programs]
    assert [code for _, code in ends] == [0] * 16, ends


# Streams and devices


@pytest.mark.parametrize("index", [0, 1])
def test_backward_uses_the_forwards_stream(index: int, hold: Hold, queued: bool) -> None:
    """Field case 47: the forward is under a side stream, the backward outside; the caller's stream comes after it."""
    torch.neuron.set_device(index)
    side, main = torch.neuron.Stream(), torch.neuron.current_stream()
    x = torch.ones(4, device="neuron", requires_grad=True)
    streams: list[torch.Stream] = []
    for _ in range(2):  # the second round has its plans
        x.grad = None
        side.wait_stream(main)
        with torch.neuron.stream(side):
            y = x * 3
            y.register_hook(lambda grad: streams.append(torch.neuron.current_stream()))
            loss = y.sum()
        torch.neuron.synchronize()
        gate = hold(side)
        loss.backward()
        doubled = x.grad * 2
        assert not side.query(), "backward did not run on the forward's stream"
        assert not main.query(), "the caller's stream is not ordered after the gradients"
        gate.open()
        assert doubled.tolist() == [6] * 4
    assert streams == [side, side]
    torch.neuron.set_device(0)


def test_backward_does_not_wait_on_the_host(hold: Hold, queued: bool) -> None:
    x = torch.ones(4, device="neuron", requires_grad=True)
    (x * 3).sum().backward()
    x.grad = None
    torch.neuron.synchronize()
    gate = hold()
    (x * 3).sum().backward()
    gate.open()
    assert x.grad.tolist() == [3] * 4


def test_graph_over_two_devices(either_policy: bool) -> None:
    x = torch.ones(3, device="neuron:0", requires_grad=True)
    y = (x * 2).to("neuron:1")
    z = (y * y).cpu()
    (z.sum() + (x.to("neuron:1") * 3).sum().cpu()).backward()
    assert x.grad.tolist() == [11, 11, 11]
    assert x.grad.device.index == 0


def test_backward_in_many_threads() -> None:
    weight = torch.ones(16, device="neuron")
    wrong: list[list[float]] = []

    def work(scale: float) -> None:
        with torch.neuron.stream(torch.neuron.Stream()):
            for _ in range(30):
                x = weight.clone().requires_grad_()
                (x * x * scale).sum().backward()
                if x.grad.tolist() != [2 * scale] * 16:
                    wrong.append(x.grad.tolist())

    threads = [threading.Thread(target=work, args=(float(i + 1),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_anomaly_mode_names_the_forward() -> None:
    x = leaf(0.0)
    with pytest.warns(UserWarning, match="Error detected in SqrtBackward0"), torch.autograd.detect_anomaly():
        loss = (x.sqrt() * 0).sum()
        with pytest.raises(RuntimeError, match="SqrtBackward0.*nan"):
            loss.backward()


def test_modified_in_place_is_noticed() -> None:
    x = leaf(1, 2)
    y = x * 2
    z = (y * y).sum()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_accumulation_into_existing_gradients_is_in_place() -> None:
    x = torch.ones(1 << 16, device="neuron", requires_grad=True)
    (x * 2).sum().backward()
    pointer = x.grad.data_ptr()
    (x * 3).sum().backward()
    assert x.grad.data_ptr() == pointer
    assert x.grad.eq(5).all().item()
    assert _C.memory_stats(0)["allocated_bytes"]["current"] > 0
