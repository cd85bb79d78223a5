"""A typed view of the one table of rules, which stands in bridge/rules/rules.def."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from neuron_emu import _C

Level: TypeAlias = Literal["documented", "unconfirmed"]


@dataclass(frozen=True)
class Rule:
    """One limit of the product.

    `documented`: the current public documentation says that it fails there; breaking it raises here.
    `unconfirmed`: an expected failure there, known from an earlier release, or a matter of luck; it works here and
    warns once. NEURON_EMU_LIMITS=strict makes both raise, =extended neither.
    """

    id: str
    level: Level
    error: str  # the exception that it raises
    text: str
    source: str  # page and heading
    sdk_release: str
    test: str
    confirmed_on_hardware: bool = False


def rules() -> tuple[Rule, ...]:
    return tuple(Rule(**row) for row in _C.rules_table())


def check(rule_id: str, detail: str = "") -> None:
    """Call it where a program has broken the rule: raises, warns or does nothing, as NEURON_EMU_LIMITS says.

    `detail` tells what the program did. Raises KeyError for a rule that does not exist.
    """
    _C.check_rule(rule_id, detail)
