"""Dispatch: plans and what must not share one, host scalars, what a command holds, gradients that are not copied."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from comparison import Twins, assert_same
from gates import Hold

import torch_neuronx
from neuron_emu import _C

T = torch.Tensor


def hits_and_misses(call: Callable[[], object]) -> tuple[int, int]:
    before = _C.plan_cache_stats()
    call()
    after = _C.plan_cache_stats()
    return after["hits"] - before["hits"], after["misses"] - before["misses"]


@pytest.fixture
def fresh_plans() -> None:
    torch.neuron.synchronize()
    _C.clear_plan_caches()


# Plans


def test_the_second_call_hits(fresh_plans: None) -> None:
    a, b = torch.ones(3, 4, device="neuron"), torch.ones(3, 4, device="neuron")
    assert hits_and_misses(lambda: a + b) == (0, 1)
    assert hits_and_misses(lambda: a + b) == (1, 0)
    assert hits_and_misses(lambda: b + a) == (1, 0)
    c = torch.ones(3, 4, device="neuron")
    assert hits_and_misses(lambda: c + c) == (1, 0)
    assert hits_and_misses(lambda: a * b) == (0, 1)
    stats = _C.plan_cache_stats()
    assert stats["plans"] >= 2
    _C.clear_plan_caches()
    assert _C.plan_cache_stats()["plans"] == 0
    assert (a + b).tolist() == [[2] * 4] * 3


def test_changing_floats_hit(fresh_plans: None) -> None:
    """A learning rate that changes at every step must not make a plan at every step."""
    weight, grad = torch.zeros(4, device="neuron"), torch.ones(4, device="neuron")
    expected, total = torch.zeros(4), torch.ones(4)
    for step in range(20):
        rate = 0.1 / (step + 1)
        counts = hits_and_misses(lambda rate=rate: weight.add_(grad, alpha=-rate))
        assert counts == ((0, 1) if step == 0 else (1, 0))
        expected.add_(total, alpha=-rate)
    assert torch.equal(weight.cpu(), expected)
    for scale in (2.0, 3.0, 0.5):
        grad.mul_(scale)
        torch._foreach_mul_([grad], scale)
        torch._foreach_addcdiv_([weight], [grad], [grad], [scale])
    assert hits_and_misses(lambda: torch._foreach_addcdiv_([weight], [grad], [grad], [7.0])) == (1, 0)
    assert grad.tolist() == pytest.approx([9.0] * 4)
    assert hits_and_misses(lambda: torch.lerp(weight, grad, 0.123)) == (0, 1)
    assert hits_and_misses(lambda: torch.lerp(weight, grad, 0.9)) == (1, 0)


def test_changing_integers_are_right() -> None:
    value = torch.arange(12.0, device="neuron").view(3, 4)
    for dim in (0, 1, -1, 0):
        assert torch.equal(value.sum(dim).cpu(), value.cpu().sum(dim))
        assert torch.equal(value.cumsum(dim).cpu(), value.cpu().cumsum(dim))
    for shift in (0, 1, 2, -1):
        assert torch.equal(value.roll(shift, 1).cpu(), value.cpu().roll(shift, 1))
    for factor in (1, 2, 3):
        assert torch.equal((value.int() * factor).cpu(), value.cpu().int() * factor)
        assert torch.equal((value**factor).cpu(), value.cpu() ** factor)
        assert torch.equal(torch.full((2,), factor, device="neuron").cpu(), torch.full((2,), factor))
    for count in (1, 2, 3):
        assert value.topk(count, 1).values.shape == (3, count)
    for minimum in (None, 1.0, 5.0):
        for maximum in (3.0, None, 9.0):
            if minimum is not None or maximum is not None:
                assert torch.equal(value.clamp(minimum, maximum).cpu(), value.cpu().clamp(minimum, maximum))


BASE = torch.arange(24.0).view(4, 6)
COMPLEX = torch.complex(BASE, BASE + 1)

# Calls that look alike, one after the other: each must give the CPU's answer, whatever plan the ones before have left.
LookAlikes = tuple[Callable[..., Any], list[tuple[Any, ...]]]
LOOK_ALIKES: dict[str, LookAlikes] = {
    "strides": (
        lambda x: x + 1,
        [(BASE,), (BASE.t().contiguous().t(),), (BASE[:, ::2],), (BASE.t(),), (BASE[:1].expand(4, 6),)],
    ),
    "strides_inplace": (lambda x: x.mul_(2), [(BASE,), (BASE.t(),), (BASE[:, ::2],), (BASE[1:3],)]),
    "same_strides_other_overlap": (
        lambda x, y: torch.add(x, 1, out=y),
        [(BASE[0, :4], BASE[1, :4]), (BASE[0, :4], BASE[0, :4]), (BASE[0, :4], torch.zeros(4))],
    ),
    "full_overlap_or_none": (
        lambda x, y: x.add_(y),
        [(BASE[0], BASE[1]), (BASE[0], BASE[0]), (torch.ones(6), BASE[0])],
    ),
    "wrapped_numbers": (
        lambda x, y: x * y,
        [
            (BASE.half(), 2.0),
            (BASE.half(), torch.tensor(2.0)),
            (BASE.half(), torch.tensor([2.0])),
            (BASE.half(), 2),
            (BASE.int(), 2.5),
            (BASE.int(), 2),
            (BASE.int(), torch.tensor(2.5)),
            (BASE.bool(), True),
            (BASE.bool(), 2),
        ],
    ),
    "promotion": (
        lambda x, y: x + y,
        [
            (BASE, BASE.int()),
            (BASE.int(), BASE),
            (BASE.int(), BASE.int()),
            (BASE.half(), BASE.bfloat16()),
            (BASE.bool(), BASE.int()),
        ],
    ),
    "zero_dim_operands": (
        lambda x, y: x + y,
        [
            (BASE.half(), torch.tensor(1.0, dtype=torch.float64)),
            (torch.tensor(1.0), torch.tensor(1.0, dtype=torch.float64)),
            (torch.tensor([1.0]), torch.tensor(1.0, dtype=torch.float64)),
        ],
    ),
    "conj": (lambda x: x * 2, [(COMPLEX,), (COMPLEX.conj(),), (COMPLEX.conj().resolve_conj(),)]),
    "conj_inplace": (lambda x: x.mul_(2j), [(COMPLEX.clone(),), (COMPLEX.clone().conj(),)]),
    "neg": (lambda x: x + 1, [(COMPLEX.imag,), (COMPLEX.conj().imag,)]),
    "memory_format": (
        lambda x: torch.relu(x),
        [(BASE.view(1, 2, 3, 4),), (BASE.view(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),)],
    ),
    "memory_format_argument": (
        lambda x, f: x.clone(memory_format=f),
        [(BASE.view(1, 2, 3, 4), torch.channels_last), (BASE.view(1, 2, 3, 4), torch.contiguous_format)],
    ),
    "requires_grad": (
        lambda x: (x * 2).detach(),
        [(BASE.clone(),), (BASE.clone().requires_grad_(),)],
    ),
    "scalar_types": (
        lambda x, s: torch.add(x, x, alpha=s),
        [(BASE.int(), 2), (BASE, 2), (BASE, 2.0), (COMPLEX, 2j), (COMPLEX, 2.0)],
    ),
    "dtype_argument": (
        lambda x, d: x.sum(dtype=d),
        [(BASE, None), (BASE, torch.float64), (BASE, torch.int64), (BASE, torch.float16)],
    ),
    "none_or_tensor": (
        lambda x, w: torch.nn.functional.layer_norm(x, (6,), w),
        [(BASE, None), (BASE, torch.ones(6) * 2), (BASE, None)],
    ),
    "bool_arguments": (
        lambda x, k, u: (x.sum(1, keepdim=k), x.var(1, unbiased=u)),
        [(BASE, True, True), (BASE, False, True), (BASE, False, False)],
    ),
    "lists": (
        lambda x, sizes: x.sum(sizes),
        [(BASE, [0]), (BASE, [1]), (BASE, [0, 1]), (BASE, [])],
    ),
    "list_lengths": (
        lambda *x: torch.cat(x),
        [(BASE, BASE), (BASE, BASE, BASE), (BASE[:1], BASE[:3]), (BASE[:3], BASE[:1]), (BASE,)],
    ),
    "strings": (
        lambda x, y, m: torch.div(x, y, rounding_mode=m),
        [(BASE, BASE + 0.7, None), (BASE, BASE + 0.7, "trunc"), (-BASE, BASE + 0.7, "floor")],
    ),
    "empty": (lambda x: x + 1, [(BASE[:0],), (BASE[:, :0],), (BASE[:1],)]),
    "offsets": (lambda x: x * 1, [(BASE.flatten()[1:7],), (BASE.flatten()[2:8],), (BASE.flatten()[:6],)]),
    "sizes": (lambda x: x.exp(), [(BASE[:1],), (BASE[:2],), (BASE[0],), (BASE[0, 0],)]),
    "slices": (lambda x, n: x[:, :n] * 1, [(BASE, 1), (BASE, 3), (BASE, 6)]),
    "indices": (
        lambda x, i: x[i],
        [
            (BASE, torch.tensor([0])),
            (BASE, torch.tensor([3])),
            (BASE, torch.tensor([1, 2])),
            (BASE, torch.tensor([True, False, True, True])),
        ],
    ),
    "data_dependent": (lambda x: (x[x > 11], x.nonzero()), [(BASE,), (BASE * 0,), (BASE + 100,), (BASE,)]),
    "repeats": (
        lambda x, n: x.repeat_interleave(n, 0),
        [(BASE[:2], torch.tensor([1, 2])), (BASE[:2], torch.tensor([3, 0])), (BASE[:2], torch.tensor([0, 0]))],
    ),
    "undefined_gradients": (
        lambda x, w, m: torch.ops.aten.native_layer_norm_backward(
            x, x, [6], x.mean(1, True), x.var(1, keepdim=True), w, w, m
        ),
        [
            (BASE, torch.ones(6), [True, True, True]),
            (BASE, torch.ones(6), [True, False, False]),
            (BASE, torch.ones(6), [False, True, True]),
        ],
    ),
}


@pytest.mark.parametrize("case", LOOK_ALIKES.values(), ids=LOOK_ALIKES.keys())
def test_look_alikes(
    case: tuple[Callable[..., Any], list[tuple[Any, ...]]], either_policy: bool, fresh_plans: None
) -> None:
    function, calls = case
    for _ in range(2):
        for index, arguments in enumerate(calls):
            on_cpu, on_device = Twins("cpu").of(arguments), Twins("neuron").of(arguments)
            expected, actual = function(*on_cpu), function(*on_device)
            assert_same(actual, expected, exact=False, where=f"call {index}")
            assert_same(on_device, on_cpu, exact=False, where=f"arguments of call {index}")


@contextlib.contextmanager
def setting(switch: Callable[[Any], object], value: object, usual: object) -> Iterator[None]:
    switch(value)
    try:
        yield
    finally:
        switch(usual)


def test_global_switches(fresh_plans: None) -> None:
    """The switches that alter dtype or algorithm are part of what makes calls alike."""
    value = torch.arange(3, device="neuron")
    for dtype in (torch.float32, torch.float64, torch.float32):
        with setting(torch.set_default_dtype, dtype, torch.float32):
            assert (value / 2).dtype == dtype
            assert torch.arange(0, 1, 0.5, device="neuron").dtype == dtype
            assert value.sqrt().dtype == dtype
    call = lambda: torch.ones(3, device="neuron").index_add_(0, value, torch.ones(3, device="neuron"))  # noqa: E731
    call()
    with setting(torch.use_deterministic_algorithms, True, False):
        assert hits_and_misses(call)[1] > 0, "a plan of the other setting was used"
        assert torch.empty(3, device="neuron").isnan().all().item()
        assert torch.empty(3, dtype=torch.int32, device="neuron").eq(torch.iinfo(torch.int32).max).all().item()
        assert call().tolist() == [2, 2, 2]
    assert hits_and_misses(call)[1] == 0


def test_plans_are_bounded(fresh_plans: None) -> None:
    before = _C.plan_cache_stats()["evictions"]
    for size in range(1, 1200):
        torch.relu(torch.empty(size, device="neuron"))
    stats = _C.plan_cache_stats()
    assert stats["evictions"] > before
    assert stats["plans"] < 1200
    assert torch.relu(-torch.ones(1, device="neuron")).tolist() == [0]


def test_plans_of_many_threads(fresh_plans: None) -> None:
    wrong: list[object] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        stream = torch.neuron.Stream()
        with torch.neuron.stream(stream):
            for _ in range(100):
                host = torch.randn(int(torch.randint(1, 9, (1,), generator=generator)), 4, generator=generator)
                device = host.to("neuron")
                if not torch.equal((device * 2 + device).relu_().cpu(), (host * 2 + host).relu_()):
                    wrong.append(host)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_counters() -> None:
    torch_neuronx.clear_op_tracking()
    value = torch.ones(4, device="neuron")
    for _ in range(3):
        value = value * 2
    value.nonzero()
    executed = torch_neuronx.get_executed_ops()
    assert any("mul" in name for name in executed)
    assert any("nonzero" in name for name in torch_neuronx.get_fallback_ops())
    assert _C.op_counts()["aten::mul.Tensor"] >= 2


# What is copied at submission


def test_host_scalars_are_read_at_the_call(hold: Hold, either_policy: bool) -> None:
    value = torch.ones(3, device="neuron")

    def calls(scalar: T, other: T) -> list[T]:
        return [
            value * scalar,
            value + other,
            torch.where(value > 0, scalar, value),
            torch.zeros(3, device="neuron").add_(scalar),
            torch.zeros(3, device="neuron").fill_(scalar),
            *torch._foreach_mul([value, value], scalar),
        ]

    calls(torch.tensor(5.0), torch.tensor(6))  # makes the plans
    scalar, other = torch.tensor(2.0), torch.tensor(3)
    gate = hold()
    results = calls(scalar, other)
    scalar.fill_(100)
    other.fill_(100)
    gate.open()
    assert [result.tolist() for result in results] == [[2] * 3, [4] * 3, *[[2] * 3] * 5]


def test_a_host_scalar_may_die_at_once(hold: Hold, queued: bool) -> None:
    value = torch.ones(3, device="neuron")
    gate = hold()
    results = [value * torch.tensor(float(i)) for i in range(50)]
    gate.open()
    assert [result[0].item() for result in results] == list(range(50))


def test_python_lists_and_indices_are_read_at_the_call(hold: Hold, queued: bool) -> None:
    value = torch.arange(6.0, device="neuron")
    scalars = [2.0, 3.0]
    torch._foreach_mul([value, value], scalars)
    gate = hold()
    lists = torch._foreach_mul([value, value], scalars)
    scalars[:] = [100.0, 100.0]
    gate.open()
    assert lists[0].tolist() == [0, 2, 4, 6, 8, 10]
    index = torch.tensor([0, 5])
    picked = value[index]
    index.fill_(1)
    assert picked.tolist() == [0, 5]


# What a command holds


def test_tensors_may_die_under_queued_commands(hold: Hold, either_policy: bool) -> None:
    gate = hold()
    results = []
    for i in range(100):
        first, second = torch.full((64,), float(i), device="neuron"), torch.full((64,), 2.0, device="neuron")
        results.append((first * second).sum())
        del first, second
        gc.collect(0)
    gate.open()
    assert [result.item() for result in results] == [128.0 * i for i in range(100)]


def test_commands_do_not_hold_the_users_tensors(hold: Hold, queued: bool) -> None:
    """Else autograd could not steal a gradient, and the last reference would go on a stream's thread, with the GIL."""
    tensor = torch.ones(8, device="neuron")
    gone = weakref.ref(tensor)
    storage = tensor.untyped_storage()
    alive = weakref.ref(storage)
    gate = hold()
    result = tensor + 1
    del tensor, storage
    assert gone() is None
    assert alive() is None
    gate.open()
    assert result.tolist() == [2] * 8


