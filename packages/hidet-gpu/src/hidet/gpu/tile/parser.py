"""Reads the kernels that `hidet.gpu.tile.printer` prints. Nothing is executed: Python only parses the text.

`KernelParser` is the grammar of statements. What expressions, types and names mean is asked through its methods, which
`hidet.gpu.tile.script_parser` replaces for kernels that users write.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

from hidet import dtypes
from hidet.dims import Symbol
from hidet.dtypes import DType
from hidet.errors import ScheduleError, suggestion
from hidet.gpu.intrinsics import INTRINSICS
from hidet.gpu.tile import statements as t
from hidet.gpu.tile.kernel import TileKernel
from hidet.gpu.tile.tensors import Computed, Gathered, GTensor, RTile, Source, Stacked, STile
from hidet.ir import build
from hidet.ir.common_intrinsics import ROWS
from hidet.ir.expr import Const, Expr, Var
from hidet.ir.expr_parser import ExprParser, elements, fail, string
from hidet.ir.intrinsic import Intrinsic
from hidet.ir.parser import parse_definition
from hidet.ir.types import BufferType, Type

Made = TypeVar("Made")


def parse_kernel(text: str, intrinsics: Mapping[str, Intrinsic] | None = None) -> TileKernel:
    """The kernel that `print_kernel` printed; it is not verified.

    intrinsics: those that calls may name; None for those of every target and of GPUs.
    VerifyError with line and column for text that it would not print, and for statements whose tiles do not fit.
    """
    symbols, definition = parse_definition(text)
    known = {**ROWS, **INTRINSICS} if intrinsics is None else intrinsics
    return KernelParser(symbols, known).kernel(definition)


class KernelParser:
    """One kernel. Variables are in the scope of expressions; tiles and matrices, which no expression mentions, are
    not."""

    def __init__(self, symbols: Mapping[str, Symbol], intrinsics: Mapping[str, Intrinsic]) -> None:
        self.scope: dict[str, Any] = {}
        self.exprs = ExprParser(self.scope, symbols, intrinsics)
        self.tiles: dict[str, STile | RTile] = {}
        self.sources: dict[str, Source] = {}

    # --- what expressions, types and names mean ----------------------------------------------------------------------

    def fail(self, node: ast.AST, message: str, hint: str | None = None) -> NoReturn:
        """Refuse the text at a node."""
        fail(node, message, hint)

    def expr(self, node: ast.expr) -> Expr:
        """An expression over variables."""
        return self.exprs.expr(node)

    def read_type(self, node: ast.expr) -> Type:
        """A type."""
        return self.exprs.type(node)

    def scalar(self, node: ast.expr) -> DType:
        """The type of an element."""
        return self.exprs.scalar(node)

    def known(self, node: ast.expr, kind: type) -> Any:
        """A number or text, of this Python type, that the text states."""
        return string(node, kind)

    def number(self, node: ast.expr, dtype: DType) -> Const:
        """What tiles of `dtype` are filled with."""
        value = self.expr(node)
        if not isinstance(value, Const):
            self.fail(node, f"a tile is filled with a number, not {ast.unparse(node)}")
        return value

    def called(self, node: ast.expr) -> str:
        """The name of the function that an expression calls; "" for other expressions."""
        return _name_of(node.func) if isinstance(node, ast.Call) else ""

    def declared(self, name: str, type_: Type) -> Var:
        """A new variable, by its name."""
        self.scope[name] = made = Var(name, type_)
        return made

    @contextmanager
    def inner(self) -> Iterator[None]:
        """A scope whose variables end with it."""
        outer = dict(self.scope)
        yield
        self.scope.clear()
        self.scope.update(outer)

    def function(self, node: ast.expr, types: Sequence[Type]) -> tuple[tuple[Var, ...], Expr]:
        """The parameters, of these types, and the body of a lambda."""
        if not isinstance(node, ast.Lambda) or len(node.args.args) != len(types):
            self.fail(node, f"expected a lambda of {len(types)} parameters")
        with self.inner():
            pairs = zip(node.args.args, types, strict=True)
            params = tuple(self.declared(argument.arg, type_) for argument, type_ in pairs)
            return params, self.expr(node.body)

    def formula(self, node: ast.expr, tiles: Sequence[RTile], target: RTile | None) -> tuple[tuple[Var, ...], Expr]:
        """The parameters of what a map computes, elements of its tiles and the place in `target`, and the value.

        target: None where the map itself tells.
        """
        return self.function(node, (*(tile.dtype for tile in tiles), build.INDEX, build.INDEX))

    def condition(self, node: ast.expr) -> Expr:
        """What a branch of the whole block depends on."""
        return self.expr(node)

    # --- the kernel --------------------------------------------------------------------------------------------------

    def kernel(self, node: ast.FunctionDef) -> TileKernel:
        """The kernel: first what it declares, then its statements."""
        decorator = node.decorator_list[0] if len(node.decorator_list) == 1 else node
        if not isinstance(decorator, ast.Call) or _name_of(decorator.func) != "tile":
            self.fail(node, f"kernel {node.name} needs one decorator: @tile(warps=(rows, columns))")
        _, keywords = self.arguments(decorator, 0, ("symbol", "warps"))
        name = string(keywords["symbol"]) if "symbol" in keywords else node.name
        if "warps" not in keywords or len(elements(keywords["warps"])) != 2:
            self.fail(decorator, "expected @tile(warps=(rows, columns))")
        rows, columns = (string(count, int) for count in elements(keywords["warps"]))
        params = tuple(self._param(argument) for argument in node.args.args)
        body = list(node.body)
        grid_vars, grid = self.grid(body)
        values: list[tuple[Var, Expr]] = []
        while body and self._declares(body[0], values):
            body.pop(0)
        return TileKernel(name, params, grid_vars, (rows, columns), self.stmts(body), tuple(values), grid)

    def _param(self, argument: ast.arg) -> Var:
        if argument.annotation is None:
            self.fail(argument, f"parameter {argument.arg} has no type")
        return self.declared(argument.arg, self.read_type(argument.annotation))

    def grid(self, body: list[ast.stmt]) -> tuple[tuple[Var, ...], tuple[Expr, ...]]:
        """The indices of blocks and their extents, which the first statement states; it is taken out of `body`."""
        first = body[0]
        if not isinstance(first, ast.Assign) or self.called(first.value) != "grid":
            return (), ()
        body.pop(0)
        assert isinstance(first.value, ast.Call)
        extents = tuple(map(self.expr, first.value.args))
        names = elements(first.targets[0])
        return tuple(self.declared(self.identifier(name), dtypes.i64) for name in names), extents

    def _declares(self, node: ast.stmt, values: list[tuple[Var, Expr]]) -> bool:
        """Whether a line declares a variable, which goes to `values`, a tile or a matrix."""
        if isinstance(node, ast.AnnAssign):
            if node.value is not None:
                value = self.expr(node.value)
                values.append((self.declared(self.identifier(node.target), self.read_type(node.annotation)), value))
            else:
                self.declare_tile(node)
            return True
        return self.declares_matrix(node)

    def declares_matrix(self, node: ast.stmt) -> bool:
        """Whether a line declares a matrix."""
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            self.sources[node.name] = self.gathered(node)
        elif isinstance(node, ast.Assign) and self.called(node.value) in _SOURCES:
            assert isinstance(node.value, ast.Call)
            name = self.identifier(node.targets[0])
            self.sources[name] = getattr(self, self.called(node.value))(node.value)
        else:
            return False
        return True

    def declare_tile(self, node: ast.AnnAssign) -> None:
        """`name: dtype[rows, columns] @ space`; strides are those of a transposed tile, or of one whose rows
        have room for more columns."""
        type_, name = self.read_type(node.annotation), self.identifier(node.target)
        shape = type_.shape if isinstance(type_, BufferType) else ()
        extents = [e.value for e in shape if isinstance(e, Const) and isinstance(e.value, int)]
        if not isinstance(type_, BufferType) or type_.space not in ("shared", "register") or len(extents) != 2:
            self.fail(node, f"{name} is no tile: expected a type such as f16[64, 32] @ shared, or @ register")
        rows, columns = extents
        strides = [e.value for e in type_.strides or () if isinstance(e, Const)]
        is_shared, tile = type_.space == "shared", (name, type_.dtype, rows, columns)
        if type_.strides is None:
            self.tiles[name] = STile(*tile) if is_shared else RTile(*tile)
        elif is_shared and strides[1:] == [1] and isinstance(strides[0], int) and strides[0] > columns:
            self.tiles[name] = STile(*tile, room=strides[0])
        elif not is_shared and strides == [1, rows]:
            self.tiles[name] = RTile(*tile, is_transposed=True)
        else:
            self.fail(
                node,
                f"{name} has strides {strides}, expected none, [1, {rows}] for a register tile that is transposed, or "
                f"[room, 1] for a shared one whose rows have room for more than {columns} columns",
            )

    # --- names -------------------------------------------------------------------------------------------------------

    def identifier(self, node: ast.expr) -> str:
        """The name that stands there."""
        if not isinstance(node, ast.Name):
            self.fail(node, f"expected a name, found {ast.unparse(node)}")
        return node.id

    def tile(self, node: ast.expr, kind: type[Made]) -> Made:
        """The tile of this kind that a name stands for."""
        name = self.identifier(node)
        found = self.tiles.get(name)
        if found is None:
            self.fail(node, f"tile {name} is not declared", suggestion(name, self.tiles))
        if not isinstance(found, kind):
            space = "shared memory" if isinstance(found, STile) else "registers"
            self.fail(node, f"tile {name} is in {space}, where this statement does not take it")
        return found

    def source(self, node: ast.expr) -> Source:
        """The matrix that a name stands for."""
        name = self.identifier(node)
        if name not in self.sources:
            self.fail(node, f"matrix {name} is not declared", suggestion(name, self.sources))
        return self.sources[name]

    # --- matrices ----------------------------------------------------------------------------------------------------

    def extents(self, node: ast.expr) -> tuple[Expr, Expr]:
        """Rows and columns."""
        parts = elements(node)
        if len(parts) != 2:
            self.fail(node, "expected [rows, columns]")
        return self.expr(parts[0]), self.expr(parts[1])

    def matrix(self, node: ast.Call) -> Source:
        """`matrix(pointer, [rows, columns], stride=..., align=...)`"""
        (pointer, extents), keywords = self.arguments(node, 2, ("stride", "align"))
        if len(keywords) != 2:
            self.fail(node, "expected matrix(pointer, [rows, columns], stride=..., align=...)")
        stride = self.expr(keywords["stride"])
        return GTensor(self.expr(pointer), *self.extents(extents), stride, self.known(keywords["align"], int))

    def computed(self, node: ast.Call) -> Source:
        """`computed(dtype, [rows, columns], lambda row, column: ...)`"""
        (dtype, extents, value), _ = self.arguments(node, 3)
        (row, column), formula = self.function(value, (build.INDEX, build.INDEX))
        return Computed(self.scalar(dtype), *self.extents(extents), row, column, formula)

    def stacked(self, node: ast.Call) -> Source:
        """`stacked(matrix, matrix, ...)`"""
        parts = [self.source(argument) for argument in node.args]
        matrices = tuple(part for part in parts if isinstance(part, GTensor))
        if not parts or len(matrices) < len(parts) or node.keywords:
            self.fail(node, "expected stacked(matrix, ...), of matrices in memory")
        first = matrices[0]
        return Stacked(tuple(replace(part, columns=first.columns, row_stride=first.row_stride) for part in matrices))

    def gathered(self, node: ast.FunctionDef) -> Source:
        """A function of (row, column) under `@gathered(pointer, [rows, columns], align=...)`."""
        decorator = node.decorator_list[0] if len(node.decorator_list) == 1 else None
        if decorator is None or self.called(decorator) != "gathered" or len(node.args.args) != 2:
            self.fail(
                node, "expected @gathered(pointer, [rows, columns], align=...) before a function of (row, column)"
            )
        assert isinstance(decorator, ast.Call)
        (pointer, extents), keywords = self.arguments(decorator, 2, ("align",))
        if "align" not in keywords:
            self.fail(decorator, "expected align=...")
        align = self.known(keywords["align"], int)
        place = self.expr(pointer)
        rows, columns = self.extents(extents)
        with self.inner():
            row, column = (self.declared(argument.arg, build.INDEX) for argument in node.args.args)
            values = {"each_row": self._values(node, "each_row"), "each_column": self._values(node, "each_column")}
            last = node.body[-1]
            if not isinstance(last, ast.Return) or last.value is None or len(elements(last.value)) != 2:
                self.fail(last, "expected return place, inside")
            results = [self.expr(value) for value in elements(last.value)]
            by_row, by_column = values["each_row"], values["each_column"]
            return Gathered(place, rows, columns, row, by_row, column, by_column, results[0], results[1], align)

    def _values(self, node: ast.FunctionDef, title: str) -> tuple[tuple[Var, Expr], ...]:
        """The variables that stand below `with title:`."""
        found: list[tuple[Var, Expr]] = []
        for block in node.body[:-1]:
            if not isinstance(block, ast.With) or _name_of(block.items[0].context_expr) not in (
                "each_row",
                "each_column",
            ):
                self.fail(block, "expected with each_row: or with each_column:")
            if _name_of(block.items[0].context_expr) != title:
                continue
            for line in block.body:
                if not isinstance(line, ast.AnnAssign) or line.value is None:
                    self.fail(line, "expected name: type = value")
                value = self.expr(line.value)
                found.append((self.declared(self.identifier(line.target), self.read_type(line.annotation)), value))
        return tuple(found)

    # --- statements --------------------------------------------------------------------------------------------------

    def stmts(self, nodes: Sequence[ast.stmt]) -> tuple[t.TileStmt, ...]:
        """The statements of a block."""
        return tuple(stmt for node in nodes for stmt in self.line(node))

    def line(self, node: ast.stmt) -> Sequence[t.TileStmt]:
        """What a line of a block is: as a rule one statement."""
        return () if isinstance(node, ast.Pass) else (self.stmt(node),)

    def stmt(self, node: ast.stmt) -> t.TileStmt:
        """A statement. What its class refuses is told with the place in the text."""
        case = _STMTS.get(type(node))
        made = None if case is None else case(self, node)
        if made is None:
            self.fail(node, f"{ast.unparse(node).splitlines()[0]} is no statement of a kernel in tiles")
        return made

    def assign(self, node: ast.Assign) -> t.TileStmt | None:
        """`tile = ...`; None where that is no statement on tiles."""
        name = self.called(node.value)
        if name not in _ASSIGNED or not isinstance(node.value, ast.Call):
            return None
        made: t.TileStmt = getattr(self, name)(node.targets[0], node.value)
        return made

    def box(self, node: ast.Call) -> tuple[Source, Expr, Expr]:
        """A matrix, and where a box of it starts."""
        (source, row, column), _ = self.arguments(node, 3)
        return self.source(source), self.expr(row), self.expr(column)

    def load(self, target: ast.expr, call: ast.Call) -> t.Load:
        """`tile = load(matrix, row, column)`"""
        return self.made(call, t.Load, self.tile(target, STile), *self.box(call))

    def fetch(self, target: ast.expr, call: ast.Call) -> t.Fetch:
        """`tile = fetch(matrix, row, column)`"""
        source, row, column = self.box(call)
        if not isinstance(source, GTensor):
            self.fail(call.args[0], "only a matrix in memory is fetched")
        return self.made(call, t.Fetch, self.tile(target, RTile), source, row, column)

    def fill(self, target: ast.expr, call: ast.Call) -> t.Fill:
        """`tile = fill(number)`"""
        (value,), _ = self.arguments(call, 1)
        tile = self.tile(target, RTile)
        return self.made(call, t.Fill, tile, self.number(value, tile.dtype))

    def map(self, target: ast.expr, call: ast.Call) -> t.Map:
        """`tile = map(lambda ..., tile, ...)`"""
        if not call.args or call.keywords:
            self.fail(call, "expected map(lambda ..., tile, ...)")
        tiles = tuple(self.tile(node, RTile) for node in call.args[1:])
        (*of_tiles, row, column), formula = self.formula(call.args[0], tiles, self.mapped(target))
        tile = self.result(target, tiles, formula.type)
        return self.made(call, t.Map, tile, tiles, tuple(of_tiles), row, column, formula)

    def mapped(self, target: ast.expr) -> RTile | None:
        """The tile that a map computes, where it is declared."""
        return self.tile(target, RTile)

    def result(self, target: ast.expr, tiles: Sequence[RTile], type_: Type) -> RTile:
        """The tile that a map of `tiles` by a formula of this type computes."""
        return self.tile(target, RTile)

    def reduce(self, target: ast.expr, call: ast.Call) -> t.Reduce:
        """`tile = reduce("op", tile, axis=...)`"""
        (op, source), keywords = self.arguments(call, 2, ("axis",))
        if "axis" not in keywords:
            self.fail(call, 'expected reduce("op", tile, axis=...)')
        axis, tile = self.known(keywords["axis"], int), self.tile(source, RTile)
        return self.made(call, t.Reduce, self.reduced(target, tile, axis), tile, axis, self.known(op, str))

    def reduced(self, target: ast.expr, source: RTile, axis: int) -> RTile:
        """The tile that a reduction of `source` gives."""
        return self.tile(target, RTile)

    def multiply(self, node: ast.AugAssign) -> t.TileStmt | None:
        """`total += mma(a, b)`; None for other sums."""
        call = node.value
        if not isinstance(node.op, ast.Add) or self.called(call) != "mma" or not isinstance(call, ast.Call):
            return None
        (a, b), _ = self.arguments(call, 2)
        (tile_a, ta), (tile_b, tb) = self._factor(a, object), self._factor(b, STile)
        return self.made(call, t.Mma, self.tile(node.target, RTile), tile_a, tile_b, ta, tb)

    def _factor(self, node: ast.expr, kind: type[Any]) -> tuple[Any, bool]:
        """A tile that is multiplied, and whether it is transposed."""
        is_transposed = isinstance(node, ast.Attribute) and node.attr == "T"
        return self.tile(node.value if isinstance(node, ast.Attribute) and is_transposed else node, kind), is_transposed

    def expression(self, node: ast.Expr) -> t.TileStmt | None:
        """`store(matrix, tile, row, column)`; None for other expressions."""
        call = node.value
        if not isinstance(call, ast.Call) or self.called(call) != "store":
            return None
        (matrix, tile, row, column), _ = self.arguments(call, 4)
        target = self.source(matrix)
        if not isinstance(target, GTensor):
            self.fail(matrix, "only a matrix in memory is stored to")
        return self.made(call, t.Store, target, self.tile(tile, RTile), self.expr(row), self.expr(column))

    def loop(self, node: ast.For) -> t.TileStmt | None:
        """`for index in range(extent)` or `in pipeline(extent, stages=...)`; None for other loops."""
        kind = self.called(node.iter)
        if kind not in ("pipeline", "range") or not isinstance(node.iter, ast.Call):
            return None
        if node.orelse:
            self.fail(node.orelse[0], "a loop of a kernel in tiles has no else")
        (extent_node,), keywords = self.arguments(node.iter, 1, ("stages",) if kind == "pipeline" else ())
        extent = self.expr(extent_node)
        with self.inner():
            index = self.declared(self.identifier(node.target), build.INDEX)
            body = self.stmts(node.body)
            if kind == "range":
                return t.Loop(index, extent, body)
            if "stages" not in keywords:
                self.fail(node.iter, "expected pipeline(extent, stages=...)")
            loads = tuple(itertools.takewhile(_is_load, body))
            stages = self.known(keywords["stages"], int)
            return self.made(node.iter, t.Ring, index, extent, stages, loads, body[len(loads) :])

    def branch(self, node: ast.If) -> t.TileStmt | None:
        """`if condition` of the block, or `if any(lambda element: condition, tile)` of each warp."""
        if node.orelse:
            self.fail(node.orelse[0], "a branch of a kernel in tiles has no else")
        if self.called(node.test) != "any" or not isinstance(node.test, ast.Call):
            return t.When(self.condition(node.test), self.stmts(node.body))
        (condition, of), _ = self.arguments(node.test, 2)
        tile = self.tile(of, RTile)
        (element,), formula = self.function(condition, (tile.dtype,))
        body = self.stmts(node.body)
        maps = tuple(stmt for stmt in body if isinstance(stmt, t.Map))
        if len(maps) != len(body):
            self.fail(node, "a branch of warps holds maps alone")
        return t.WhenAny(tile, element, formula, maps)

    def made(self, node: ast.AST, kind: Callable[..., Made], *parts: Any) -> Made:
        """A statement; what it refuses, at its place in the text."""
        try:
            return kind(*parts)
        except ScheduleError as error:
            self.fail(node, error.message, error.hint)

    def arguments(
        self, call: ast.Call, count: int, names: Sequence[str] = ()
    ) -> tuple[list[ast.expr], dict[str, ast.expr]]:
        """The arguments of a call: `count` by place, and some of `names` by name."""
        keywords = {str(keyword.arg): keyword.value for keyword in call.keywords}
        if len(call.args) != count or not keywords.keys() <= set(names):
            expected = ", ".join([f"{count} values", *(f"{name}=..." for name in names)])
            self.fail(call, f"{ast.unparse(call)} has the wrong arguments, expected {expected}")
        return call.args, keywords


def _name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _is_load(stmt: t.TileStmt) -> bool:
    return isinstance(stmt, t.Load)


_SOURCES = ("matrix", "computed", "stacked")
"""Functions that give a matrix, as methods of the parser are called."""
_ASSIGNED = ("load", "fetch", "fill", "map", "reduce")
"""Functions whose result a tile takes, as methods of the parser are called."""
_STMTS: dict[type[ast.AST], Callable[[KernelParser, Any], t.TileStmt | None]] = {
    ast.Assign: lambda parser, node: parser.assign(node),
    ast.AugAssign: lambda parser, node: parser.multiply(node),
    ast.Expr: lambda parser, node: parser.expression(node),
    ast.For: lambda parser, node: parser.loop(node),
    ast.If: lambda parser, node: parser.branch(node),
}
