"""Streams: the written contract, word by word. Order is proved with gates that hold commands back."""

from __future__ import annotations

import threading

import pytest
import torch
from gates import Hold
from scripts import run_script

from neuron_emu import _C


@pytest.fixture
def side() -> torch.neuron.Stream:
    return torch.neuron.Stream()


@pytest.fixture
def main() -> torch.neuron.Stream:
    return torch.neuron.default_stream()


def blocks(call: object, gate: _C.Gate) -> bool:
    """Whether `call` waits for the gate. Opens it."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(0.1)
    waited = thread.is_alive()
    gate.open()
    thread.join()
    return waited


# Order


def test_a_held_stream_holds_neither_the_host_nor_other_streams(
    hold: Hold, main: torch.Stream, side: torch.Stream, either_policy: bool
) -> None:
    on_main, on_side = torch.zeros(4, device="neuron"), torch.zeros(4, device="neuron")
    torch.neuron.synchronize()
    gate = hold(main)
    on_main.add_(1)  # the host goes on
    result = on_main * 2
    with torch.neuron.stream(side):
        on_side.add_(5)
        assert on_side.tolist() == [5] * 4, "another stream goes on, to the end"
    assert side.query()
    assert not main.query()
    gate.open()
    assert result.tolist() == [2] * 4
    assert main.query()


def test_commands_of_a_stream_run_in_order(hold: Hold, either_policy: bool) -> None:
    value = torch.ones(3, device="neuron")
    gate = hold()
    for _ in range(10):
        value.mul_(2).sub_(1.5)
    expected = torch.ones(3)
    for _ in range(10):
        expected.mul_(2).sub_(1.5)
    gate.open()
    assert torch.equal(value.cpu(), expected)


def test_wait_stream(hold: Hold, main: torch.Stream, side: torch.Stream, either_policy: bool) -> None:
    value = torch.zeros(3, device="neuron")
    gate = hold(main)
    value.fill_(2)
    side.wait_stream(main)
    with torch.neuron.stream(side):
        result = value * 3
    assert not side.query(), "the side stream did not wait"
    gate.open()
    side.synchronize()
    assert result.tolist() == [6] * 3


def test_wait_stream_waits_for_what_was_submitted_before_it_only(
    hold: Hold, main: torch.Stream, side: torch.Stream
) -> None:
    value = torch.zeros(3, device="neuron")
    side.wait_stream(main)
    gate = hold(main)
    value.fill_(9)
    with torch.neuron.stream(side):
        other = torch.ones(3, device="neuron") * 3
    side.synchronize()  # would wait for ever
    assert not main.query()
    gate.open()
    torch.neuron.synchronize()
    assert other.tolist() == [3] * 3


def test_waits_chain(hold: Hold, main: torch.Stream) -> None:
    """a -> b -> c: holding a holds c, although c never named it."""
    first, second, third = (torch.neuron.Stream() for _ in range(3))
    value = torch.zeros(2, device="neuron")
    torch.neuron.synchronize()
    gate = hold(first)
    with torch.neuron.stream(first):
        value.add_(1)
    second.wait_stream(first)
    with torch.neuron.stream(second):
        value.mul_(10)
    third.wait_stream(second)
    with torch.neuron.stream(third):
        value.add_(3)
    assert not third.query()
    gate.open()
    third.synchronize()
    assert first.query()
    assert second.query()
    assert value.tolist() == [13, 13]


def test_waiting_for_itself_is_nothing(hold: Hold, side: torch.Stream) -> None:
    gate = hold(side)
    side.wait_stream(side)
    side.wait_event(side.record_event())
    gate.open()
    side.synchronize()


def test_streams_of_different_devices_wait_for_each_other(hold: Hold) -> None:
    here, there = torch.neuron.Stream("neuron:0"), torch.neuron.Stream("neuron:1")
    value = torch.zeros(2, device="neuron:1")
    torch.neuron.synchronize("neuron:1")
    gate = hold(here)
    there.wait_stream(here)
    with torch.neuron.stream(there):
        assert torch.neuron.current_device() == 1
        value.add_(1)
    assert not there.query()
    gate.open()
    there.synchronize()
    assert value.tolist() == [1, 1]
    assert torch.neuron.current_device() == 0


def test_opposite_orders_of_submission_by_threads(hold: Hold) -> None:
    """Two threads submit to the same two streams in opposite orders, with waits both ways: all of it ends."""
    streams = [torch.neuron.Stream(), torch.neuron.Stream()]
    values = [torch.zeros(8, device="neuron") for _ in range(2)]
    torch.neuron.synchronize()

    def work(first: int, second: int, own: torch.Tensor) -> None:
        for _ in range(200):
            with torch.neuron.stream(streams[first]):
                own.add_(1)
            streams[second].wait_stream(streams[first])
            with torch.neuron.stream(streams[second]):
                own.mul_(1)
            streams[first].wait_stream(streams[second])

    threads = [threading.Thread(target=work, args=(i, 1 - i, values[i])) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.neuron.synchronize()
    assert [value.tolist() for value in values] == [[200] * 8] * 2


# Host waits


def test_query_is_false_while_a_command_runs(hold: Hold, side: torch.Stream) -> None:
    assert side.query()
    gate = hold(side)
    submitted, completed = _C.stream_positions(side.stream_id, side.device_index)
    assert submitted == completed + 1, "nothing is queued behind the command that runs"
    assert not side.query()
    gate.open()
    side.synchronize()
    assert side.query()


def test_synchronize_of_a_stream_waits_for_that_stream_only(hold: Hold, main: torch.Stream, side: torch.Stream) -> None:
    gate = hold(main)
    side.synchronize()
    assert blocks(main.synchronize, gate)


@pytest.mark.parametrize(
    "synchronize",
    [
        lambda: torch.neuron.synchronize(),
        lambda: torch.neuron.synchronize("neuron:0"),
        lambda: torch.accelerator.synchronize(),
    ],
    ids=["current", "named", "accelerator"],
)
def test_synchronize_of_a_device_waits_for_all_streams(hold: Hold, side: torch.Stream, synchronize: object) -> None:
    assert blocks(synchronize, hold(side))


def test_synchronize_of_a_device_leaves_others_alone(hold: Hold) -> None:
    gate = hold(torch.neuron.default_stream("neuron:1"))
    torch.neuron.synchronize("neuron:0")
    torch.neuron.synchronize()
    gate.open()


def test_host_reads_wait_for_the_current_stream_only(hold: Hold, main: torch.Stream, side: torch.Stream) -> None:
    value = torch.ones(3, device="neuron")
    torch.neuron.synchronize()
    gate = hold(side)
    assert value.sum().item() == 3
    assert value.tolist() == [1, 1, 1]
    gate.open()


def test_run_ahead_is_bounded() -> None:
    out = run_script(
        """
    x = torch.zeros(4, device="neuron")
    torch.neuron.synchronize()
    _C.set_inline(False)
    gate = _C.hold_stream(0, 0)
    done = []
    def submit():
        for _ in range(100):
            x.add_(1)
            done.append(1)
    thread = threading.Thread(target=submit)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive(), "100 commands were taken with a limit of 8"
    submitted, completed = _C.stream_positions(0, 0)
    assert submitted - completed <= 10, (submitted, completed)
    gate.open()
    thread.join()
    print(x.tolist())
    """,
        {"NEURON_EMU_MAX_COMMANDS_AHEAD": "8"},
    )
    assert out.strip() == str([100.0] * 4)


def test_run_ahead_is_bounded_in_bytes() -> None:
    """Snapshots of host memory count: a loop of copies cannot take the host's memory."""
    out = run_script(
        """
    x = torch.zeros(1 << 18, device="neuron")
    torch.neuron.synchronize()
    _C.set_inline(False)
    gate = _C.hold_stream(0, 0)
    def submit():
        for i in range(20):
            x.copy_(torch.full((1 << 18,), float(i)))
    thread = threading.Thread(target=submit)
    thread.start()
    thread.join(0.5)
    assert thread.is_alive(), "20 MiB of snapshots were taken with a limit of 4 MiB"
    gate.open()
    thread.join()
    print(x[0].item(), x[-1].item())
    """,
        {"NEURON_EMU_MAX_BYTES_AHEAD": "4M"},
    )
    assert out.split() == ["19.0", "19.0"]


