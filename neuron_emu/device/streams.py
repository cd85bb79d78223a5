"""Streams and events: torch.Stream and torch.Event of device `neuron`, and the current stream of a thread.

The order that they promise is in docs/streams_and_events.md.
"""

from __future__ import annotations

from types import TracebackType

import torch

from neuron_emu import _C
from neuron_emu.device.index import DeviceLike, checked_index, device_index
from neuron_emu.device.lazy import ensure_usable


class Stream(torch.Stream):
    """A sequence of commands of one device, in order; independent of other streams.

    `priority`: -1 (high), 0 or 1 (low). With TORCH_NEURONX_ENABLE_STREAMS=0 every stream is the default one.
    query and synchronize are torch.Stream's own.
    """

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **ids: int) -> Stream:
        if ids:
            return super().__new__(cls, **ids)
        index = checked_index(device)
        ensure_usable()
        return super().__new__(cls, torch.device("neuron", index), priority=priority)

    def wait_event(self, event: torch.Event) -> None:
        """Orders all that is submitted to this stream from now on after the event's present recording."""
        event.wait(self)

    def wait_stream(self, stream: torch.Stream) -> None:
        """Orders all that is submitted to this stream from now on after all that `stream` has been given so far."""
        self.wait_event(stream.record_event())

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Records `event`, or a new one without timing, at the present end of this stream."""
        if event is None:
            event = Event()
        event.record(self)
        return event

    def __eq__(self, other: object) -> bool:
        # torch.Stream compares with whatever it is given as if it were a stream.
        return isinstance(other, torch.Stream) and super().__eq__(other)

    __hash__ = torch.Stream.__hash__

    def __repr__(self) -> str:
        return f"torch.neuron.Stream(device={self.device}, stream_id={self.stream_id})"


class Event(torch.Event):
    """A mark in a stream, that the host and other streams can wait for. `blocking` is accepted and has no effect.

    record, wait, query and synchronize are torch.Event's own.
    """

    _timing: bool

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Event:
        if interprocess:
            raise ValueError("An event of device 'neuron' cannot be shared between processes")
        event = super().__new__(cls, torch.device("neuron"), enable_timing=enable_timing, blocking=blocking)
        event._timing = enable_timing
        return event

    def elapsed_time(self, other: torch.Event) -> float:
        """Milliseconds from this event to `other`. Raises RuntimeError unless both were made with enable_timing, have
        been recorded and have been reached."""
        if not isinstance(other, torch.Event):
            raise TypeError(f"Expected an event, got {type(other).__name__}")
        if not (self._timing and getattr(other, "_timing", True)):
            raise RuntimeError("Event was not created with timing enabled")
        return _C.event_elapsed_ms(self.event_id, other.event_id)

    def __repr__(self) -> str:
        return f"torch.neuron.Event(device={self.device}, enable_timing={self._timing})"


def _wrapped(ids: tuple[int, int, int]) -> Stream:
    stream_id, index, device_type = ids
    return Stream(stream_id=stream_id, device_index=index, device_type=device_type)


def current_stream(device: DeviceLike = None) -> Stream:
    """The stream on which this thread submits to the device."""
    return _wrapped(_C.current_stream(device_index(device)))


def default_stream(device: DeviceLike = None) -> Stream:
    return _wrapped(_C.default_stream(device_index(device)))


def set_stream(stream: torch.Stream | None) -> None:
    """Makes `stream`, and its device, the current ones of this thread. `stream()` also puts them back."""
    if stream is None:
        return
    if stream.device.type != "neuron":
        raise ValueError(f"Expected neuron device, got a stream of {stream.device}")
    _C.set_device(stream.device_index)
    _C.set_stream(stream.stream_id, stream.device_index, stream.device_type)


class StreamContext:
    """`with torch.neuron.stream(s):` makes s current, and puts back what was current before. None does nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._previous: list[tuple[int, Stream]] = []

    def __enter__(self) -> torch.Stream | None:
        if self.stream is not None:
            device = _C.current_device()
            previous = current_stream(self.stream.device)
            set_stream(self.stream)
            self._previous.append((device, previous))
        return self.stream

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.stream is not None:
            device, previous = self._previous.pop()
            set_stream(previous)
            _C.set_device(device)


def stream(stream: torch.Stream | None) -> StreamContext:
    return StreamContext(stream)


def synchronize(device: DeviceLike = None) -> None:
    """Waits for all streams of the device, and raises the first error that they met."""
    _C.synchronize(device_index(device))