def test_gradients_are_stolen(hold: Hold, queued: bool) -> None:
    """AccumulateGrad takes over the gradient tensor; a command that held it would force a copy of it."""
    weight = torch.ones(1 << 20, device="neuron", requires_grad=True)
    pointers: list[int] = []
    weight.register_hook(lambda grad: pointers.append(grad.data_ptr()))
    (weight * 2).sum().backward()  # makes the plans
    weight.grad = None
    loss = (weight * 2).sum()
    torch.neuron.synchronize()
    requests = _C.memory_stats(0)["allocation_requests"]
    gate = hold()
    loss.backward()
    assert weight.grad.data_ptr() == pointers[-1], "the gradient was copied"
    assert _C.memory_stats(0)["allocation_requests"] - requests <= 2, "ones for the seed, and the gradient"
    gate.open()
    assert weight.grad[0].item() == 2


def test_gradient_memory_of_a_step(queued: bool) -> None:
    """One copy of each gradient: the peak of a backward over one big weight."""
    weight = torch.ones(1 << 20, device="neuron", requires_grad=True)
    for _ in range(2):
        weight.grad = None
        torch.neuron.synchronize()
        base = torch.neuron.memory_allocated()
        torch.neuron.reset_peak_memory_stats()
        (weight * 2).sum().backward()
    torch.neuron.synchronize()
    assert torch.neuron.max_memory_allocated() - base <= 2 * weight.nbytes + 4096
    assert torch.neuron.memory_allocated() - base <= weight.nbytes + 4096


