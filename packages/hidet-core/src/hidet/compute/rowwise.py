"""Which definitions compute each row of their result from the same row of their first input, and how."""

from __future__ import annotations

import functools
import operator

from hidet.compute.definition import Compute, Definition, Operand
from hidet.ir.expr import Access, Expr
from hidet.ir.structural import structural_hash
from hidet.ir.visit import replace_accesses, walk


@functools.lru_cache(maxsize=1024)
def row_function(definition: Definition | None) -> str | None:
    """What a definition with one result makes of a row of its first input: equal texts mean equal functions.

    Rows are along the last axis; all axes before it number them. None where a row of the result depends on another row,
    or on its number: a product with one matrix has a row function, one with a matrix for each batch has none.
    """
    if definition is None or len(definition.stages) != 1 or not definition.inputs or not definition.inputs[0].shape:
        return None
    (stage,) = definition.stages
    if not isinstance(stage, Compute) or not stage.axes:
        return None
    *numbers, last = stage.axes
    whole = definition.inputs[0]
    row = Operand(whole.name, whole.dtype, whole.shape[-1:])

    def in_own_row(access: Access) -> Expr | None:
        *places, column = access.indices
        is_own = access.operand is whole and len(places) == len(numbers) and all(map(operator.is_, places, numbers))
        return Access(row, (column,), access.type) if is_own else None

    value = replace_accesses(stage.value, in_own_row)
    if any(node in numbers or (isinstance(node, Access) and node.operand is whole) for node in walk(value)):
        return None
    return structural_hash(row, last, *definition.inputs[1:], value)
