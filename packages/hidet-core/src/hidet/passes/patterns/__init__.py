"""Chains of primitive operators that are one operator of core, family by family.

`reduction` comes first: the others look for reductions in the form that it gives them.

Each module has `RULES`, a table from the last operator of a chain to its rules. A chain is recognised only when nobody
else reads what lies inside it.
"""

from __future__ import annotations

from collections.abc import Mapping

from hidet.passes.local import Rule
from hidet.passes.patterns import activation, attention, causal, normalize, reduction

FAMILIES = (reduction, activation, normalize, attention, causal)


def all_rules() -> Mapping[str, tuple[Rule, ...]]:
    """The rules of every family, by the operator they end in."""
    names = dict.fromkeys(name for family in FAMILIES for name in family.RULES)
    return {name: tuple(rule for family in FAMILIES for rule in family.RULES.get(name, ())) for name in names}


__all__ = ["FAMILIES", "all_rules"]
