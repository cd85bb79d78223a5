"""Writes docs/environment.md from the one declaration of every variable, engine/base/env_vars.def.

With --check it writes nothing, and exits 1 when the file is out of date.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DECLARATION = ROOT / "engine" / "base" / "env_vars.def"
OUTPUT = ROOT / "docs" / "environment.md"

_TEXT = r'"((?:[^"\\]|\\.)*)"'
_HONOURED = re.compile(rf"^HONOURED\(\s*(\w+),\s*{_TEXT},\s*(\w+),\s*{_TEXT},\s*{_TEXT}\)", re.MULTILINE)
_ACCEPTED = re.compile(rf"^ACCEPTED\(\s*{_TEXT},\s*{_TEXT},\s*{_TEXT}\)", re.MULTILINE)

_INTRODUCTION = """\
# Environment variables

<!-- Written by tools/generate_env_docs.py from engine/base/env_vars.def; change it there. -->

Variables are read once, when the device is first used. A malformed value is an error that names the variable, its value
and what is allowed; a `NEURON_EMU_*` name that is not in this table gets a warning with the name that it may have been
meant to be. `neuron-emu env` prints all of them with their values.

"""


@dataclass(frozen=True)
class Variable:
    name: str
    kind: str
    default: str
    doc: str


def parse(text: str) -> tuple[list[Variable], list[Variable]]:
    """The variables with an effect, and those accepted without one, in the order of the file."""
    honoured = [Variable(name, kind, default, doc) for _, name, kind, default, doc in _HONOURED.findall(text)]
    accepted = [Variable(name, "", default, doc) for name, default, doc in _ACCEPTED.findall(text)]
    declared = len(re.findall(r"^(?:HONOURED|ACCEPTED)\(", text, re.MULTILINE))
    if declared != len(honoured) + len(accepted):
        raise ValueError(f"{declared} declarations, of which {len(honoured) + len(accepted)} are understood")
    return honoured, accepted


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _default(variable: Variable) -> str:
    return f"`{variable.default}`" if variable.default else "not set"


def render(text: str) -> str:
    honoured, accepted = parse(text)
    own = [variable for variable in honoured if variable.name.startswith("NEURON_EMU_")]
    product = [variable for variable in honoured if not variable.name.startswith("NEURON_EMU_")]
    lines = [_INTRODUCTION + "## Our own\n", "| variable | type | default | meaning |", "|---|---|---|---|"]
    lines += [f"| `{v.name}` | {v.kind} | {_default(v)} | {_cell(v.doc)} |" for v in own]
    lines += ["\n## The product's, the launcher's and PyTorch's, with an effect\n"]
    lines += ["| variable | type | default | meaning |", "|---|---|---|---|"]
    lines += [f"| `{v.name}` | {v.kind} | {_default(v)} | {_cell(v.doc)} |" for v in product]
    lines += ["\n## The product's, accepted without an effect\n"]
    lines += ["A script that sets them runs unchanged. What they steer there does not exist here:\n"]
    lines += ["| variable | default there | what it is about |", "|---|---|---|"]
    lines += [f"| `{v.name}` | {_default(v)} | {_cell(v.doc)} |" for v in accepted]
    return "\n".join(lines) + "\n"


def main() -> int:
    wanted = render(DECLARATION.read_text())
    if "--check" in sys.argv[1:]:
        if OUTPUT.exists() and OUTPUT.read_text() == wanted:
            return 0
        print(f"{OUTPUT.relative_to(ROOT)} is out of date: run python tools/generate_env_docs.py")
        return 1
    OUTPUT.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
