"""`neuron-emu nccom-test`: times collectives between software cores. Becomes the program, which knows no Python."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import neuron_emu


def program() -> Path | None:
    """The installed program; None where only the sources are."""
    # Several folders: an editable installation has the sources in one and what was built in another.
    for folder in neuron_emu.__path__:
        path = Path(folder) / "bin" / "nccom-test"
        if os.access(path, os.X_OK):
            return path
    return None


def run(arguments: Sequence[str]) -> int:
    path = program()
    if path is not None:
        sys.stdout.flush()
        os.execv(path, ["nccom-test", *arguments])
    looked = ", ".join(str(Path(folder) / "bin") for folder in neuron_emu.__path__)
    print(
        f"neuron-emu nccom-test: the program nccom-test is not in {looked}. "
        "Install the wheel, or run `make build` in a source tree.",
        file=sys.stderr,
    )
    return 1
