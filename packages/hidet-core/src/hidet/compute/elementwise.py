"""Which definitions are element-wise, and which function of elements they apply.

An element-wise definition makes each element of its result of the elements of its inputs at the same index, by the same
function whatever that index is.
"""

from __future__ import annotations

import functools

from hidet.compute.definition import Compute, Definition
from hidet.ir.expr import Access, Const, Expr, Var
from hidet.ir.structural import structural_hash
from hidet.ir.visit import accesses, replace_accesses, walk


@functools.lru_cache(maxsize=4096)
def is_elementwise(definition: Definition | None) -> bool:
    """Whether a definition is element-wise, with one result. Remembered, because passes ask it of every node."""
    if definition is None or not definition.is_injective or len(definition.stages) != 1:
        return False
    (stage,) = definition.stages
    assert isinstance(stage, Compute)
    axes = set(stage.axes)
    return reads_own_index(stage) and not any(node in axes for node in walk(stage.value, set(accesses(stage.value))))


def reads_own_index(stage: Compute) -> bool:
    """Whether inputs are read at the index of the result alone: aligned right, and at 0 where they are broadcast."""

    def fits(access: Access) -> bool:
        places = zip(reversed(access.indices), reversed(stage.axes), strict=False)
        return len(access.indices) <= len(stage.axes) and all(i is axis or _is_zero(i) for i, axis in places)

    return all(map(fits, accesses(stage.value)))


def _is_zero(index: Expr) -> bool:
    return isinstance(index, Const) and index.value == 0


@functools.lru_cache(maxsize=1024)
def element_function(definition: Definition) -> str:
    """Of an element-wise definition, the function of one element of each input: equal texts mean equal functions."""
    (stage,) = definition.stages
    assert isinstance(stage, Compute)
    elements = {operand: Var(operand.name, operand.dtype) for operand in definition.inputs}
    return structural_hash(tuple(elements.values()), replace_accesses(stage.value, lambda a: elements[a.operand]))
