"""Errors of commands: kept by the stream, carried to those that wait, raised once, by name; then all is well again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from gates import Hold
from scripts import run_script

from neuron_emu import _C

# (the name in the message, the failing call, the CPU's exception)
FAILURES: dict[str, tuple[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor], type[Exception]]] = {
    "gather": ("aten::gather", lambda table, index: table.gather(0, index), RuntimeError),
    "index_select": ("aten::index_select", lambda table, index: table.index_select(0, index[:, 0]), IndexError),
    "embedding": ("aten::", lambda table, index: torch.nn.functional.embedding(index[:, 0], table), IndexError),
    "index_put": ("aten::", lambda table, index: table.index_put_((index[:, 0],), table[:2] + 1), IndexError),
    "scatter": ("aten::scatter", lambda table, index: table.scatter_(0, index, 1.0), RuntimeError),
}


def good() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(12.0, device="neuron").view(4, 3), torch.tensor([[0, 0, 0], [1, 1, 1]], device="neuron")


def bad_index() -> torch.Tensor:
    return torch.full((2, 3), 99, device="neuron")


@pytest.fixture(params=FAILURES.values(), ids=FAILURES.keys())
def failure(request: pytest.FixtureRequest, queued: bool) -> tuple[str, Callable[..., torch.Tensor], type[Exception]]:
    """A call whose kernel fails for its values only: once it has a plan, the failure happens on the stream."""
    call = request.param[1]
    for _ in range(2):
        call(*good())
    torch.neuron.synchronize()
    return request.param


def gather(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return table.gather(0, index)


@pytest.fixture
def asynchronous(queued: bool) -> None:
    """`gather` has its plan, and commands run on the stream's thread."""
    for _ in range(2):
        gather(*good())
    torch.neuron.synchronize()


def test_raised_at_the_next_synchronize_by_name_and_once(
    hold: Hold, failure: tuple[str, Callable[..., torch.Tensor], type[Exception]]
) -> None:
    name, call, kind = failure
    table, index = good()[0], bad_index()
    gate = hold()
    call(table, index)  # does not raise: the host is ahead
    gate.open()
    with pytest.raises(kind, match=name) as raised:
        torch.neuron.synchronize()
    assert type(raised.value) is kind
    torch.neuron.synchronize()
    assert torch.ones(3, device="neuron").sum().item() == 3


@pytest.mark.parametrize(
    "read",
    [
        lambda tensor: tensor.cpu(),
        lambda tensor: tensor[0, 0].item(),
        lambda tensor: tensor.tolist(),
        lambda tensor: repr(tensor),
        lambda tensor: bool(tensor.sum() > 0),
        lambda tensor: tensor.nonzero(),
        lambda tensor: torch.neuron.current_stream().synchronize(),
        lambda tensor: torch.neuron.current_stream().record_event().synchronize(),
        lambda tensor: torch.accelerator.synchronize(),
    ],
    ids=["cpu", "item", "tolist", "repr", "bool", "nonzero", "stream", "event", "accelerator"],
)
def test_raised_by_whatever_the_host_waits_with(asynchronous: None, read: Callable[[torch.Tensor], object]) -> None:
    result = gather(good()[0], bad_index())
    with pytest.raises(RuntimeError, match="aten::gather"):
        read(result)
    torch.neuron.synchronize()


def test_travels_to_streams_that_waited(asynchronous: None, hold: Hold) -> None:
    """Raised at a stream that waited, once for all that it reached."""
    side, third, stranger = (torch.neuron.Stream() for _ in range(3))
    main = torch.neuron.default_stream()
    table, index = good()[0], bad_index()
    torch.neuron.synchronize()
    gate = hold(side)
    with torch.neuron.stream(side):
        gather(table, index)
    event = side.record_event()
    main.wait_stream(side)
    third.wait_event(event)
    gate.open()
    stranger.synchronize()
    with pytest.raises(RuntimeError, match="aten::gather"):
        main.synchronize()
    third.synchronize()
    side.synchronize()
    torch.neuron.synchronize()


@pytest.mark.parametrize("how", ["stream", "event", "event_of_an_event"])
def test_travels_with_every_kind_of_wait(asynchronous: None, how: str) -> None:
    side, main = torch.neuron.Stream(), torch.neuron.default_stream()
    table, index = good()[0], bad_index()
    torch.neuron.synchronize()
    with torch.neuron.stream(side):
        gather(table, index)
    if how == "stream":
        main.wait_stream(side)
    elif how == "event":
        main.wait_event(side.record_event())
    else:
        between = torch.neuron.Stream()
        between.wait_event(side.record_event())
        main.wait_event(between.record_event())
    with pytest.raises(RuntimeError, match="aten::gather"):
        main.synchronize()
    side.synchronize()


