"""Loops of a reduction program over merged axes, and its tensors as memory of one kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hidet import dims
from hidet.compute.definition import Operand
from hidet.cpu.schedules.places import affine_places
from hidet.cpu.schedules.reductions import ReductionOutput, ReductionProgram
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Access, Expr, Var
from hidet.ir.node import IRNode
from hidet.ir.visit import accesses, rewrite
from hidet.schedule.affine import Affine, collapse_axes
from hidet.schedule.lowering import KernelScope, Lowering
from hidet.schedule.task import Task


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop over axes that every tensor walks as one. stride: how far the main input moves with `var`."""

    var: Var
    extent: Dim
    stride: Dim


@dataclass(frozen=True, slots=True, eq=False)
class ReductionLayout:
    """Loops over rows and within a row, those with the largest strides of the main input first.

    maps: affine offsets of accesses. targets: those of outputs. unit: variables of axes of extent one, without a loop.
    """

    outer: tuple[Loop, ...]
    inner: tuple[Loop, ...]
    maps: Mapping[Access, Affine]
    targets: tuple[Affine, ...]
    unit: frozenset[Var]

    @property
    def rows(self) -> Dim:
        """How many rows there are."""
        return dims.product([loop.extent for loop in self.outer])

    @property
    def row_elements(self) -> Dim:
        """Elements of a row."""
        return dims.product([loop.extent for loop in self.inner])


def reduction_layout(task: Task, program: ReductionProgram) -> ReductionLayout | None:
    """The layout; None when an output's place is no affine function of the loop variables."""
    values, variables = list(program.expressions), (*program.outer, *program.inner)
    places = affine_places(task, values, variables, [(output.indices, output.strides) for output in program.outputs])
    if places is None:
        return None
    maps, known, pinned, everything = places.maps, places.targets, places.pinned, places.all
    lead = max(everything, key=lambda m: len(m.coefficients))
    outer = _merged(program.outer, program.outer_extents, lead, everything, pinned)
    inner = _merged(program.inner, program.inner_extents, lead, everything, pinned)
    looped = {v for loop in (*outer, *inner) for v in loop.merged}
    return ReductionLayout(
        tuple(loop.loop for loop in outer),
        tuple(loop.loop for loop in inner),
        maps,
        known,
        frozenset(variables) - looped,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Merged:
    loop: Loop
    merged: tuple[Var, ...]


def _merged(
    variables: Sequence[Var], extents: Sequence[Dim], lead: Affine, maps: Sequence[Affine], pinned: frozenset[Var]
) -> list[_Merged]:
    order = sorted(range(len(variables)), key=lambda n: -_distance(lead.coefficient(variables[n])))
    axes, sizes = [variables[n] for n in order], [extents[n] for n in order]
    found = []
    for group in collapse_axes(axes, sizes, maps, pinned):
        var = axes[group[-1]]
        loop = Loop(var, dims.product([sizes[n] for n in group]), lead.coefficient(var))
        found.append(_Merged(loop, tuple(axes[n] for n in group)))
    return found


def _distance(stride: Dim) -> int:
    """For sorting: strides of unknown size are large, and axes along which the input does not move come first."""
    size = dims.hint_value(stride)
    return _FAR if size is None or size == 0 else size


_FAR = 2**62


class ReductionMemory:
    """Parameters of one kernel, and expressions that read and places to write in terms of loop variables.

    scratch: element types of further pointers, which follow those of inputs and outputs.
    """

    def __init__(
        self, task: Task, program: ReductionProgram, layout: ReductionLayout, scratch: Mapping[str, DType] | None = None
    ) -> None:
        self.scope = KernelScope()
        self.layout = layout
        self.pointers: dict[Operand, Var] = {
            t.operand: self.scope.pointer(t.operand.name, t.operand.dtype) for t in (*task.inputs, *task.outputs)
        }
        self.scratch = {name: self.scope.pointer(name, dtype) for name, dtype in (scratch or {}).items()}
        self._lowering = Lowering(self.scope, {})
        self._zeros: dict[Var, Expr] = {var: build.index(0) for var in layout.unit}
        strides = {t.operand: t.type.element_strides for t in task.inputs}
        apart = [a for value in program.expressions for a in accesses(value) if a not in layout.maps]
        for operand in dict.fromkeys(access.operand for access in apart):
            self._lowering.buffer(operand, self.pointers[operand], strides[operand])
        self._loads: dict[Access, Expr] = {}
        self._targets = dict(zip(program.outputs, layout.targets, strict=True))

    def _place(self, offset: Affine) -> Expr:
        total: Expr = self.scope.size(offset.constant, "offset")
        for loop in (*self.layout.outer, *self.layout.inner):
            total = total + loop.var * self.scope.size(offset.coefficient(loop.var), "stride")
        return total

    def read(self, value: Expr) -> Expr:
        """`value` with accesses as loads and sizes as parameters."""

        def load(n: IRNode) -> IRNode | None:
            if not isinstance(n, Access) or n not in self.layout.maps:
                return None
            if n not in self._loads:
                self._loads[n] = build.load(self.pointers[n.operand], self._place(self.layout.maps[n]))
            return self._loads[n]

        return self._lowering.resolve(rewrite(value, load), self._zeros)

    def target(self, output: ReductionOutput) -> tuple[Var, Expr]:
        """Pointer and element offset of an output."""
        return self.pointers[output.result], self._place(self._targets[output])
