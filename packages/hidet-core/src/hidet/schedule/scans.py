"""What scans have in common: rows along one axis, what is reduced there, what is element-wise in the results.

`ScanProgram` says what is computed, with everything fused into the anchor, as expressions of a few variables; each
target has its own way to turn it into code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hidet.compute.definition import Combiner, Compute, Operand, Scan
from hidet.dims import Dim
from hidet.ir.expr import Access, Expr, Var
from hidet.ir.node import IRNode
from hidet.ir.visit import refold, rewrite, substitute
from hidet.schedule.task import Task


@dataclass(frozen=True, slots=True, eq=False)
class ScanOutput:
    """A tensor to write: `value` at the program's axes."""

    result: Operand
    strides: tuple[Dim, ...]
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class ScanProgram:
    """Rows along `axes[axis]`, one row for each value of the other axes.

    values: what is scanned, expressions of accesses to the task's inputs at indices in the axes. running: stand for
    what was scanned so far, in the types of the results; outputs are expressions of them. exclusive: an element is not
    in its own result. reverse: rows are scanned from their ends. combine: of what comes earlier along the axis and what
    later.
    """

    axes: tuple[Var, ...]
    extents: tuple[Dim, ...]
    axis: int
    values: tuple[Expr, ...]
    running: tuple[Var, ...]
    outputs: tuple[ScanOutput, ...]
    combiner: Combiner
    exclusive: bool
    reverse: bool

    @property
    def along(self) -> Var:
        """The axis that is scanned along."""
        return self.axes[self.axis]

    @property
    def length(self) -> Dim:
        """Elements of a row."""
        return self.extents[self.axis]

    @property
    def outer(self) -> tuple[Var, ...]:
        """The axes that count rows."""
        return (*self.axes[: self.axis], *self.axes[self.axis + 1 :])

    @property
    def outer_extents(self) -> tuple[Dim, ...]:
        """Extents of the axes that count rows."""
        return (*self.extents[: self.axis], *self.extents[self.axis + 1 :])


def scan_program(task: Task) -> ScanProgram | None:
    """The program of a task whose anchor is a scan, and perhaps element-wise in its results; None for others."""
    if task.anchor is None or not task.definition.stages:
        return None
    scan, *stages = task.definition.stages
    if not isinstance(scan, Scan) or not all(isinstance(stage, Compute) for stage in stages):
        return None
    running = tuple(Var(result.name, result.dtype) for result in scan.results)
    reading = _Reading(task, scan, dict(zip(scan.results, running, strict=True)))
    values = [reading.resolved(value, scan.axes) for value in scan.values]
    for stage in stages:
        assert isinstance(stage, Compute)
        formula = reading.resolved(stage.value, stage.axes)
        if formula is None:
            return None
        reading.known[stage.result] = formula
    outputs = []
    for epilogue, tensor in zip(task.epilogues, task.outputs, strict=True):
        value = reading.resolved(epilogue.value, epilogue.axes)
        if value is None:
            return None
        outputs.append(ScanOutput(epilogue.result, tensor.type.element_strides, value))
    scanned = tuple(value for value in values if value is not None)
    if len(scanned) < len(values):
        return None
    return ScanProgram(
        axes=scan.axes,
        extents=scan.results[0].shape,
        axis=scan.axis,
        values=scanned,
        running=running,
        outputs=tuple(outputs),
        combiner=scan.combiner,
        exclusive=scan.exclusive,
        reverse=scan.reverse,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Reading:
    """Translates a definition. known: what stands for results of its stages, at the scan's axes."""

    task: Task
    scan: Scan
    known: dict[Operand, Expr]

    def resolved(self, value: Expr, axes: Sequence[Var]) -> Expr | None:
        """A formula of the scan's axes over the task's inputs; None where it reads results elsewhere."""
        if len(axes) != len(self.scan.axes):
            return None
        inputs, elsewhere = self.task.sources, []

        def change(n: IRNode) -> IRNode | None:
            if not isinstance(n, Access):
                return refold(n)
            if n.operand in self.known:
                if any(index is not axis for index, axis in zip(n.indices, self.scan.axes, strict=True)):
                    elsewhere.append(n)
                return self.known[n.operand]
            source = inputs.get(n.operand, n.operand)
            if isinstance(source, Operand):
                return source[n.indices]
            return substitute(source.value, dict(zip(source.axes, n.indices, strict=True)))

        resolved = rewrite(substitute(value, dict(zip(axes, self.scan.axes, strict=True))), change)
        return None if elsewhere else resolved
