"""What happens to a tile of accumulators before it is stored: bias, conversion and the operators behind an anchor.

The tile lies in a small buffer, row after row. Each row is finished with SIMD vectors along its columns where every
operand lies one element apart along them (or is the same for all); otherwise element by element. Vectors are finished
in all rows, one after the other, where rows share operands, such as a bias.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from hidet import dims
from hidet.compute.definition import Compute, Operand
from hidet.cpu.schedules.gemm_lanes import lane_wise, leading_lanes
from hidet.cpu.schedules.gemm_tile import TileShape
from hidet.dims import Dim
from hidet.errors import ScheduleError
from hidet.graph.types import TensorType
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Access, Expr, Reduce, Var
from hidet.ir.node import IRNode
from hidet.ir.visit import accesses, replace_accesses, rewrite, substitute, walk
from hidet.schedule.affine import Affine, affine_offset, collapse_axes, other_variables
from hidet.schedule.lowering import KernelScope, Lowering
from hidet.schedule.task import Task


@dataclass(frozen=True, slots=True, eq=False)
class TilePlace:
    """How rows and columns of the tiled matrix stand for axes of the anchor's result.

    rows: positions of the axes that one row number counts through, outermost first. column: position of the axis along
    a row. column_base: what to add to a column number. fixed: values of the axes that remain.
    """

    rows: tuple[int, ...]
    column: int
    column_base: Expr
    fixed: Mapping[int, Expr]


@dataclass(frozen=True, slots=True, eq=False)
class FinishedTile:
    """A tile to store: its first row and column in the matrix, its extents, and where its accumulators lie.

    is_ragged: whether `columns` may be other than a multiple of the lanes.
    """

    first_row: Expr
    rows: Expr
    first_column: Expr
    columns: Expr
    is_ragged: bool
    buffer: Var
    buffer_start: Expr


@dataclass(frozen=True, slots=True, eq=False)
class _Offset:
    """An element offset as expressions: start + sum(coordinate * stride) + column * column_stride."""

    start: Expr
    strides: tuple[Expr, ...]
    column_stride: Expr
    is_unit: bool
    is_uniform: bool
    is_same_for_rows: bool

    def at(self, coordinates: Sequence[Expr], column: Expr) -> Expr:
        return build.flatten(coordinates, self.strides) + column * self.column_stride + self.start


class Epilogue:
    """Stores finished tiles to every output of a task. Made once a kernel; `store` may be called once."""

    def __init__(
        self, task: Task, scope: KernelScope, pointers: Mapping[Operand, Var], place: TilePlace, shape: TileShape
    ) -> None:
        self.shape = shape
        strides = {t.operand: t.type.element_strides for t in task.inputs}
        self._outputs = [
            _Output(task, compute, tensor.type, scope, pointers, strides, place, shape)
            for compute, tensor in zip(task.epilogues, task.outputs, strict=True)
        ]

    def store(self, k: IRBuilder, tile: FinishedTile) -> None:
        """Finish the tile and write it to all outputs."""
        for output in self._outputs:
            output.store(k, tile)


class _Output:
    def __init__(
        self,
        task: Task,
        compute: Compute,
        type_: TensorType,
        scope: KernelScope,
        pointers: Mapping[Operand, Var],
        strides: Mapping[Operand, tuple[Dim, ...]],
        place: TilePlace,
        shape: TileShape,
    ) -> None:
        self.place, self.shape, self.scope, self.pointers = place, shape, scope, pointers
        self.result = pointers[compute.result]
        self.axes = compute.axes
        self.column = compute.axes[place.column]
        self.accumulator = Var("accumulator", shape.dtype)
        self.value = composed_value(task, compute, self.accumulator)
        row_axes = [compute.axes[position] for position in place.rows]
        extents = [type_.shape[position] for position in place.rows]
        maps: dict[Access, Affine] = {}
        for access in accesses(self.value):
            offset = affine_offset(access.indices, strides[access.operand])
            if offset is not None and set(offset.coefficients) <= set(compute.axes):
                maps[access] = offset
        target = Affine(dict(zip(compute.axes, type_.element_strides, strict=True)), 0)
        groups = collapse_axes(row_axes, extents, [*maps.values(), target], other_variables(self.value, maps))
        self.coordinates = [row_axes[group[-1]] for group in groups]
        self.extents = [
            scope.size(dims.product([extents[n] for n in group]), "rows") if number else None
            for number, group in enumerate(groups)
        ]
        skipped = {axis: build.index(0) for axis in row_axes if axis not in self.coordinates}
        self.bindings = {**skipped, **{compute.axes[p]: value for p, value in place.fixed.items()}}
        self.offsets = {access: self._offset(affine) for access, affine in maps.items()}
        self.target = self._offset(target)
        self.lowering = Lowering(scope, {})
        for operand in {access.operand for access in accesses(self.value) if access not in maps}:
            self.lowering.buffer(operand, pointers[operand], strides[operand])

    def _offset(self, affine: Affine) -> _Offset:
        start = self.scope.size(affine.constant, "offset")
        for position, value in self.place.fixed.items():
            start = start + value * self.scope.size(affine.coefficient(self.axes[position]), "stride")
        stride = affine.coefficient(self.column)
        return _Offset(
            start,
            tuple(self.scope.size(affine.coefficient(axis), "stride") for axis in self.coordinates),
            self.scope.size(stride, "stride"),
            is_unit=stride == 1,
            is_uniform=stride == 0,
            is_same_for_rows=all(affine.coefficient(axis) == 0 for axis in self.coordinates),
        )

    def store(self, k: IRBuilder, tile: FinishedTile) -> None:
        if not self.target.is_unit:
            with k.for_range("column", tile.columns) as column, k.for_range("row", tile.rows, kind="vectorize") as row:
                self._element(k, self._from_row(k, tile, row), column)
            return
        if self._shares_columns() and self._vectors(k, tile, is_tall=True):
            return
        with k.for_range("row", tile.rows) as number:
            rest = self._from_row(k, tile, number)
            if not self._vectors(k, rest, is_tall=False):
                with k.for_range("column", tile.columns, kind="vectorize") as column:
                    self._element(k, rest, column)

    def _shares_columns(self) -> bool:
        """Whether rows are found without division, and vectors of an operand are the same for all of them, so that they
        need to be read once a tile."""
        return len(self.coordinates) == 1 and any(
            offset.is_unit and offset.is_same_for_rows for offset in self.offsets.values()
        )

    def _from_row(self, k: IRBuilder, tile: FinishedTile, row: Expr) -> FinishedTile:
        """The tile from this row of it on, with the coordinates of the row."""
        self._decode(k, tile.first_row + row)
        return replace(tile, first_row=tile.first_row + row, buffer_start=tile.buffer_start + row * self.shape.columns)

    def _decode(self, k: IRBuilder, row: Expr) -> None:
        """Coordinates of a row: the number itself, or its digits in the extents of several axes."""
        rest = row
        for axis, extent in reversed(list(zip(self.coordinates, self.extents, strict=True))):
            if extent is None:
                k.declare(axis, rest)
            else:
                k.declare(axis, build.binary("rem", rest, extent))
                rest = build.binary("truncdiv", rest, extent)

    def _vectors(self, k: IRBuilder, tile: FinishedTile, *, is_tall: bool) -> bool:
        """A loop over the vectors of a row, and over what remains after them; False when there is no vector form.

        is_tall: in all rows of the tile, and not in the first alone, whose coordinates are known.
        """
        lanes, number, one = self.shape.lanes, build.size_var("vector"), IRBuilder()
        has_rest = tile.is_ragged and not self.shape.has_masks
        is_masked = tile.is_ragged and not has_rest
        first = number * lanes
        mask = leading_lanes(one, tile.columns - first, lanes) if is_masked else None

        def in_rows(k: IRBuilder, store: Callable[[FinishedTile], bool]) -> bool:
            if not is_tall:
                return store(tile)
            with k.for_range("row", tile.rows) as row:
                return store(self._from_row(k, tile, row))

        if not in_rows(one, lambda tile: self._vector(one, tile, first, mask)):
            return False
        count = build.binary("truncdiv", tile.columns + (lanes - 1) if is_masked else tile.columns, build.index(lanes))
        with k.loop(number, count):
            k.emit(one.body)
        if has_rest:
            done = count * lanes
            with k.for_range("column", tile.columns - done) as column:
                in_rows(k, lambda tile: self._element(k, tile, done + column))
        return True

    def _vector(self, k: IRBuilder, tile: FinishedTile, first: Expr, mask: Expr | None) -> bool:
        """Store the vector from column `first` of the tile's first row on; False when there is no vector form."""
        lanes = self.shape.lanes
        column = self.place.column_base + (tile.first_column + first)

        def leaf(node: Expr) -> Expr | None:
            if node is self.accumulator:
                return build.load(tile.buffer, tile.buffer_start + first, lanes=lanes)
            if isinstance(node, Var):
                return None if node is self.column else node
            assert isinstance(node, Access)
            offset = self.offsets.get(node)
            if offset is None:
                return None if any(self.column in walk(i) for i in node.indices) else node
            if not (offset.is_unit or offset.is_uniform):
                return None
            place = offset.at(self.coordinates, column)
            pointer = self.pointers[node.operand]
            return build.load(pointer, place, lanes=lanes, mask=mask) if offset.is_unit else build.load(pointer, place)

        value = lane_wise(self.value, lanes, leaf)
        if value is None:
            return False
        resolved = self.lowering.resolve(value, self.bindings)
        k.store(self.result, self.target.at(self.coordinates, column), resolved, mask)
        return True

    def _element(self, k: IRBuilder, tile: FinishedTile, number: Expr) -> bool:
        """Store column `number` of the tile's first row."""
        column = self.place.column_base + (tile.first_column + number)

        def read(node: IRNode) -> IRNode | None:
            if node is self.accumulator:
                return build.load(tile.buffer, tile.buffer_start + number)
            if isinstance(node, Access) and node in self.offsets:
                return build.load(self.pointers[node.operand], self.offsets[node].at(self.coordinates, column))
            return None

        value = self.lowering.resolve(rewrite(self.value, read), {**self.bindings, self.column: column})
        k.store(self.result, self.target.at(self.coordinates, column), value)
        return True


