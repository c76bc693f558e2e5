"""Kernels in tiles as Hidet-Script-like Python text; `hidet.gpu.tile.parser` reads it back.

    @tile(warps=(2, 1))
    def matmul(a: ~f16, b: ~f16, c: ~f32, n: i64):
        block_column, block_row = grid((n + 15) // 16, 2)
        first_row: i64 = block_row * 32
        A = matrix(a, [64, n], stride=n, align=16)
        B = matrix(b, [n, n], stride=n, align=16)
        C = matrix(c, [64, n], stride=n, align=4)
        tile_a: f16[32, 16] @ shared
        tile_b: f16[16, 16] @ shared
        total: f32[32, 16] @ register
        total = fill(0.0)
        for step in pipeline((n + 15) // 16, stages=2):
            tile_a = load(A, first_row, step * 16)
            tile_b = load(B, step * 16, block_column * 16)
            total += mma(tile_a, tile_b)
        total = map(lambda total, row, column: max(total, 0.0), total)
        store(C, total, first_row, block_column * 16)

The loads that a pipeline begins with run ahead of its body; `tile.T` is a tile that a product reads transposed. The
parameters of a `map` are elements of its tiles, and the place in the tile; what its formula uses several times is named
before it, `let(t0 := ..., t0 * t0)`. A branch that warps take by themselves is
`if any(lambda element: condition, tile)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from hidet import dtypes
from hidet.errors import VerifyError
from hidet.gpu.tile import statements as t
from hidet.gpu.tile.kernel import TileKernel
from hidet.gpu.tile.tensors import Computed, Gathered, GTensor, RTile, Source, Stacked, STile
from hidet.gpu.tile.walk import sources_of, tiles_of
from hidet.ir.expr import Expr, Var
from hidet.ir.expr_text import Names, const_text, expr_text, list_text, plain_name, symbol_text, type_text
from hidet.ir.shared_text import let_text
from hidet.ir.visit import walk

_INDENT = "    "


def print_kernel(kernel: TileKernel) -> str:
    """The text of a kernel, after the symbolic sizes it mentions; ends in a line break."""
    text = _KernelText()
    lines = list(text.kernel(kernel))
    return "\n".join([*map(symbol_text, text.names.symbols), *lines]) + "\n"


def print_stmt(stmt: t.TileStmt) -> str:
    """The first line of a statement, for messages; tiles and variables have their own names where these are unique."""
    text = _KernelText()
    text.name_sources([stmt])
    return next(text.stmt(stmt))


class _KernelText:
    """The names of one kernel: of variables and tiles, and of matrices, which have none of their own."""

    def __init__(self) -> None:
        self.names = Names()
        self.matrices: dict[Source, Var] = {}

    def kernel(self, kernel: TileKernel) -> Iterator[str]:
        names = self.names
        plain = plain_name(kernel.name)
        symbol = "" if plain == kernel.name else f"symbol={kernel.name!r}, "
        yield f"@tile({symbol}warps={kernel.warps!r})"
        yield f"def {plain}({', '.join(f'{names(var)}: {type_text(var.type, names)}' for var in kernel.params)}):"
        yield from (f"{_INDENT}{line}" for line in self.body(kernel))

    def body(self, kernel: TileKernel) -> Iterator[str]:
        names = self.names
        if kernel.grid_vars:
            yield f"{', '.join(map(names, kernel.grid_vars))} = grid({list_text(kernel.grid, names)[1:-1]})"
        for var, value in kernel.index_values:
            yield f"{names(var)}: {type_text(var.type, names)} = {expr_text(value, names)}"
        self.name_sources(kernel.body)
        for source, var in self.matrices.items():
            yield from self._SOURCES[type(source)](self, source, names(var))
        for tile in tiles_of(kernel.body):
            space = "shared" if isinstance(tile, STile) else "register"
            text = f"{tile.dtype.short}[{tile.rows}, {tile.columns}]"
            if isinstance(tile, RTile) and tile.is_transposed:
                text = f"strided({text}, [1, {tile.rows}])"
            if isinstance(tile, STile) and tile.room:
                text = f"strided({text}, [{tile.room}, 1])"
            yield f"{names(tile)}: {text} @ {space}"
        yield from self.stmts(kernel.body)

    # --- matrices ----------------------------------------------------------------------------------------------------

    def name_sources(self, body: Sequence[t.TileStmt]) -> None:
        """Matrices are named as the pointers that they begin at, in capitals."""
        for source in sources_of(body):
            self.matrices[source] = Var(_matrix_name(source), dtypes.i64)

    def matrix(self, source: GTensor, name: str) -> Iterator[str]:
        names = self.names
        extents = list_text((source.rows, source.columns), names)
        stride = expr_text(source.row_stride, names)
        yield f"{name} = matrix({expr_text(source.pointer, names)}, {extents}, stride={stride}, align={source.align})"

    def computed(self, source: Computed, name: str) -> Iterator[str]:
        extents = list_text((source.rows, source.columns), self.names)
        formula = _lambda((source.row, source.column), source.formula, self.names)
        yield f"{name} = computed({source.dtype.short}, {extents}, {formula})"

    def gathered(self, source: Gathered, name: str) -> Iterator[str]:
        extents = list_text((source.rows, source.columns), self.names)
        yield f"@gathered({expr_text(source.pointer, self.names)}, {extents}, align={source.align})"
        inner = self.names.inner()
        yield f"def {name}({inner(source.row)}, {inner(source.column)}):"
        for title, values in (("each_row", source.row_values), ("each_column", source.column_values)):
            if values:
                yield f"{_INDENT}with {title}:"
                for var, value in values:
                    text = expr_text(value, inner)
                    yield f"{_INDENT * 2}{inner(var)}: {type_text(var.type, inner)} = {text}"
        yield f"{_INDENT}return {expr_text(source.place, inner)}, {expr_text(source.inside, inner)}"

    def stacked(self, source: Stacked, name: str) -> Iterator[str]:
        parts = [self.names(Var(_matrix_name(part), dtypes.i64)) for part in source.parts]
        for part, own in zip(source.parts, parts, strict=True):
            yield from self.matrix(part, own)
        yield f"{name} = stacked({', '.join(parts)})"

    _SOURCES: ClassVar[dict[type, Callable[[Any, Any, str], Iterator[str]]]] = {
        GTensor: matrix,
        Computed: computed,
        Gathered: gathered,
        Stacked: stacked,
    }

    # --- statements --------------------------------------------------------------------------------------------------

    def stmts(self, body: Sequence[t.TileStmt]) -> Iterator[str]:
        for stmt in body:
            yield from self.stmt(stmt)

    def stmt(self, stmt: t.TileStmt) -> Iterator[str]:
        case = self._STMTS.get(type(stmt))
        if case is None:
            raise VerifyError(f"statement {type(stmt).__name__} of a kernel in tiles has no text")
        yield from case(self, stmt)

    def inside(self, body: Sequence[t.TileStmt]) -> Iterator[str]:
        lines = list(self.stmts(body)) or ["pass"]
        return (f"{_INDENT}{line}" for line in lines)

    def box(self, source: Source, row: Expr, column: Expr) -> str:
        return ", ".join([self.names(self.matrices[source]), expr_text(row, self.names), expr_text(column, self.names)])

    def load(self, stmt: t.Load) -> Iterator[str]:
        yield f"{self.names(stmt.target)} = load({self.box(stmt.source, stmt.row, stmt.column)})"

    def fetch(self, stmt: t.Fetch) -> Iterator[str]:
        yield f"{self.names(stmt.target)} = fetch({self.box(stmt.source, stmt.row, stmt.column)})"

    def fill(self, stmt: t.Fill) -> Iterator[str]:
        yield f"{self.names(stmt.target)} = fill({const_text(stmt.value)})"

    def mma(self, stmt: t.Mma) -> Iterator[str]:
        pairs = ((stmt.a, stmt.a_is_transposed), (stmt.b, stmt.b_is_transposed))
        a, b = (self.names(tile) + (".T" if is_transposed else "") for tile, is_transposed in pairs)
        yield f"{self.names(stmt.accumulator)} += mma({a}, {b})"

    def map(self, stmt: t.Map) -> Iterator[str]:
        formula = _lambda((*stmt.elements, stmt.row, stmt.column), stmt.formula, self.names, self.tiles(stmt.inputs))
        inputs = "".join(f", {self.names(tile)}" for tile in stmt.inputs)
        yield f"{self.names(stmt.target)} = map({formula}{inputs})"

    def tiles(self, tiles: Sequence[RTile]) -> Sequence[RTile]:
        """The tiles, each with a name."""
        for tile in tiles:
            self.names(tile)
        return tiles

    def reduce(self, stmt: t.Reduce) -> Iterator[str]:
        yield f'{self.names(stmt.target)} = reduce("{stmt.op}", {self.names(stmt.source)}, axis={stmt.axis})'

    def store(self, stmt: t.Store) -> Iterator[str]:
        matrix, tile = self.names(self.matrices[stmt.target]), self.names(stmt.source)
        yield f"store({matrix}, {tile}, {expr_text(stmt.row, self.names)}, {expr_text(stmt.column, self.names)})"

    def ring(self, stmt: t.Ring) -> Iterator[str]:
        yield f"for {self.names(stmt.index)} in pipeline({expr_text(stmt.extent, self.names)}, stages={stmt.stages}):"
        for load in stmt.loads:
            yield from (f"{_INDENT}{line}" for line in self.load(load))
        if stmt.body or not stmt.loads:
            yield from self.inside(stmt.body)

    def loop(self, stmt: t.Loop) -> Iterator[str]:
        yield f"for {self.names(stmt.index)} in range({expr_text(stmt.extent, self.names)}):"
        yield from self.inside(stmt.body)

    def when(self, stmt: t.When) -> Iterator[str]:
        yield f"if {expr_text(stmt.condition, self.names)}:"
        yield from self.inside(stmt.body)

    def when_any(self, stmt: t.WhenAny) -> Iterator[str]:
        condition = _lambda((stmt.element,), stmt.condition, self.names, self.tiles((stmt.tile,)))
        yield f"if any({condition}, {self.names(stmt.tile)}):"
        yield from self.inside(stmt.body)

    _STMTS: ClassVar[dict[type, Callable[[Any, Any], Iterator[str]]]] = {
        t.Load: load,
        t.Fetch: fetch,
        t.Fill: fill,
        t.Mma: mma,
        t.Map: map,
        t.Reduce: reduce,
        t.Store: store,
        t.Ring: ring,
        t.Loop: loop,
        t.When: when,
        t.WhenAny: when_any,
    }


def _lambda(params: Sequence[Var], body: Expr, names: Names, hidden: Sequence[RTile] = ()) -> str:
    """A formula as a function; its parameters may have the names of the tiles `hidden`, which it cannot mention."""
    inner = names.inner(hidden)
    return f"lambda {', '.join([inner(var) for var in params])}: {let_text(body, inner)}"


def _matrix_name(source: Source) -> str:
    """The name of the first variable that a matrix's address mentions, in capitals; what it is where it has none."""
    if isinstance(source, Computed):
        return "COMPUTED"
    if isinstance(source, Stacked):
        return "STACKED"
    return next((node.name.upper() for node in walk(source.pointer) if isinstance(node, Var)), "MATRIX")
