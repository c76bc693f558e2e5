"""Plug-in module of hidet-compat: names that it adds to modules of hidet. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hidet.plugins.specs import AttributeSpec, PassSpec

if TYPE_CHECKING:
    from hidet.graph.operator import OperatorSpec

HIDET_API = 1


def hidet_operators() -> Iterable[OperatorSpec]:
    """Tasks of users."""
    from hidet.compat.task_specs import OPERATORS

    return OPERATORS.values()


def hidet_passes() -> Iterable[PassSpec]:
    """Rules that users have registered, before hidet's own."""
    return [
        PassSpec(
            name=name,
            level="graph",
            after=("unfold-control",),
            before=("decompose",),
            load=f"hidet.compat.rule_passes:{load}",
        )
        for name, load in (("rewrite-subgraphs", "RewriteSubgraphs"), ("resolve-operators", "ResolveOperators"))
    ]


def hidet_attributes() -> Iterable[AttributeSpec]:
    """Settings of `hidet.option`, and names of other modules."""
    from hidet.compat.names import PLACES
    from hidet.compat.option import NAMES

    settings = {f"hidet.option.{name}": f"hidet.compat.option:{name}" for name in NAMES}
    return [AttributeSpec(name=name, load=place) for name, place in {**PLACES, **settings}.items()]