# Memory across streams


def test_memory_is_not_reused_under_another_stream(
    hold: Hold, main: torch.Stream, side: torch.Stream, queued: bool
) -> None:
    """A freed block that another stream still reads is not handed out, with no call to record_stream."""
    source = torch.ones(1000, device="neuron")
    pointer = source.data_ptr()
    side.wait_stream(main)
    gate = hold(side)
    with torch.neuron.stream(side):
        copy = source.clone()
    del source
    others = [torch.full((1000,), 7.0, device="neuron") for _ in range(8)]
    assert pointer not in [other.data_ptr() for other in others]
    main.synchronize()
    gate.open()
    side.synchronize()
    assert copy.eq(1).all().item()
    assert pointer in [torch.empty(1000, device="neuron").data_ptr() for _ in range(64)] or _reusable(pointer)


def _reusable(pointer: int) -> bool:
    kept = [torch.empty(1000, device="neuron") for _ in range(256)]
    return pointer in [tensor.data_ptr() for tensor in kept]


def test_record_stream(hold: Hold, main: torch.Stream, side: torch.Stream, queued: bool) -> None:
    """A use that the device cannot see (by pointer, by a foreign kernel) is announced with record_stream."""
    tensor = torch.ones(1000, device="neuron")
    pointer = tensor.data_ptr()
    gate = hold(side)
    tensor.record_stream(side)
    del tensor
    assert pointer not in [torch.empty(1000, device="neuron").data_ptr() for _ in range(8)]
    gate.open()
    side.synchronize()
    assert _reusable(pointer)


def test_same_stream_reuse_is_immediate(hold: Hold, queued: bool) -> None:
    """However many commands are still to run on it: their order makes it safe. Else run-ahead would raise the peak."""
    hold()
    first = torch.zeros(1000, device="neuron")
    first.add_(1)
    pointer = first.data_ptr()
    del first
    assert torch.empty(1000, device="neuron").data_ptr() == pointer


