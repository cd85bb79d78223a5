"""The product's documented limits: which there are, what breaking one does, and where each is said."""

from neuron_emu.rules.table import Level, Rule, check, rules

__all__ = ["Level", "Rule", "check", "rules"]
