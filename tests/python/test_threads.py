"""Several Python threads on one device: operators, streams, events, the allocator and plans, with results checked."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from neuron_emu import _C

THREADS = 6


def all_at_once(work: Callable[[int], None]) -> None:
    """Raises the first error of any thread."""
    together = threading.Barrier(THREADS)

    def begin(index: int) -> None:
        together.wait()
        work(index)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(begin, range(THREADS)))


def a_program(rng: random.Random, device: str) -> torch.Tensor:
    """The same calls on any device: changing shapes, in-place writes, views, gradients."""
    rows, columns = rng.randint(1, 9), rng.randint(1, 9)
    value = torch.arange(float(rows * columns), device=device).view(rows, columns).requires_grad_()
    result = value * rng.randint(1, 4) + rng.random()
    for _ in range(rng.randint(2, 6)):
        match rng.randrange(5):
            case 0:
                result = result @ result.t() / (1 + rows * columns)
            case 1:
                result = result.softmax(-1) + result
            case 2:
                result = torch.cat([result, result[:1]]).tanh()
            case 3:
                result = result.clone().mul_(rng.randint(1, 3)).t().contiguous()
            case _:
                result = result + result.sum(0)
    (gradient,) = torch.autograd.grad(result.square().mean(), value)
    return torch.cat([result.detach().flatten(), gradient.flatten()])


@pytest.mark.parametrize("own_stream", [False, True], ids=["default stream", "own streams"])
def test_operators_and_plans(own_stream: bool, either_policy: bool) -> None:
    def work(index: int) -> None:
        stream = torch.neuron.Stream() if own_stream else torch.neuron.current_stream()
        with torch.neuron.stream(stream):
            for step in range(15):
                seed = step * THREADS + index
                expected = a_program(random.Random(seed), "cpu")
                actual = a_program(random.Random(seed), "neuron")
                torch.testing.assert_close(actual.cpu(), expected)
                if step % 5 == index % 5:
                    _C.clear_plan_caches()

    all_at_once(work)


def test_tensors_that_travel_between_threads_and_streams(queued: bool) -> None:
    """Each thread adds one on a stream of its own, ordered by events alone, and frees what it was given."""
    rounds = 25
    slots: list[tuple[torch.Tensor, torch.Event] | None] = [None] * THREADS
    ready = [threading.Semaphore(0) for _ in range(THREADS)]

    def work(index: int) -> None:
        stream = torch.neuron.Stream()
        for _ in range(rounds):
            with torch.neuron.stream(stream):
                ready[index].acquire()
                given = slots[index]
                assert given is not None
                tensor, event = given
                stream.wait_event(event)
                tensor = tensor + 1
                done = torch.neuron.Event()
                done.record(stream)
            following = (index + 1) % THREADS
            slots[following] = (tensor, done)
            ready[following].release()

    event = torch.neuron.Event()
    start = torch.zeros(1000, device="neuron")
    event.record()
    slots[0] = (start, event)
    ready[0].release()
    all_at_once(work)
    final = slots[0]
    assert final is not None
    final[1].synchronize()
    assert final[0].eq(rounds * THREADS).all().item()


def test_the_allocator() -> None:
    """Blocks are never handed out twice: each thread finds its own pattern in all that it holds."""
    allocated = torch.neuron.memory_allocated()

    def work(index: int) -> None:
        rng = random.Random(index)
        held: list[tuple[torch.Tensor, int]] = []
        with torch.neuron.stream(torch.neuron.Stream()):
            for step in range(60):
                number = index * 1000 + step
                held.append((torch.full((rng.randint(1, 60_000),), number, device="neuron"), number))
                if len(held) > 8:
                    tensor, expected = held.pop(rng.randrange(len(held)))
                    assert tensor.eq(expected).all().item()
                if step % 20 == 19:
                    torch.neuron.empty_cache()
            for tensor, expected in held:
                assert tensor.eq(expected).all().item()

    all_at_once(work)
    torch.neuron.synchronize()
    assert torch.neuron.memory_allocated() == allocated


def test_looking_while_others_work() -> None:
    stop = threading.Event()

    def work(index: int) -> None:
        if index == 0:
            try:
                for _ in range(100):
                    torch.neuron.memory_stats()
                    torch.neuron.memory_snapshot()
                    _C.plan_cache_stats()
                    _C.drains()
                    torch.neuron.current_stream().query()
                    torch.neuron.synchronize()
            finally:
                stop.set()
            return
        value = torch.zeros(10 + index, device="neuron")
        count = 0
        while not stop.is_set():
            value.add_(1)
            count += 1
        assert value.eq(count).all().item()

    all_at_once(work)