def test_a_tensor_made_on_a_side_stream_is_used_on_the_default_one(
    hold: Hold, main: torch.Stream, side: torch.Stream
) -> None:
    gate = hold(side)
    with torch.neuron.stream(side):
        made = torch.ones(1000, device="neuron")
    main.wait_stream(side)
    result = made + 1
    del made
    with torch.neuron.stream(side):
        torch.full((1000,), 5.0, device="neuron")
    gate.open()
    assert result.eq(2).all().item()


# Choosing a stream


def test_stream_context() -> None:
    default = torch.neuron.default_stream()
    assert torch.neuron.current_stream() == default
    first, second = torch.neuron.Stream(), torch.neuron.Stream()
    with torch.neuron.stream(first) as entered:
        assert entered is first
        assert torch.neuron.current_stream() == first
        with torch.neuron.stream(second):
            assert torch.neuron.current_stream() == second
        assert torch.neuron.current_stream() == first
        with torch.neuron.stream(None):
            assert torch.neuron.current_stream() == first
        with pytest.raises(ZeroDivisionError), torch.neuron.stream(second):
            _ = 1 / 0
        assert torch.neuron.current_stream() == first
    assert torch.neuron.current_stream() == default
    with first:
        assert torch.neuron.current_stream() == first
    assert torch.neuron.current_stream() == default
    torch.neuron.set_stream(second)
    assert torch.neuron.current_stream() == second
    torch.neuron.set_stream(default)


def test_stream_context_changes_the_device_and_back() -> None:
    there = torch.neuron.Stream("neuron:1")
    with torch.neuron.stream(there):
        assert torch.neuron.current_device() == 1
        assert torch.neuron.current_stream() == there
        assert torch.neuron.current_stream(0) == torch.neuron.default_stream(0)
        assert torch.empty(1, device="neuron").device.index == 1
    assert torch.neuron.current_device() == 0
    assert torch.neuron.current_stream(1) == torch.neuron.default_stream(1)


def test_streams_are_values() -> None:
    stream, other = torch.neuron.Stream(), torch.neuron.Stream()
    assert stream == stream
    assert stream != other
    assert stream != "stream"
    assert len({stream, other, stream, torch.neuron.default_stream()}) == 3
    assert stream.device == torch.device("neuron", 0)
    assert stream.device_index == 0
    assert torch.neuron.default_stream() == torch.neuron.default_stream()
    assert hash(torch.neuron.default_stream()) == hash(torch.neuron.current_stream())
    same = torch.neuron.Stream(
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
    )
    assert same == stream
    for priority in (-1, 0, 1):
        assert torch.neuron.Stream(priority=priority).query()
    generic = torch.Stream("neuron:0")
    with generic:
        assert torch.neuron.current_stream() == generic
    assert torch.Stream("neuron").device.type == "neuron"
    assert "neuron" in repr(stream)


@pytest.mark.parametrize("device", ["cpu", "cuda", 64, "neuron:64", 3.5])
def test_bad_stream_devices(device: object) -> None:
    with pytest.raises((ValueError, RuntimeError, TypeError)):
        torch.neuron.Stream(device)


def test_bad_waits(side: torch.Stream) -> None:
    for wrong in (None, "event", 3):
        with pytest.raises((TypeError, AttributeError, RuntimeError)):
            side.wait_event(wrong)
        with pytest.raises((TypeError, AttributeError, RuntimeError)):
            side.wait_stream(wrong)
    side.synchronize()


def test_streams_come_from_a_bounded_pool() -> None:
    """Threads and ids do not grow with the number of Stream objects."""
    streams = [torch.neuron.Stream() for _ in range(200)]
    assert len({stream.stream_id for stream in streams}) == 32
    value = torch.zeros(1, device="neuron")
    torch.neuron.synchronize()
    for before, stream in zip([torch.neuron.default_stream(), *streams], streams, strict=False):
        stream.wait_stream(before)
        with torch.neuron.stream(stream):
            value.add_(1)
    torch.neuron.synchronize()
    assert value.item() == 200


def test_threads_have_their_own_current_stream(side: torch.Stream) -> None:
    seen: list[torch.Stream] = []

    def look() -> None:
        seen.append(torch.neuron.current_stream())
        torch.neuron.set_stream(side)
        seen.append(torch.neuron.current_stream())

    with torch.neuron.stream(torch.neuron.Stream()) as stream:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert torch.neuron.current_stream() == stream
    assert seen == [torch.neuron.default_stream(), side]


def test_streams_disabled() -> None:
    out = run_script(
        """
    default = torch.neuron.default_stream()
    streams = [torch.neuron.Stream(), torch.neuron.Stream(priority=-1), torch.Stream("neuron")]
    assert all(stream == default for stream in streams)
    with torch.neuron.stream(streams[0]):
        assert torch.neuron.current_stream() == default
        x = torch.ones(2, device="neuron")
    streams[1].wait_stream(default)
    print((x + 1).tolist())
    """,
        {"TORCH_NEURONX_ENABLE_STREAMS": "0"},
    )
    assert out.strip() == "[2.0, 2.0]"
