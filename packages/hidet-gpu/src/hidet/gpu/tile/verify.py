"""Checks that kernels in tiles obey the rules of tile programs.

    variables   declared before use: parameters, indices of blocks, values in order, indices of loops in their loops
    tiles       positive extents; written before they are read, on every way to the reader: what a loop or a branch
                writes first may not have been written after it, and the tiles of a pipeline's loads are gone after it
    matrices    pointers into global memory, i64 extents; formulas over their own variables
    types       as of thread IR (`hidet.ir.verify_expr`); conditions are bool, places and extents i64

That tiles of a statement fit each other is checked when it is made (`hidet.gpu.tile.statements`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hidet import dtypes
from hidet.errors import ScheduleError, VerifyError
from hidet.gpu.tile import statements as t
from hidet.gpu.tile.kernel import TileKernel
from hidet.gpu.tile.printer import print_stmt
from hidet.gpu.tile.tensors import Computed, Gathered, GTensor, RTile, Source, Stacked, STile
from hidet.gpu.tile.walk import sources_of, tiles_of
from hidet.ir.expr import Expr, Var
from hidet.ir.types import PointerType, Type
from hidet.ir.verify_expr import check_expr
from hidet.ir.visit import walk
from hidet.loc import Loc


def verify_kernel(kernel: TileKernel, places: Mapping[t.TileStmt, Loc] | None = None) -> None:
    """Raise VerifyError, naming kernel and statement, for the first rule that `kernel` breaks.

    places: where statements stand in a user's file, which the error then has.
    """
    checker = _Checker()
    try:
        checker.kernel(kernel)
    except VerifyError as error:
        where = "" if checker.current is None else f", in {print_stmt(checker.current)}"
        loc = None if places is None or checker.current is None else places.get(checker.current)
        raise VerifyError(f"kernel {kernel.name} in tiles{where}: {error.message}", loc=loc, hint=error.hint) from error


class _Checker:
    """One kernel. visible: variables in scope; written: tiles that have been written whatever happened before."""

    def __init__(self) -> None:
        self.visible: set[Var] = set()
        self.written: set[STile | RTile] = set()
        self.current: t.TileStmt | None = None
        self._checked: set[int] = set()

    def kernel(self, kernel: TileKernel) -> None:
        if min(kernel.warps) < 1:
            raise VerifyError(f"{kernel.warps[0]} x {kernel.warps[1]} warps, expected at least one along each axis")
        self.declare(kernel.params)
        for extent in kernel.grid:
            self.typed(extent, dtypes.i64, "an extent of the grid")
        if kernel.grid and len(kernel.grid) != len(kernel.grid_vars):
            raise VerifyError(f"{len(kernel.grid_vars)} indices of blocks in a grid of {len(kernel.grid)} extents")
        self.indices(kernel.grid_vars)
        for var, value in kernel.index_values:
            self.typed(value, var.type, f"the value of {var.name}")
            self.declare((var,))
        for tile in tiles_of(kernel.body):
            _check_tile(tile)
        for source in sources_of(kernel.body):
            _SOURCES[type(source)](self, source)
        self.stmts(kernel.body)

    # --- variables and expressions -----------------------------------------------------------------------------------

    def declare(self, variables: Iterable[Var]) -> None:
        for var in variables:
            if var in self.visible:
                raise VerifyError(f"variable {var.name} is declared twice")
            self.visible.add(var)

    def indices(self, variables: Iterable[Var]) -> None:
        for var in variables:
            if var.type is not dtypes.i64:
                raise VerifyError(f"index {var.name} has type {var.type}, expected i64")
            self.declare((var,))

    def typed(self, root: Expr, expected: Type, what: str) -> None:
        """An expression over visible variables, of this type."""
        nodes = [node for node in walk(root) if isinstance(node, Expr)]
        for node in reversed(nodes):
            if isinstance(node, Var):
                if node not in self.visible:
                    raise VerifyError(f"{what} mentions variable {node.name}, which is not declared there")
            elif id(node) not in self._checked:
                check_expr(node, {})
        self._checked.update(map(id, nodes))
        if root.type != expected:
            raise VerifyError(f"{what} has type {root.type}, expected {expected}")

    def formula(self, variables: Sequence[Var], root: Expr, expected: Type, what: str) -> None:
        """An expression that may mention `variables`, which are its own."""
        self.declare(variables)
        self.typed(root, expected, what)
        self.visible.difference_update(variables)

    # --- matrices ----------------------------------------------------------------------------------------------------

    def extents(self, source: Source) -> None:
        for extent in (source.rows, source.columns):
            self.typed(extent, dtypes.i64, "an extent of a matrix")

    def memory(self, source: GTensor | Gathered) -> None:
        type_ = source.pointer.type
        if not isinstance(type_, PointerType) or type_.space not in ("global", "generic"):
            raise VerifyError(f"a matrix lies at an address of type {type_}, expected a pointer into global memory")
        self.typed(source.pointer, type_, "the address of a matrix")
        if source.align % type_.dtype.nbytes:
            raise VerifyError(f"a matrix of {type_.dtype} is aligned to {source.align} bytes, no whole elements")

    def matrix(self, source: GTensor) -> None:
        self.memory(source)
        self.extents(source)
        self.typed(source.row_stride, dtypes.i64, "the row stride of a matrix")

    def computed(self, source: Computed) -> None:
        self.extents(source)
        self.formula((source.row, source.column), source.formula, source.dtype, "an element of a computed matrix")

    def gathered(self, source: Gathered) -> None:
        self.memory(source)
        self.extents(source)
        outer = set(self.visible)
        both: list[Var] = []
        for index, values in ((source.row, source.row_values), (source.column, source.column_values)):
            self.declare((index,))
            for var, value in values:
                self.typed(value, var.type, f"value {var.name} of a gathered matrix")
                self.declare((var,))
            both += [index, *(var for var, _ in values)]
            self.visible = set(outer)
        self.declare(both)
        self.typed(source.place, dtypes.i64, "a place of a gathered matrix")
        self.typed(source.inside, dtypes.boolean, "the condition of a gathered matrix")
        self.visible = outer

    def stacked(self, source: Stacked) -> None:
        first = source.parts[0]
        for part in source.parts:
            self.matrix(part)
            same = part.columns is first.columns and part.row_stride is first.row_stride
            if part.dtype != first.dtype or not same:
                raise VerifyError("matrices below each other differ in their types, columns or row strides")

    # --- statements --------------------------------------------------------------------------------------------------

    def stmts(self, body: Sequence[t.TileStmt]) -> None:
        for stmt in body:
            self.current = stmt
            _STMTS[type(stmt)](self, stmt)
        self.current = None

    def block(self, body: Sequence[t.TileStmt]) -> None:
        """Statements that may not run: what they write first may stay unwritten."""
        outer = set(self.written)
        self.stmts(body)
        self.written = outer

    def read(self, *tiles: STile | RTile) -> None:
        for tile in tiles:
            if tile not in self.written:
                raise VerifyError(f"tile {tile.name} is read before it is written")

    def place(self, stmt: t.Load | t.Fetch | t.Store) -> None:
        self.typed(stmt.row, dtypes.i64, "the row of a box")
        self.typed(stmt.column, dtypes.i64, "the column of a box")

    def load(self, stmt: t.Load | t.Fetch) -> None:
        self.place(stmt)
        self.written.add(stmt.target)

    def fill(self, stmt: t.Fill) -> None:
        self.written.add(stmt.target)

    def mma(self, stmt: t.Mma) -> None:
        self.read(stmt.a, stmt.b, stmt.accumulator)
        # Registers are converted on their way to the matrix unit, shared memory is not.
        fits = stmt.a.dtype == stmt.b.dtype or (isinstance(stmt.a, RTile) and stmt.a.dtype.kind == stmt.b.dtype.kind)
        if not fits:
            raise VerifyError(f"{stmt.a.name} of {stmt.a.dtype} is multiplied with {stmt.b.name} of {stmt.b.dtype}")

    def map(self, stmt: t.Map) -> None:
        self.read(*stmt.inputs)
        wrong = [v for v, tile in zip(stmt.elements, stmt.inputs, strict=True) if v.type != tile.dtype]
        if wrong:
            raise VerifyError(f"element {wrong[0].name} has type {wrong[0].type}, which is not that of its tile")
        variables = (*stmt.elements, stmt.row, stmt.column)
        self.formula(variables, stmt.formula, stmt.target.dtype, "the formula")
        self.written.add(stmt.target)

    def reduce(self, stmt: t.Reduce) -> None:
        self.read(stmt.source)
        self.written.add(stmt.target)

    def store(self, stmt: t.Store) -> None:
        self.read(stmt.source)
        self.place(stmt)

    def loop(self, stmt: t.Ring | t.Loop) -> None:
        self.typed(stmt.extent, dtypes.i64, "the extent of a loop")
        self.indices((stmt.index,))
        self.block((*stmt.loads, *stmt.body) if isinstance(stmt, t.Ring) else stmt.body)
        if isinstance(stmt, t.Ring):
            # Each of its stages holds another iteration's.
            self.written.difference_update(load.target for load in stmt.loads)
        self.visible.remove(stmt.index)

    def when(self, stmt: t.When) -> None:
        self.typed(stmt.condition, dtypes.boolean, "the condition")
        self.block(stmt.body)

    def when_any(self, stmt: t.WhenAny) -> None:
        self.read(stmt.tile)
        self.formula((stmt.element,), stmt.condition, dtypes.boolean, "the condition")
        for inner in stmt.body:
            # Elements without the condition keep what the tile holds.
            self.read(inner.target)
        self.block(stmt.body)


def _check_tile(tile: STile | RTile) -> None:
    if tile.rows < 1 or tile.columns < 1:
        raise VerifyError(f"tile {tile.name} is [{tile.rows}, {tile.columns}], expected positive extents")
    if isinstance(tile, STile):
        try:
            _ = tile.layout
        except ScheduleError as error:
            raise VerifyError(f"tile {tile.name}: {error.message}") from error


_SOURCES: dict[type, Callable[[_Checker, Any], None]] = {
    GTensor: _Checker.matrix,
    Computed: _Checker.computed,
    Gathered: _Checker.gathered,
    Stacked: _Checker.stacked,
}
_STMTS: dict[type, Callable[[_Checker, Any], None]] = {
    t.Load: _Checker.load,
    t.Fetch: _Checker.load,
    t.Fill: _Checker.fill,
    t.Mma: _Checker.mma,
    t.Map: _Checker.map,
    t.Reduce: _Checker.reduce,
    t.Store: _Checker.store,
    t.Ring: _Checker.loop,
    t.Loop: _Checker.loop,
    t.When: _Checker.when,
    t.WhenAny: _Checker.when_any,
}
