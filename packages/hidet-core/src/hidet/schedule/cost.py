"""How much arithmetic tasks do, estimated from their definitions: what decides how much compilation they are worth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from hidet import dims
from hidet.compute.definition import Routine, Scan, Scatter, Stage, results_of
from hidet.dims import Dim
from hidet.ir.expr import Access, Binary, Const, Expr, Reduce, Select, Size, Unary
from hidet.ir.node import IRNode
from hidet.schedule.task import Task

UNKNOWN_EXTENT = 256
"""What a size counts as when its symbols have no hint."""


def is_below(tasks: Iterable[Task], flops: int) -> bool:
    """Whether one run of all tasks takes fewer arithmetic operations than `flops`; no more is counted than it takes."""
    return all(total < flops for total in accumulate(map(task_flops, tasks), initial=0))


def task_flops(task: Task) -> int:
    """Arithmetic operations of one run of a task: a multiply-add counts as two, an element that is only moved as one.

    Symbolic sizes count as their hints say. What is inlined into the anchor's reads is not counted; it is small beside
    the anchor.
    """
    stages: list[Stage] = [] if task.anchor is None else list(task.definition.stages)
    stages += [epilogue for epilogue in task.epilogues if task.anchor is None or not isinstance(epilogue.value, Access)]
    return sum(map(stage_flops, stages))


def stage_flops(stage: Stage) -> int:
    """Arithmetic operations of one stage of a definition."""
    if isinstance(stage, Scatter):
        update = 1 + _operations((*stage.indices, stage.update, stage.condition))
        return element_count(stage.result.shape) + element_count(stage.extents) * update
    if isinstance(stage, Routine):
        # An algorithm such as sorting looks at each element some tens of times.
        return 32 * sum(element_count(operand.shape) for operand in (*stage.operands, *stage.results))
    values = stage.values if isinstance(stage, Scan) else (stage.value,)
    return element_count(results_of(stage)[0].shape) * max(_operations(values), 1)


def element_count(shape: Sequence[Dim]) -> int:
    """Elements of a shape, symbolic extents as their hints say."""
    count = 1
    for extent in shape:
        count *= extent_estimate(extent)
    return count


def extent_estimate(extent: Dim) -> int:
    """A typical value of a size."""
    known = extent if isinstance(extent, int) else dims.hint_value(extent)
    return UNKNOWN_EXTENT if known is None else max(known, 0)


def _operations(values: Iterable[Expr | None]) -> int:
    """Operations on data that computing some expressions once takes; shared parts count once, indices nothing."""
    total = 0
    stack: list[tuple[IRNode, int]] = [(value, 1) for value in values if value is not None]
    seen: set[tuple[int, int]] = set()
    while stack:
        node, times = stack.pop()
        if (id(node), times) in seen or isinstance(node, Access):
            continue
        seen.add((id(node), times))
        if isinstance(node, Reduce):
            times *= max(1, _product(node.extents))
            total += times * len(node.values)
            stack += [(value, times) for value in node.values]
            continue
        if isinstance(node, Select):
            # A choice by indices, such as padding, costs nothing; a choice by data is cheap.
            stack += [(node.a, times), (node.b, times)]
            continue
        if isinstance(node, Binary | Unary):
            total += times
        stack += [(child, times) for child in node.children()]
    return total


def _product(extents: Sequence[Expr]) -> int:
    product = 1
    for extent in extents:
        most = _most(extent)
        product *= UNKNOWN_EXTENT if most is None else most
    return product


def _most(extent: Expr) -> int | None:
    """The most that an extent typically is; None where data alone tell it."""
    if isinstance(extent, Const):
        return int(extent.value)  # type: ignore[arg-type]  # extents are integers
    if isinstance(extent, Size):
        return extent_estimate(extent.dim)
    if isinstance(extent, Select):
        branches = (_most(extent.a), _most(extent.b))
        return None if None in branches else max(known for known in branches if known is not None)
    if isinstance(extent, Binary) and extent.op == "min":
        return min((known for known in (_most(extent.a), _most(extent.b)) if known is not None), default=None)
    return None
