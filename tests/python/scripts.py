"""Programs in an interpreter of their own: for what a process does once, and for what may end one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence

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


_FORKS = """
import json, os, sys, traceback
import torch
for changes in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        os.environ.update(changes)
        try:
            import torch_neuronx
            exec(sys.argv[2])
        except BaseException:
            traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    print(end="\\0", flush=True)
"""


def run_in_environments(body: str, environments: Sequence[Mapping[str, str]], timeout: float = 120) -> list[str]:
    """Runs the program once in each environment; gives what each printed, a traceback included. Forks, to import torch
    once only.
    """
    done = subprocess.run(
        [sys.executable, "-c", _FORKS, json.dumps(list(environments)), textwrap.dedent(body)],
        env=environment({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}),
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    outputs = done.stdout.split("\0")[:-1]
    assert len(outputs) == len(environments), done.stdout + done.stderr
    return outputs
