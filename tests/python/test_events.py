"""Events: recordings, waits that bind to them, times."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from gates import Hold


@pytest.fixture
def side() -> torch.neuron.Stream:
    return torch.neuron.Stream()


def timed() -> torch.neuron.Event:
    return torch.neuron.Event(enable_timing=True)


def test_event_follows_its_stream(hold: Hold, either_policy: bool) -> None:
    event = torch.neuron.Event()
    value = torch.zeros(3, device="neuron")
    gate = hold()
    value.add_(1)
    event.record()
    value.add_(1)
    assert not event.query()
    gate.open()
    event.synchronize()
    assert event.query()
    assert value.tolist() == [2] * 3


def test_event_is_done_before_what_follows_it(hold: Hold) -> None:
    event = torch.neuron.Event()
    event.record()
    gate = hold()
    event.synchronize()
    assert event.query()
    gate.open()


def test_wait_orders_another_stream(hold: Hold, side: torch.Stream, either_policy: bool) -> None:
    value = torch.zeros(3, device="neuron")
    event = torch.neuron.Event()
    gate = hold()
    value.fill_(4)
    event.record()
    side.wait_event(event)
    with torch.neuron.stream(side):
        result = value + 1
    assert not side.query()
    gate.open()
    side.synchronize()
    assert result.tolist() == [5] * 3


def test_event_wait_method(hold: Hold, side: torch.Stream) -> None:
    event = torch.neuron.Event()
    gate = hold()
    event.record()
    event.wait(side)
    other = torch.neuron.Stream()
    with torch.neuron.stream(other):
        event.wait()
    assert not side.query()
    assert not other.query()
    gate.open()
    side.synchronize()
    other.synchronize()


def test_wait_binds_to_the_recording_that_it_saw(hold: Hold, side: torch.Stream) -> None:
    """Recording the event again does not move a wait: neither to a later recording, nor away from an earlier one."""
    main = torch.neuron.default_stream()
    event = torch.neuron.Event()
    event.record(main)
    side.wait_event(event)
    gate = hold(main)
    event.record(main)
    side.synchronize()  # bound to the first recording, else this would wait for ever
    assert not event.query()
    gate.open()
    main.synchronize()

    gate = hold(main)
    event.record(main)
    side.wait_event(event)
    event.record(torch.neuron.Stream())  # done at once
    event.synchronize()
    assert not side.query(), "the wait has moved to a later recording"
    gate.open()
    side.synchronize()


def test_synchronize_blocks_the_host(hold: Hold) -> None:
    event = torch.neuron.Event()
    gate = hold()
    event.record()
    thread = threading.Thread(target=event.synchronize)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    gate.open()
    thread.join()
    assert event.query()


def test_event_that_was_never_recorded(side: torch.Stream) -> None:
    event = torch.neuron.Event()
    assert event.query()
    event.synchronize()
    event.wait(side)
    side.wait_event(event)
    assert side.query()


def test_record_event_of_a_stream(hold: Hold, side: torch.Stream) -> None:
    gate = hold(side)
    event = side.record_event()
    assert isinstance(event, torch.neuron.Event)
    assert not event.query()
    own = torch.neuron.Event()
    assert side.record_event(own) is own
    gate.open()
    own.synchronize()
    assert event.query()


def test_event_of_another_device(hold: Hold) -> None:
    there = torch.neuron.default_stream("neuron:1")
    event = torch.neuron.Event()
    gate = hold(there)
    event.record(there)
    torch.neuron.current_stream().wait_event(event)
    assert not torch.neuron.current_stream().query()
    assert not event.query()
    gate.open()
    torch.neuron.synchronize()
    assert event.query()


def test_generic_events(hold: Hold) -> None:
    event = torch.Event("neuron")
    gate = hold()
    event.record()
    assert not event.query()
    gate.open()
    event.synchronize()
    assert event.query()
    stream = torch.Stream("neuron")
    stream.wait_event(event)
    first, second = torch.Event("neuron", enable_timing=True), torch.Event("neuron", enable_timing=True)
    first.record()
    second.record()
    second.synchronize()
    assert first.elapsed_time(second) >= 0


def test_an_event_outlives_its_object(hold: Hold, side: torch.Stream) -> None:
    gate = hold()
    event = torch.neuron.Event(enable_timing=True)
    event.record()
    side.wait_event(event)
    del event
    assert not side.query()
    gate.open()
    side.synchronize()


# Times


def test_elapsed_time_in_a_loop() -> None:
    """Field case 46: right and never negative, a thousand times."""
    value = torch.zeros(64, device="neuron")
    for _ in range(1000):
        start, end = timed(), timed()
        start.record()
        value.add_(1)
        end.record()
        torch.neuron.synchronize()
        assert 0 <= start.elapsed_time(end) < 60_000
        assert start.elapsed_time(start) == 0
    assert value[0].item() == 1000


def test_elapsed_time_spans_what_it_must(hold: Hold) -> None:
    """Between bounds that follow from causes: what the host saw pass inside, and what it saw pass outside."""
    start, end = timed(), timed()
    before = time.monotonic_ns()
    start.record()
    start.synchronize()
    inner = time.monotonic_ns()
    gate = hold()
    end.record()
    assert not end.query()
    held_ns = time.monotonic_ns() - inner
    gate.open()
    end.synchronize()
    whole_ns = time.monotonic_ns() - before
    assert held_ns / 1e6 - 1e-3 <= start.elapsed_time(end) <= whole_ns / 1e6 + 1e-3


def test_elapsed_time_takes_the_last_recording(hold: Hold) -> None:
    start, end = timed(), timed()
    start.record()
    end.record()
    gate = hold()
    end.record()
    with pytest.raises(RuntimeError, match="not completed|not ready|has not"):
        start.elapsed_time(end)
    gate.open()
    end.synchronize()
    assert start.elapsed_time(end) >= 0


def test_elapsed_time_across_streams(side: torch.Stream) -> None:
    start, end = timed(), timed()
    start.record()
    side.wait_event(start)
    end.record(side)
    end.synchronize()
    assert start.elapsed_time(end) >= 0


def test_elapsed_time_errors(hold: Hold) -> None:
    start, end = timed(), timed()
    with pytest.raises(RuntimeError, match="recorded"):
        start.elapsed_time(end)
    start.record()
    with pytest.raises(RuntimeError, match="recorded"):
        start.elapsed_time(end)
    plain = torch.neuron.Event()
    plain.record()
    torch.neuron.synchronize()
    for first, second in ((start, plain), (plain, start), (plain, plain)):
        with pytest.raises(RuntimeError, match="Event was not created with timing enabled"):
            first.elapsed_time(second)
    gate = hold()
    end.record()
    assert not end.query(), "query does not block"
    with pytest.raises(RuntimeError, match="not completed|not ready|has not"):
        start.elapsed_time(end)
    gate.open()
    end.synchronize()
    with pytest.raises((TypeError, RuntimeError, AttributeError)):
        start.elapsed_time("end")


def test_arguments() -> None:
    event = torch.neuron.Event(enable_timing=True, blocking=True)
    event.record(torch.neuron.current_stream())
    event.synchronize()
    with pytest.raises((ValueError, RuntimeError)):
        torch.neuron.Event(interprocess=True)
    with pytest.raises((TypeError, RuntimeError, AttributeError)):
        event.record("stream")
    assert "neuron" in repr(event)
