"""`neuron-emu env`: every variable that has an effect or is accepted without one, and its value here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="neuron-emu env", description=__doc__)
    parser.add_argument("--set", action="store_true", help="only the variables that are set")
    only_set = parser.parse_args(arguments).set
    import torch  # noqa: F401, the extension needs its libraries

    from neuron_emu import _C

    for row in _C.environment_table():
        if only_set and row["value"] is None:
            continue
        value = row["value"] if row["value"] is not None else f"(not set: {row['default'] or 'none'})"
        effect = "" if row["effect"] == "honoured" else "[no effect] "
        print(f"{row['name']}={value}\n    {effect}{row['doc']}")
    problems = [*_C.environment_errors(), *_C.unknown_variables()]
    for problem in problems:
        print(f"error: {problem}")
    return 1 if problems else 0
