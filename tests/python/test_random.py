"""Random numbers: seeds and states, the same bits whatever the timing, and distributions that are what they say."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from gates import Hold
from scripts import run_script

from neuron_emu import _C

N = 200_000

# One call of each kind; what it draws must depend on the generator alone.
DRAWS: dict[str, Callable[[], torch.Tensor]] = {
    "rand": lambda: torch.rand(1000, device="neuron"),
    "rand_double": lambda: torch.rand(1000, dtype=torch.float64, device="neuron"),
    "rand_strided": lambda: torch.zeros(20, 30, device="neuron").t().uniform_(),
    "randn": lambda: torch.randn(1001, device="neuron"),
    "randn_bf16": lambda: torch.randn(1001, dtype=torch.bfloat16, device="neuron"),
    "randn_complex": lambda: torch.randn(101, dtype=torch.complex64, device="neuron"),
    "rand_complex": lambda: torch.rand(101, dtype=torch.complex64, device="neuron"),
    "randint": lambda: torch.randint(0, 1000, (1000,), device="neuron"),
    "randperm": lambda: torch.randperm(1000, device="neuron"),
    "normal": lambda: torch.normal(torch.zeros(100, device="neuron"), torch.ones(100, device="neuron")),
    "bernoulli": lambda: torch.full((1000,), 0.3, device="neuron").bernoulli(),
    "bernoulli_p": lambda: torch.zeros(1000, device="neuron").bernoulli_(0.3),
    "multinomial": lambda: torch.ones(100, device="neuron").multinomial(50),
    "multinomial_replaced": lambda: torch.ones(100, device="neuron").multinomial(50, replacement=True),
    "exponential": lambda: torch.zeros(1000, device="neuron").exponential_(),
    "geometric": lambda: torch.zeros(1000, device="neuron").geometric_(0.4),
    "log_normal": lambda: torch.zeros(1000, device="neuron").log_normal_(),
    "cauchy": lambda: torch.zeros(1000, device="neuron").cauchy_(),
    "poisson": lambda: torch.poisson(torch.full((1000,), 4.0, device="neuron")),
    "random": lambda: torch.zeros(1000, dtype=torch.int32, device="neuron").random_(),
    "dropout": lambda: torch.nn.functional.dropout(torch.ones(1000, device="neuron")),
    "feature_dropout": lambda: torch.nn.functional.dropout2d(torch.ones(4, 100, 2, 2, device="neuron")),
    "rrelu": lambda: torch.nn.functional.rrelu(-torch.ones(1000, device="neuron"), training=True),
    "gumbel": lambda: torch.nn.functional.gumbel_softmax(torch.zeros(100, 10, device="neuron")),
    "init": lambda: torch.nn.init.kaiming_uniform_(torch.empty(30, 30, device="neuron")),
    "rand_like": lambda: torch.rand_like(torch.zeros(100, device="neuron")),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_draws_follow_the_seed_and_not_the_timing(draw: Callable[[], torch.Tensor], hold: Hold) -> None:
    draw()  # makes the plans
    drained = sum(_C.fallback_counts().values())
    draw()
    asynchronous = sum(_C.fallback_counts().values()) == drained
    results = []
    before = _C.runs_inline()
    for inline, held in ((False, True), (True, False), (False, False), (True, True)):
        _C.set_inline(inline)
        torch.neuron.synchronize()
        torch.neuron.manual_seed(17)
        gate = hold() if held and asynchronous else None
        pair = [draw(), draw()]
        if gate is not None:
            gate.open()
        results.append([tensor.cpu() for tensor in pair])
    _C.set_inline(before)
    for first, second in results:
        assert torch.equal(first, results[0][0])
        assert torch.equal(second, results[0][1])
        assert not torch.equal(first, second), "two calls drew the same numbers"
    torch.neuron.manual_seed(18)
    assert not torch.equal(draw().cpu(), results[0][0])


def test_thread_count_does_not_matter(queued: bool) -> None:
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch.neuron.manual_seed(3)
        results.append([torch.rand(300_000, device="neuron").cpu(), torch.randn(300_000, device="neuron").cpu()])
    torch.set_num_threads(before)
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


# Seeds and states


def test_seeds() -> None:
    torch.manual_seed(5)
    assert torch.neuron.initial_seed() == 5, "torch.manual_seed seeds the device"
    first = torch.rand(4, device="neuron")
    torch.neuron.manual_seed(5)
    assert torch.equal(torch.rand(4, device="neuron"), first)
    torch.neuron.manual_seed_all(6)
    assert torch.neuron.initial_seed() == 6
    with torch.neuron.device(3):
        assert torch.neuron.initial_seed() == 6
    torch.neuron.seed()
    assert torch.neuron.initial_seed() != 6
    torch.neuron.seed_all()
    seed = torch.neuron.initial_seed()
    with torch.neuron.device(3):
        assert torch.neuron.initial_seed() == seed
    torch.neuron.manual_seed(-1)
    torch.rand(1, device="neuron")


def test_all_64_bits_of_a_seed_count() -> None:
    results = []
    for seed in (1, 1 + (1 << 32), 1 + (1 << 63)):
        torch.neuron.manual_seed(seed)
        results.append((torch.rand(8, device="neuron").tolist(), torch.randperm(50, device="neuron").tolist()))
    assert len({tuple(uniform) for uniform, _ in results}) == 3
    assert len({tuple(permutation) for _, permutation in results}) == 3


def test_state_is_seed_and_offset() -> None:
    torch.neuron.manual_seed(7)
    state = torch.neuron.get_rng_state()
    assert state.dtype == torch.uint8
    assert state.device.type == "cpu"
    assert state.numel() == 16
    assert state.view(torch.int64).tolist() == [7, 0]
    first = torch.rand(9, device="neuron")
    later = torch.neuron.get_rng_state()
    seed, offset = later.view(torch.int64).tolist()
    assert seed == 7
    assert offset > 0
    assert offset % 4 == 0
    second = torch.rand(9, device="neuron")
    torch.neuron.set_rng_state(state)
    assert torch.equal(torch.rand(9, device="neuron"), first)
    assert torch.equal(torch.neuron.get_rng_state(), later)
    assert torch.equal(torch.rand(9, device="neuron"), second)
    for wrong in (state[:8], torch.zeros(32, dtype=torch.uint8), state.float()):
        with pytest.raises((RuntimeError, TypeError)):
            torch.neuron.set_rng_state(wrong)
    torch.neuron.set_rng_state(state, "neuron:1")
    assert torch.equal(torch.neuron.get_rng_state(1), state)
    assert len(torch.neuron.random.get_rng_state_all()) == 64


def test_the_offset_is_reserved_at_submission(hold: Hold) -> None:
    torch.neuron.manual_seed(7)
    torch.rand(9, device="neuron")
    torch.neuron.manual_seed(7)
    gate = hold()
    torch.rand(9, device="neuron")
    assert torch.neuron.get_rng_state().view(torch.int64)[1].item() > 0
    gate.open()


def test_generators() -> None:
    generator = torch.Generator(device="neuron")
    assert generator.device == torch.device("neuron", 0)
    generator.manual_seed(11)
    assert generator.initial_seed() == 11
    torch.neuron.manual_seed(1)
    default = torch.neuron.get_rng_state()
    first = torch.rand(5, generator=generator, device="neuron")
    assert torch.equal(torch.neuron.get_rng_state(), default), "drawing from it leaves the device's own alone"
    state = generator.get_state()
    second = torch.randn(5, generator=generator, device="neuron")
    copy = generator.clone_state()
    generator.set_state(state)
    assert torch.equal(torch.randn(5, generator=generator, device="neuron"), second)
    assert torch.equal(copy.get_state(), generator.get_state())
    generator.manual_seed(11)
    assert torch.equal(torch.rand(5, generator=generator, device="neuron"), first)
    for draw in (
        lambda g: torch.randint(9, (20,), generator=g, device="neuron"),
        lambda g: torch.randperm(20, generator=g, device="neuron"),
        lambda g: torch.ones(20, device="neuron").multinomial(9, generator=g),
        lambda g: torch.full((40,), 0.5, device="neuron").bernoulli(generator=g),
    ):
        assert torch.equal(draw(generator.manual_seed(4)), draw(generator.manual_seed(4)))
    assert generator.seed() == generator.initial_seed()
    with pytest.raises((RuntimeError, TypeError)):
        torch.rand(3, generator=torch.Generator(), device="neuron")
    with pytest.raises((RuntimeError, TypeError)):
        torch.rand(3, generator=generator)
    assert torch.Generator("neuron:2").device.index == 2


def test_devices_have_their_own_generators() -> None:
    torch.neuron.manual_seed_all(9)
    first, second = torch.rand(4, device="neuron:0"), torch.rand(4, device="neuron:1")
    assert torch.equal(first.cpu(), second.cpu())
    torch.rand(4, device="neuron:0")
    assert not torch.equal(torch.rand(4, device="neuron:1").cpu(), torch.rand(4, device="neuron:0").cpu())


def test_fork_rng() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4, device="neuron")
    torch.manual_seed(3)
    with torch.random.fork_rng(devices=[0], device_type="neuron"):
        torch.manual_seed(99)
        torch.rand(100, device="neuron")
    assert torch.equal(torch.rand(4, device="neuron"), expected)


# Distributions. Bounds of five standard errors and more: the seed is fixed, so that nothing here is left to chance.


def moments(values: torch.Tensor) -> tuple[float, float]:
    values = values.cpu().double()
    return values.mean().item(), values.std().item()


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(1234)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_uniform(dtype: torch.dtype) -> None:
    values = torch.rand(N, dtype=dtype, device="neuron").cpu()
    assert values.min() >= 0
    assert values.max() < 1
    assert moments(values) == pytest.approx((0.5, math.sqrt(1 / 12)), abs=0.005)
    shifted = torch.empty(N, dtype=dtype, device="neuron").uniform_(1, 2).cpu()
    assert shifted.min() >= 1
    assert shifted.max() < 2, "the upper bound is excluded"
    counts = torch.histc(values.double(), 20, 0, 1) / N
    assert counts.sub(0.05).abs().max() < 0.005
    assert torch.corrcoef(torch.stack([values[:-1].double(), values[1:].double()]))[0, 1].abs() < 0.01


def test_uniform_complex() -> None:
    """Both parts are uniform, and not of each other."""
    values = torch.rand(N, dtype=torch.complex64, device="neuron").cpu()
    for part in (values.real, values.imag):
        assert (part.min() >= 0, part.max() < 1) == (True, True)
        assert moments(part) == pytest.approx((0.5, math.sqrt(1 / 12)), abs=0.005)
    assert torch.corrcoef(torch.stack([values.real.double(), values.imag.double()]))[0, 1].abs() < 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_normal(dtype: torch.dtype) -> None:
    values = torch.randn(N, dtype=dtype, device="neuron").cpu().double()
    assert moments(values) == pytest.approx((0, 1), abs=0.01)
    assert (values**3).mean().abs() < 0.05
    assert (values**4).mean().item() == pytest.approx(3, abs=0.1)
    assert values.abs().lt(1).double().mean().item() == pytest.approx(0.6827, abs=0.006)
    assert values.isfinite().all()
    moved = torch.empty(N, dtype=dtype, device="neuron").normal_(3, 0.5)
    assert moments(moved) == pytest.approx((3, 0.5), abs=0.01)


def test_integers() -> None:
    values = torch.randint(-3, 7, (N,), device="neuron").cpu()
    assert values.min() == -3
    assert values.max() == 6
    assert values.add(3).bincount().div(N).sub(0.1).abs().max() < 0.004
    assert torch.zeros(N, dtype=torch.bool, device="neuron").random_().double().mean().item() == pytest.approx(
        0.5, abs=0.01
    )
    wide = torch.empty(1000, dtype=torch.int64, device="neuron").random_(-(1 << 63), None).cpu()
    assert wide.lt(0).sum().item() == pytest.approx(500, abs=100)
    assert wide.unique().numel() == 1000
    for dtype, top in ((torch.uint8, 255), (torch.int8, 127)):
        small = torch.empty(N, dtype=dtype, device="neuron").random_().cpu()
        assert (small.min().item(), small.max().item()) == (0, top)
    for low, high in ((5, 5), (5, 4)):
        with pytest.raises(RuntimeError):
            torch.randint(low, high, (3,), device="neuron")


def test_permutations() -> None:
    values = torch.randperm(1000, device="neuron")
    assert values.sort().values.tolist() == list(range(1000))
    assert values.tolist() != list(range(1000))
    firsts = torch.stack([torch.randperm(8, device="neuron")[0] for _ in range(2000)]).cpu()
    assert firsts.bincount(minlength=8).div(2000).sub(1 / 8).abs().max() < 0.04


def test_multinomial() -> None:
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0, 0.0], device="neuron")
    drawn = weights.multinomial(N, replacement=True).cpu()
    assert drawn.bincount(minlength=5).div(N).sub(weights.cpu() / 10).abs().max() < 0.006
    once = torch.ones(50, device="neuron").multinomial(50)
    assert once.sort().values.tolist() == list(range(50))


def test_other_distributions() -> None:
    zeros = torch.zeros(N, device="neuron")
    assert zeros.clone().bernoulli_(0.3).mean().item() == pytest.approx(0.3, abs=0.006)
    assert zeros.clone().bernoulli_(0).sum().item() == 0
    assert zeros.clone().bernoulli_(1).sum().item() == N
    probabilities = torch.rand(N, device="neuron")
    assert probabilities.bernoulli().sub(probabilities).mean().abs().item() < 0.005
    exponential = zeros.clone().exponential_(2)
    assert exponential.min().item() > 0
    assert moments(exponential) == pytest.approx((0.5, 0.5), abs=0.01)
    assert torch.poisson(zeros + 4).mean().item() == pytest.approx(4, abs=0.03)
    assert zeros.clone().geometric_(0.25).mean().item() == pytest.approx(4, abs=0.06)
    assert zeros.clone().cauchy_().median().item() == pytest.approx(0, abs=0.02)
    assert zeros.clone().log_normal_(0, 0.5).log().std().item() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_dropout(p: float) -> None:
    value = torch.ones(N, device="neuron", requires_grad=True)
    dropped = torch.nn.functional.dropout(value, p)
    assert dropped.eq(0).double().mean().item() == pytest.approx(p, abs=0.006)
    if p < 1:
        assert dropped[dropped != 0].sub(1 / (1 - p)).abs().max().item() < 1e-6
    dropped.sum().backward()
    assert torch.equal(value.grad, dropped.detach())
    assert torch.nn.functional.dropout(value, p, training=False).eq(1).all().item()


def test_errors() -> None:
    value = torch.zeros(3, device="neuron")
    for call in (
        lambda: value.normal_(0, -1),
        lambda: value.uniform_(2, 1),
        lambda: value.bernoulli_(1.5),
        lambda: value.exponential_(-1),
        lambda: value.int().normal_(),
        lambda: torch.rand(3, dtype=torch.int32, device="neuron"),
    ):
        with pytest.raises(RuntimeError):
            call()
            torch.neuron.synchronize()


def test_seeding_before_the_start() -> None:
    out = run_script(
        """
    torch.manual_seed(42)
    assert not torch.neuron.is_initialized()
    first = torch.rand(3, device="neuron").tolist()
    torch.manual_seed(42)
    print(first == torch.rand(3, device="neuron").tolist())
    torch.neuron.manual_seed(42)
    print(first == torch.rand(3, device="neuron").tolist())
    """
    )
    assert out.split() == ["True", "True"]
