"""Programs in an interpreter of their own: for what a process does once, and for what may end one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping

# Of the test's own environment; would change what a script sees.
_SCRUBBED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES")

_PREAMBLE = "import os, sys, threading\nimport torch\nimport torch_neuronx\nfrom neuron_emu import _C\n"


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _SCRUBBED}
    return {**kept, "NEURON_EMU_QUIET": "1", **(changes or {})}


def start_script(body: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", _PREAMBLE + textwrap.dedent(body)],
        env=environment(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_script(body: str, env: Mapping[str, str] | None = None, *, timeout: float = 120, fails: bool = False) -> str:
    """Runs the program; gives what it printed on stdout (stderr when it `fails`, as it must then)."""
    process = start_script(body, env)
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
        raise AssertionError(f"the script did not end within {timeout} s\n{stdout}\n{stderr}") from None
    assert (process.returncode != 0) == fails, f"exit {process.returncode}\n{stdout}\n{stderr}"
    return stderr if fails else stdout