# Where kernels come from


def test_custom_operators_run_on_the_host(hold: Hold) -> None:
    """An operator of another library without a kernel for the device: its CPU kernel, after a drain."""
    with torch.library._scoped_library("neuron_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.define("bump_(Tensor(a!) x) -> Tensor(a!)")
        library.impl("twice", lambda x: x * 2, "CPU")
        library.impl("bump_", lambda x: x.add_(1), "CPU")
        value = torch.ones(3, device="neuron")
        doubled = torch.ops.neuron_test.twice(value)
        assert doubled.device.type == "neuron"
        assert doubled.tolist() == [2] * 3
        assert torch.ops.neuron_test.bump_(value).tolist() == [2] * 3
        assert value.tolist() == [2] * 3
        assert _C.fallback_counts()["neuron_test::twice"] >= 1


def test_python_dispatch_modes_see_the_calls() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    seen: list[str] = []
    value = torch.ones(3, device="neuron")
    with Recorder():
        result = torch.relu(value + 1)
    assert seen == ["aten.add.Tensor", "aten.relu.default"]
    assert result.tolist() == [2] * 3


def test_functional_transforms() -> None:
    value = torch.arange(6.0, device="neuron").view(2, 3)
    assert torch.func.vmap(lambda row: (row * row).sum())(value).tolist() == [5, 50]
    assert torch.func.grad(lambda x: (x * x).sum())(value).tolist() == (value * 2).tolist()
    jacobian = torch.func.jacrev(lambda x: x.sin())(value[0])
    assert torch.allclose(jacobian.cpu(), torch.diag(value[0].cpu().cos()))
    primal, tangent = torch.func.jvp(lambda x: x * x, (value,), (torch.ones_like(value),))
    assert tangent.tolist() == (value * 2).tolist()
    assert torch.equal(primal.cpu(), (value * value).cpu())


def test_inference_mode() -> None:
    with torch.inference_mode():
        value = torch.ones(3, device="neuron") * 2
        assert value.is_inference()
        assert (value + 1).tolist() == [3] * 3
    outside = torch.ones(3, device="neuron")
    with torch.inference_mode():
        outside.add_(1)
    assert outside.add_(1).tolist() == [3] * 3
    assert (torch.ones(3, device="neuron", requires_grad=True) * 2).requires_grad


def test_intra_op_threads_are_the_callers(queued: bool) -> None:
    before = torch.get_num_threads()
    value = torch.randn(257, 129, device="neuron")
    results = []
    for threads in (1, 2, 1):
        torch.set_num_threads(threads)
        results.append((value @ value.t()).sum())
    torch.set_num_threads(before)
    assert results[0].item() == results[2].item()


def test_pointwise_operators_may_write_to_an_operand() -> None:
    """Others may not, or have their own answer: only they wait, to let their kernel see it."""
    a, mask = torch.arange(6.0, device="neuron"), torch.tensor([True, False] * 3, device="neuron")
    _C.reset_op_counts()
    torch.add(a, a, out=a)
    torch.where(mask, a, torch.zeros_like(a), out=a)
    a.mul_(a)
    a.copysign_(a)
    torch.ops.aten.relu.out(a, out=a)
    assert _C.drains() == []
    assert a.tolist() == [0, 0, 16, 0, 64, 0]
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.cat([a[:3], a[3:]], out=a)
    assert [name for name, _, _ in _C.drains() if name == "aten::cat.out"] == ["aten::cat.out"]