def test_does_not_reach_a_stream_that_waited_before(asynchronous: None) -> None:
    side, main = torch.neuron.Stream(), torch.neuron.default_stream()
    table, index = good()[0], bad_index()
    torch.neuron.synchronize()
    main.wait_stream(side)
    with torch.neuron.stream(side):
        gather(table, index)
    main.synchronize()
    assert torch.ones(2, device="neuron").tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="aten::gather"):
        side.synchronize()


def test_later_commands_are_skipped(asynchronous: None, hold: Hold) -> None:
    """On the poisoned stream and on those that it reached, until the error is read; not on others."""
    side, stranger = torch.neuron.Stream(), torch.neuron.Stream()
    table, index, value, other, third = good()[0], bad_index(), *(torch.zeros(2, device="neuron") for _ in range(3))
    torch.neuron.synchronize()
    gate = hold(side)
    with torch.neuron.stream(side):
        value.fill_(1)
        gather(table, index)
        value.fill_(2)
    torch.neuron.current_stream().wait_stream(side)
    other.fill_(2)
    with torch.neuron.stream(stranger):
        third.fill_(2)
    gate.open()
    with pytest.raises(RuntimeError, match="aten::gather"):
        torch.neuron.synchronize()
    assert value.tolist() == [1, 1]
    assert other.tolist() == [0, 0]
    assert third.tolist() == [2, 2]
    value.fill_(3)
    assert value.tolist() == [3, 3]


def test_several_errors_are_raised_one_by_one(asynchronous: None) -> None:
    streams = [torch.neuron.Stream() for _ in range(3)]
    table, index = good()[0], bad_index()
    torch.neuron.synchronize()
    for stream in streams:
        with torch.neuron.stream(stream):
            gather(table, index)
    for stream in streams:
        with pytest.raises(RuntimeError, match="aten::gather"):
            stream.synchronize()
    torch.neuron.synchronize()


def test_another_device_is_not_affected(asynchronous: None) -> None:
    gather(good()[0], bad_index())
    torch.neuron.synchronize("neuron:1")
    assert torch.ones(2, device="neuron:1").tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="aten::gather"):
        torch.neuron.synchronize("neuron:0")


def test_in_backward(asynchronous: None) -> None:
    """A failure in backward's own kernels, and reading a gradient that was never made."""
    table = good()[0].requires_grad_()
    for index in (good()[1], good()[1]):
        gather(table, index).sum().backward()
    torch.neuron.synchronize()
    table.grad = None
    gather(table, bad_index()).sum().backward()
    with pytest.raises(RuntimeError, match="aten::gather|aten::scatter"):
        table.grad.tolist()
    torch.neuron.synchronize()
    table.grad = None
    gather(table, good()[1]).sum().backward()
    assert table.grad.sum().item() == 6


def test_a_device_stays_usable_over_many_errors(asynchronous: None) -> None:
    before = _C.memory_stats(0)["allocated_bytes"]["current"]
    for _ in range(200):
        gather(good()[0], bad_index())
        with pytest.raises(RuntimeError):
            torch.neuron.synchronize()
    assert gather(*good()).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert _C.memory_stats(0)["allocated_bytes"]["current"] == before


def test_launch_blocking_raises_at_the_call() -> None:
    out = run_script(
        """
    _C.set_inline(False)
    table = torch.arange(12.0, device="neuron").view(4, 3)
    for index in (0, 1, 2):
        table.gather(0, torch.full((2, 3), index, device="neuron"))
    bad = torch.full((2, 3), 99, device="neuron")
    try:
        table.gather(0, bad)
        print("went on")
    except RuntimeError as error:
        print("raised at the call" if "gather" in str(error) else error)
    torch.neuron.synchronize()
    try:
        with torch.neuron.stream(torch.neuron.Stream()):
            table.gather(0, bad)
        print("went on")
    except RuntimeError as error:
        print("raised at the call" if "gather" in str(error) else error)
    print(table.sum().item())
    """,
        {"NEURON_LAUNCH_BLOCKING": "1"},
    )
    assert out.splitlines() == ["raised at the call", "raised at the call", "66.0"]


def test_an_unread_error_does_not_disturb_the_exit() -> None:
    run_script(
        """
    _C.set_inline(False)
    table = torch.arange(12.0, device="neuron").view(4, 3)
    for index in (0, 1, 2, 99):
        table.gather(0, torch.full((2, 3), index, device="neuron"))
    """
    )
