"""What a result of the sweep means: passed, refused, different for a known reason, or failed."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("known_differences.toml")

Result = dict[str, Any]


@functools.cache
def known_differences() -> list[dict[str, str]]:
    try:
        import tomllib
    except ModuleNotFoundError:  # before Python 3.11
        import tomli as tomllib
    table: list[dict[str, str]] = tomllib.loads(TABLE.read_text())["difference"]
    return table


def reason_of(entry: str, error: str) -> str | None:
    """Why the device may differ here, from the table."""
    for known in known_differences():
        if re.fullmatch(known["entries"], entry) and re.search(known["error"], error):
            return known["reason"]
    return None


def unexpected(result: Result) -> list[str]:
    """What must not be: failures that are not in the table, crashes, hangs, errors of the sweep itself."""
    for fate in ("crashes", "hangs", "broken"):
        if result.get(fate):
            return [f"{fate}: {result[fate]}"]
    return [
        f"{failure['kind']}, sample {failure['sample']}: {failure['error']}"
        for failure in result["failures"]
        if reason_of(result["entry"], failure["error"]) is None
    ]


def reasons(result: Result) -> list[str]:
    """The table's reasons for the failures of an entry, each once."""
    found = (reason_of(result["entry"], failure["error"]) for failure in result.get("failures", []))
    return list(dict.fromkeys(reason for reason in found if reason is not None))


def verdict(result: Result) -> str:
    if unexpected(result):
        return "failed"
    if result["refusals"]:
        return "refused"
    return "different" if result["failures"] else "passed"
