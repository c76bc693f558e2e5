"""What an output is from the finished sum of an anchor whose definition is one stage around one reduction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from hidet.compute.definition import Compute, Operand
from hidet.ir import build
from hidet.ir.expr import Access, Expr, Reduce, Var
from hidet.ir.node import IRNode
from hidet.ir.visit import accesses, replace_accesses, rewrite, substitute
from hidet.schedule.affine import Affine, affine_offset, collapse_axes, other_variables
from hidet.schedule.task import Task

_NOTHING: Mapping[Operand, Expr] = MappingProxyType({})


def finished_value(
    task: Task, epilogue: Compute, total: Expr, others: Mapping[Operand, Expr] = _NOTHING
) -> Expr | None:
    """An output's element from `total`, the anchor's reduction, and the task's inputs.

    others: what stands for reductions that read these operands of the anchor's definition, of an anchor with several.
    None when the anchor has other stages, or reads something behind its reduction that is computed on the fly.
    """
    stages = task.definition.stages
    stage = stages[-1]
    if len(stages) != 1 or not isinstance(stage, Compute):
        return None

    def summed(node: IRNode) -> Expr | None:
        if not isinstance(node, Reduce):
            return None
        read = (others[access.operand] for access in accesses(node) if access.operand in others)
        return build.cast(next(read, total), node.dtype)

    around = rewrite(stage.value, summed)
    sources = task.sources

    def renamed(access: Access) -> Expr | None:
        source = sources.get(access.operand)
        return source[access.indices] if isinstance(source, Operand) else None

    around = replace_accesses(around, renamed)
    if any(access.operand in task.definition.inputs for access in accesses(around)):
        return None

    def replacement(access: Access) -> Expr | None:
        if access.operand is not stage.result:
            return None
        return substitute(around, dict(zip(stage.axes, access.indices, strict=True)))

    return replace_accesses(epilogue.value, replacement)


def single_axis(task: Task, epilogue: Compute, value: Expr, positions: Sequence[int]) -> Var | None:
    """The axis of the output that may count through all those at `positions`, the others staying 0.

    It is the last one that has neighbours. None when something that `value` reads, or the output, is not regular in
    them.
    """
    strides = {tensor.operand: tensor.type.element_strides for tensor in task.inputs}
    maps: dict[Access, Affine] = {}
    for access in accesses(value):
        offset = affine_offset(access.indices, strides[access.operand])
        if offset is not None and set(offset.coefficients) <= set(epilogue.axes):
            maps[access] = offset
    place = next(tensor.type for tensor in task.outputs if tensor.operand is epilogue.result)
    target = Affine(dict(zip(epilogue.axes, place.element_strides, strict=True)), 0)
    axes = [epilogue.axes[position] for position in positions]
    extents = [place.shape[position] for position in positions]
    groups = collapse_axes(axes, extents, [*maps.values(), target], other_variables(value, maps))
    if len(groups) > 1:
        return None
    return axes[groups[0][-1]] if groups else axes[-1]
