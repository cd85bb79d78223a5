"""The flight recorder on request: the last calls of this process in its groups, as PyTorch's analyzer reads them."""

from __future__ import annotations

import os


def dump_flight_recorder(
    path: str | os.PathLike[str] | None = None,
    *,
    include_collectives: bool = True,
    include_stack_traces: bool = True,
    only_active: bool = False,
) -> bytes:
    """The pickled dump, also written to `path` when one is given.

    Of this rank only; it waits for nobody. Raises RuntimeError when the file cannot be written. With the recorder off
    (TORCH_FR_BUFFER_SIZE=0) the dump holds no calls.
    """
    from neuron_emu import _C

    dump = _C.flight_dump(include_collectives, include_stack_traces, only_active)
    if path is not None:
        _C.write_flight_dump(os.fspath(path), dump)
    return dump


def failure_dump_path() -> str:
    """Where this rank's dump goes when a group fails (TORCH_FR_DUMP_TEMP_FILE and the rank).

    Empty before the first call.
    """
    from neuron_emu import _C

    return _C.flight_dump_path()
