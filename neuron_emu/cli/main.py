"""Entry point of `neuron-emu`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from neuron_emu.cli import env, explain, info, nccom_test, rules

_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "info": info.run,
    "env": env.run,
    "rules": rules.run,
    "explain": explain.run,
    "nccom-test": nccom_test.run,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="neuron-emu",
        description="Software NeuronCores for PyTorch (emulated; not affiliated with AWS).",
        epilog="info: what would run here · env: every variable and its value · rules: the limits that are checked · "
        "explain: who diverged first, from the ranks' flight recorders · "
        "nccom-test: times collectives between software cores",
    )
    parser.add_argument("command", choices=_COMMANDS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    return _COMMANDS[chosen.command](chosen.rest)


if __name__ == "__main__":
    sys.exit(main())
