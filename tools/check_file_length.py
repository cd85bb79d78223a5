"""Checks that files stay short: one concept each.

A file over its limit needs a line in tools/long_files.txt: path, lines allowed, reason. A line there that no longer
applies is a violation as well. Prints each violation and exits 1 when there is one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = Path("tools/long_files.txt")

SOURCE_ROOTS = ("engine", "bridge", "neuron_emu", "torch_neuronx", "bench", "tests", "tools", "examples")
LIMITS = {".h": 250, ".cpp": 500, ".def": 250, ".py": 500, ".pyi": 250}
README_LIMIT = 40  # of a folder's README


def limit_of(path: Path) -> int | None:
    return README_LIMIT if path.name == "README.md" else LIMITS.get(path.suffix)


def read_allowed(root: Path) -> dict[str, int]:
    allowed = {}
    for line in (root / ALLOWED).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            path, lines, reason = line.split(maxsplit=2)
            assert reason
            allowed[path] = int(lines)
    return allowed


def violations(root: Path) -> Iterator[str]:
    allowed = read_allowed(root)
    for source_root in SOURCE_ROOTS:
        for path in sorted((root / source_root).rglob("*")):
            limit = limit_of(path)
            if limit is None or not path.is_file():
                continue
            name = str(path.relative_to(root))
            lines = len(path.read_text().splitlines())
            exception = allowed.pop(name, None)
            if exception is not None and lines <= limit:
                yield f"{name}: {lines} lines; it needs no line in {ALLOWED}"
            elif lines > (exception or limit):
                yield f"{name}: {lines} lines, limit {exception or limit}; split it, or give a reason in {ALLOWED}"
    for name in allowed:
        yield f"{name}: in {ALLOWED}, but there is no such file"


def main() -> int:
    problems = list(violations(ROOT))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
