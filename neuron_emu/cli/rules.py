"""`neuron-emu rules`: the product's limits that are checked, where each is said, and what breaking it does."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    argparse.ArgumentParser(prog="neuron-emu rules", description=__doc__).parse_args(arguments)
    import torch  # noqa: F401, the extension needs its libraries

    from neuron_emu.rules import rules

    for rule in rules():
        print(f"{rule.id} ({rule.level}; {rule.sdk_release}; not confirmed on hardware)")
        print(textwrap.fill(rule.text, 100, initial_indent="    ", subsequent_indent="    "))
        print(f"    {rule.source}")
    return 0
