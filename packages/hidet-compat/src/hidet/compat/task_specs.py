"""Operators of graphs that tasks of users are, by what rules of schedules look for."""

from __future__ import annotations

from collections.abc import Mapping

from hidet.graph.operator import Attribute, OperatorSpec

FACTS = (Attribute("task"), Attribute("digest"))
"""Its name, and what tells it from others of that name."""


def _general(name: str, family: str | None, doc: str) -> OperatorSpec:
    return OperatorSpec(
        name=name,
        inputs=("inputs*",),
        attributes=FACTS,
        kind="compute" if family is None else "anchor",
        family=family,
        doc=doc,
    )


OPERATORS: Mapping[str, OperatorSpec] = {
    spec.name: spec
    for spec in (
        _general("task", None, "What a user has defined as a task: each element is a formula."),
        _general("task.reduction", "reduction", "A task of a user that ends in a reduction."),
        _general("task.rows", "softmax", "A task of a user that ends in what is made of elements and reductions."),
    )
}
"""By name. Each node has a definition of its own, which these have not."""
