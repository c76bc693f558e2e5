"""Where the expressions of a loop program read and write: affine offsets in its loop variables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hidet.dims import Dim
from hidet.ir.expr import Access, Expr, Var
from hidet.ir.visit import accesses
from hidet.schedule.affine import Affine, affine_offset, other_variables
from hidet.schedule.task import Task


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """maps: offsets of the accesses that are affine in the loop variables. targets: those of outputs. pinned: variables
    that are used otherwise, so that their loops cannot be merged with others."""

    maps: Mapping[Access, Affine]
    targets: tuple[Affine, ...]
    pinned: frozenset[Var]

    @property
    def all(self) -> list[Affine]:
        """Every offset."""
        return [*self.maps.values(), *self.targets]


def affine_places(
    task: Task,
    values: Sequence[Expr],
    variables: Collection[Var],
    outputs: Sequence[tuple[Sequence[Expr], Sequence[Dim]]],
) -> Places | None:
    """The places of `values`, loops over `variables`, and of outputs, given by indices and strides.

    None when an output's place is no affine function of the variables.
    """
    strides = {t.operand: t.type.element_strides for t in task.inputs}
    known = frozenset(variables)
    maps: dict[Access, Affine] = {}
    for value in values:
        for access in accesses(value):
            offset = affine_offset(access.indices, strides[access.operand])
            if offset is not None and set(offset.coefficients) <= known:
                maps[access] = offset
    targets = [affine_offset(indices, steps) for indices, steps in outputs]
    found = tuple(target for target in targets if target is not None)
    if len(found) < len(targets):
        return None
    return Places(maps, found, frozenset(v for value in values for v in other_variables(value, maps)))
