"""What the tests of this folder share: gates, both ways to run a command, a device that is clean after each test; and
environments with an installed wheel.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from environments import Environment, build_wheel, make_environment
from gates import Hold

import torch_neuronx  # noqa: F401  (registers the device where the distribution is not installed)
from neuron_emu import _C
from neuron_emu.autoload import kept_error


def pytest_configure() -> None:
    error = kept_error()
    if error is not None:
        raise error


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # What hangs here hangs in C++, where Python's signal handler never gets its turn: end the process instead.
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(method="thread"))


@pytest.fixture
def hold() -> Iterator[Hold]:
    """`gate = hold(stream)` holds what is submitted to the stream from now on until `gate.open()`.

    Without a stream: the current one. Gates that the test leaves closed are opened at its end.
    """
    gates = []

    def hold_stream(stream: torch.Stream | None = None) -> _C.Gate:
        stream = torch.neuron.current_stream() if stream is None else stream
        gates.append(_C.hold_stream(stream.stream_id, stream.device_index))
        return gates[-1]

    yield hold_stream
    for gate in gates:
        gate.open()


def _run_as(inline: bool) -> Iterator[bool]:
    before = _C.runs_inline()
    _C.set_inline(inline)
    yield inline
    _C.set_inline(before)


@pytest.fixture(params=[False, True], ids=["queued", "inline"])
def either_policy(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Runs the test twice: commands on the stream's thread, and on the submitting thread where that is allowed."""
    yield from _run_as(request.param)


@pytest.fixture
def queued() -> Iterator[bool]:
    """Every command on its stream's own thread, whatever the machine."""
    yield from _run_as(False)


@pytest.fixture(autouse=True)
def clean_device() -> Iterator[None]:
    """Leaves nothing queued, no error unread, and the first device and its default stream current.

    Set up first, so that it ends last: after `hold` has opened the gates.
    """
    yield
    leftovers = []
    for index in range(torch.neuron.device_count()):
        for _ in range(100):
            try:
                _C.synchronize(index)
                break
            except Exception as error:  # noqa: BLE001  (whatever a kernel may throw)
                leftovers.append(error)
        _C.set_stream(*_C.default_stream(index))
    torch.neuron.set_device(0)
    assert not leftovers, f"the test left errors on the device: {leftovers}"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    """An environment with neuron-emu; not to be changed."""
    made = make_environment(tmp_path_factory.mktemp("installed") / "venv")
    made.install(wheel)
    return made


@pytest.fixture
def own_copy(tmp_path: Path, installed: Environment) -> Environment:
    """The same, for a test that breaks something in it."""
    return installed.copy(tmp_path / "venv")