def composed_value(task: Task, epilogue: Compute, accumulator: Expr) -> Expr:
    """An output's element from the task's inputs and the finished sum of the anchor, which is its only reduction."""
    definition = task.definition
    stage = definition.stages[-1]
    if not isinstance(stage, Compute) or len(definition.stages) != 1:
        raise ScheduleError(f"task {task.name}: the definition has {len(definition.stages)} stages, expected one")
    operands = dict(zip(definition.inputs, anchor_operands(task), strict=True))
    around = rewrite(stage.value, lambda n: accumulator if isinstance(n, Reduce) else None)

    def renamed(access: Access) -> Expr | None:
        operand = operands.get(access.operand)
        return None if operand is None else operand[access.indices]

    around = replace_accesses(around, renamed)

    def replacement(access: Access) -> Expr | None:
        if access.operand is not stage.result:
            return None
        return substitute(around, dict(zip(stage.axes, access.indices, strict=True)))

    return replace_accesses(epilogue.value, replacement)


def anchor_operands(task: Task) -> list[Operand]:
    """The task's operand for each operand of the anchor's definition. ScheduleError where one is not in memory."""
    assert task.anchor is not None
    found: list[Operand] = []
    for value, tensor in zip(task.anchor.inputs, task.anchor_inputs, strict=True):
        if value is None:
            continue
        if tensor is None:
            raise ScheduleError(f"task {task.name}: an input of the anchor is computed on the fly")
        found.append(tensor.operand)
    return found
