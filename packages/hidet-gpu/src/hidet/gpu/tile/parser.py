"""Reads the kernels that `hidet.gpu.tile.printer` prints. Nothing is executed: Python only parses the text."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from hidet import dtypes
from hidet.dims import Symbol
from hidet.errors import ScheduleError, suggestion
from hidet.gpu.intrinsics import INTRINSICS
from hidet.gpu.tile import statements as t
from hidet.gpu.tile.kernel import TileKernel
from hidet.gpu.tile.tensors import Computed, Gathered, GTensor, RTile, Source, STile
from hidet.ir import build
from hidet.ir.common_intrinsics import ROWS
from hidet.ir.expr import Const, Expr, Var
from hidet.ir.expr_parser import ExprParser, elements, fail, string
from hidet.ir.intrinsic import Intrinsic
from hidet.ir.parser import parse_definition
from hidet.ir.types import BufferType, Type

Made = TypeVar("Made")
Keywords = Mapping[str, ast.expr]


def parse_kernel(text: str, intrinsics: Mapping[str, Intrinsic] | None = None) -> TileKernel:
    """The kernel that `print_kernel` printed; it is not verified.

    intrinsics: those that calls may name; None for those of every target and of GPUs.
    VerifyError with line and column for text that it would not print, and for statements whose tiles do not fit.
    """
    symbols, definition = parse_definition(text)
    known = {**ROWS, **INTRINSICS} if intrinsics is None else intrinsics
    return _KernelParser(symbols, known).kernel(definition)


class _KernelParser:
    """One kernel. Variables are in the scope of expressions; tiles and matrices, which no expression mentions, are
    not."""

    def __init__(self, symbols: Mapping[str, Symbol], intrinsics: Mapping[str, Intrinsic]) -> None:
        self.scope: dict[str, Any] = {}
        self.exprs = ExprParser(self.scope, symbols, intrinsics)
        self.tiles: dict[str, STile | RTile] = {}
        self.sources: dict[str, Source] = {}

    def kernel(self, node: ast.FunctionDef) -> TileKernel:
        """The kernel: first what it declares, then its statements."""
        decorator = node.decorator_list[0] if len(node.decorator_list) == 1 else node
        if not isinstance(decorator, ast.Call) or _name_of(decorator.func) != "tile":
            fail(node, f"kernel {node.name} needs one decorator: @tile(warps=(rows, columns))")
        _, keywords = _arguments(decorator, 0, ("symbol", "warps"))
        name = string(keywords["symbol"]) if "symbol" in keywords else node.name
        if "warps" not in keywords or len(elements(keywords["warps"])) != 2:
            fail(decorator, "expected @tile(warps=(rows, columns))")
        rows, columns = (string(count, int) for count in elements(keywords["warps"]))
        params = tuple(self._param(argument) for argument in node.args.args)
        body = list(node.body)
        grid_vars, grid = self._grid(body)
        values: list[tuple[Var, Expr]] = []
        while body and self._declares(body[0], values):
            body.pop(0)
        return TileKernel(name, params, grid_vars, (rows, columns), self.stmts(body), tuple(values), grid)

    def _param(self, argument: ast.arg) -> Var:
        if argument.annotation is None:
            fail(argument, f"parameter {argument.arg} has no type")
        return self.declared(argument.arg, self.exprs.type(argument.annotation))

    def _grid(self, body: list[ast.stmt]) -> tuple[tuple[Var, ...], tuple[Expr, ...]]:
        first = body[0]
        if not isinstance(first, ast.Assign) or _called(first.value) != "grid":
            return (), ()
        body.pop(0)
        assert isinstance(first.value, ast.Call)
        extents = tuple(map(self.exprs.expr, first.value.args))
        names = elements(first.targets[0])
        return tuple(self.declared(self.identifier(name), dtypes.i64) for name in names), extents

    def _declares(self, node: ast.stmt, values: list[tuple[Var, Expr]]) -> bool:
        """Whether a line declares a variable, which goes to `values`, a tile or a matrix."""
        if isinstance(node, ast.AnnAssign):
            type_ = self.exprs.type(node.annotation)
            name = self.identifier(node.target)
            if node.value is not None:
                value = self.exprs.expr(node.value)
                values.append((self.declared(name, type_), value))
            else:
                self.tiles[name] = self._tile(node, name, type_)
        elif isinstance(node, ast.FunctionDef):
            self.sources[node.name] = self.gathered(node)
        elif isinstance(node, ast.Assign) and _called(node.value) in _SOURCES:
            assert isinstance(node.value, ast.Call)
            self.sources[self.identifier(node.targets[0])] = _SOURCES[_called(node.value)](self, node.value)
        else:
            return False
        return True

    def _tile(self, node: ast.AnnAssign, name: str, type_: Type) -> STile | RTile:
        shape = type_.shape if isinstance(type_, BufferType) else ()
        extents = [e.value for e in shape if isinstance(e, Const) and isinstance(e.value, int)]
        if not isinstance(type_, BufferType) or type_.space not in ("shared", "register") or len(extents) != 2:
            fail(node, f"{name} is no tile: expected a type such as f16[64, 32] @ shared, or @ register")
        rows, columns = extents
        return (STile if type_.space == "shared" else RTile)(name, type_.dtype, rows, columns)

    # --- names -------------------------------------------------------------------------------------------------------

    def identifier(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Name):
            fail(node, f"expected a name, found {ast.unparse(node)}")
        return node.id

    def declared(self, name: str, type_: Type) -> Var:
        self.scope[name] = made = Var(name, type_)
        return made

    @contextmanager
    def inner(self) -> Iterator[None]:
        """A scope whose variables end with it."""
        outer = dict(self.scope)
        yield
        self.scope.clear()
        self.scope.update(outer)

    def tile(self, node: ast.expr, kind: type[Made]) -> Made:
        """The tile of this kind that a name stands for."""
        name = self.identifier(node)
        found = self.tiles.get(name)
        if found is None:
            fail(node, f"tile {name} is not declared", suggestion(name, self.tiles))
        if not isinstance(found, kind):
            space = "shared memory" if isinstance(found, STile) else "registers"
            fail(node, f"tile {name} is in {space}, where this statement does not take it")
        return found

    def source(self, node: ast.expr) -> Source:
        name = self.identifier(node)
        if name not in self.sources:
            fail(node, f"matrix {name} is not declared", suggestion(name, self.sources))
        return self.sources[name]

    def function(self, node: ast.expr, types: Sequence[Type]) -> tuple[tuple[Var, ...], Expr]:
        """The parameters, of these types, and the body of a lambda."""
        if not isinstance(node, ast.Lambda) or len(node.args.args) != len(types):
            fail(node, f"expected a lambda of {len(types)} parameters")
        with self.inner():
            pairs = zip(node.args.args, types, strict=True)
            params = tuple(self.declared(argument.arg, type_) for argument, type_ in pairs)
            return params, self.exprs.expr(node.body)

    # --- matrices ----------------------------------------------------------------------------------------------------

    def extents(self, node: ast.expr) -> tuple[Expr, Expr]:
        """Rows and columns."""
        parts = elements(node)
        if len(parts) != 2:
            fail(node, "expected [rows, columns]")
        return self.exprs.expr(parts[0]), self.exprs.expr(parts[1])

    def matrix(self, node: ast.Call) -> Source:
        (pointer, extents), keywords = _arguments(node, 2, ("stride", "align"))
        if len(keywords) != 2:
            fail(node, "expected matrix(pointer, [rows, columns], stride=..., align=...)")
        stride = self.exprs.expr(keywords["stride"])
        return GTensor(self.exprs.expr(pointer), *self.extents(extents), stride, string(keywords["align"], int))

    def computed(self, node: ast.Call) -> Source:
        (dtype, extents, value), _ = _arguments(node, 3)
        (row, column), formula = self.function(value, (build.INDEX, build.INDEX))
        return Computed(self.exprs.scalar(dtype), *self.extents(extents), row, column, formula)

    def gathered(self, node: ast.FunctionDef) -> Source:
        decorator = node.decorator_list[0] if len(node.decorator_list) == 1 else None
        if not isinstance(decorator, ast.Call) or _name_of(decorator.func) != "gathered" or len(node.args.args) != 2:
            fail(node, "expected @gathered(pointer, [rows, columns], align=...) before a function of (row, column)")
        (pointer, extents), keywords = _arguments(decorator, 2, ("align",))
        align = string(keywords["align"], int) if "align" in keywords else fail(decorator, "expected align=...")
        place = self.exprs.expr(pointer)
        rows, columns = self.extents(extents)
        with self.inner():
            row, column = (self.declared(argument.arg, build.INDEX) for argument in node.args.args)
            values = {"each_row": self._values(node, "each_row"), "each_column": self._values(node, "each_column")}
            last = node.body[-1]
            if not isinstance(last, ast.Return) or last.value is None or len(elements(last.value)) != 2:
                fail(last, "expected return place, inside")
            results = [self.exprs.expr(value) for value in elements(last.value)]
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
                fail(block, "expected with each_row: or with each_column:")
            if _name_of(block.items[0].context_expr) != title:
                continue
            for line in block.body:
                if not isinstance(line, ast.AnnAssign) or line.value is None:
                    fail(line, "expected name: type = value")
                value = self.exprs.expr(line.value)
                found.append((self.declared(self.identifier(line.target), self.exprs.type(line.annotation)), value))
        return tuple(found)

    # --- statements --------------------------------------------------------------------------------------------------

    def stmts(self, nodes: Sequence[ast.stmt]) -> tuple[t.TileStmt, ...]:
        return tuple(self.stmt(node) for node in nodes if not isinstance(node, ast.Pass))

    def stmt(self, node: ast.stmt) -> t.TileStmt:
        """A statement. What its class refuses is told with the place in the text."""
        case = _STMTS.get(type(node))
        made = None if case is None else case(self, node)
        if made is None:
            fail(node, f"{ast.unparse(node).splitlines()[0]} is no statement of a kernel in tiles")
        return made

    def assign(self, node: ast.Assign) -> t.TileStmt | None:
        case = _ASSIGNED.get(_called(node.value))
        if case is None or not isinstance(node.value, ast.Call):
            return None
        return case(self, node.targets[0], node.value)

    def box(self, node: ast.Call) -> tuple[Source, Expr, Expr]:
        (source, row, column), _ = _arguments(node, 3)
        return self.source(source), self.exprs.expr(row), self.exprs.expr(column)

    def load(self, target: ast.expr, call: ast.Call) -> t.Load:
        return _made(call, t.Load, self.tile(target, STile), *self.box(call))

    def fetch(self, target: ast.expr, call: ast.Call) -> t.Fetch:
        source, row, column = self.box(call)
        if not isinstance(source, GTensor):
            fail(call.args[0], "only a matrix in memory is fetched")
        return _made(call, t.Fetch, self.tile(target, RTile), source, row, column)

    def fill(self, target: ast.expr, call: ast.Call) -> t.Fill:
        (value,), _ = _arguments(call, 1)
        number = self.exprs.expr(value)
        if not isinstance(number, Const):
            fail(value, f"a tile is filled with a number, not {ast.unparse(value)}")
        return _made(call, t.Fill, self.tile(target, RTile), number)

    def map(self, target: ast.expr, call: ast.Call) -> t.Map:
        if not call.args:
            fail(call, "expected map(lambda ..., tile, ...)")
        tiles = tuple(self.tile(node, RTile) for node in call.args[1:])
        params, formula = self.function(call.args[0], (*(tile.dtype for tile in tiles), build.INDEX, build.INDEX))
        *of_tiles, row, column = params
        return _made(call, t.Map, self.tile(target, RTile), tiles, tuple(of_tiles), row, column, formula)

    def reduce(self, target: ast.expr, call: ast.Call) -> t.Reduce:
        (op, source), keywords = _arguments(call, 2, ("axis",))
        if "axis" not in keywords:
            fail(call, 'expected reduce("op", tile, axis=...)')
        axis = string(keywords["axis"], int)
        return _made(call, t.Reduce, self.tile(target, RTile), self.tile(source, RTile), axis, string(op))

    def multiply(self, node: ast.AugAssign) -> t.TileStmt | None:
        call = node.value
        if not isinstance(node.op, ast.Add) or _called(call) != "mma" or not isinstance(call, ast.Call):
            return None
        (a, b), _ = _arguments(call, 2)
        (tile_a, ta), (tile_b, tb) = self.factor(a, object), self.factor(b, STile)
        return _made(call, t.Mma, self.tile(node.target, RTile), tile_a, tile_b, ta, tb)

    def factor(self, node: ast.expr, kind: type[Any]) -> tuple[Any, bool]:
        """A tile that is multiplied, and whether it is transposed."""
        is_transposed = isinstance(node, ast.Attribute) and node.attr == "T"
        return self.tile(node.value if isinstance(node, ast.Attribute) and is_transposed else node, kind), is_transposed

    def expression(self, node: ast.Expr) -> t.TileStmt | None:
        call = node.value
        if not isinstance(call, ast.Call) or _called(call) != "store":
            return None
        (matrix, tile, row, column), _ = _arguments(call, 4)
        target = self.source(matrix)
        if not isinstance(target, GTensor):
            fail(matrix, "only a matrix in memory is stored to")
        return _made(call, t.Store, target, self.tile(tile, RTile), self.exprs.expr(row), self.exprs.expr(column))

    def loop(self, node: ast.For) -> t.TileStmt | None:
        kind = _called(node.iter)
        if kind not in ("ring", "range") or not isinstance(node.iter, ast.Call):
            return None
        (extent_node,), keywords = _arguments(node.iter, 1, ("stages",) if kind == "ring" else ())
        extent = self.exprs.expr(extent_node)
        with self.inner():
            index = self.declared(self.identifier(node.target), build.INDEX)
            if kind == "range":
                return t.Loop(index, extent, self.stmts(node.body))
            if "stages" not in keywords:
                fail(node.iter, "expected ring(extent, stages=...)")
            count = next((n for n, line in enumerate(node.body) if not _is_prefetch(line)), len(node.body))
            loads = tuple(self._prefetch(line) for line in node.body[:count])
            stages = string(keywords["stages"], int)
            return _made(node.iter, t.Ring, index, extent, stages, loads, self.stmts(node.body[count:]))

    def _prefetch(self, node: ast.stmt) -> t.Load:
        assert isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        return self.load(node.targets[0], node.value)

    def branch(self, node: ast.If) -> t.TileStmt | None:
        if node.orelse:
            fail(node.orelse[0], "a branch of a kernel in tiles has no else")
        if _called(node.test) != "any" or not isinstance(node.test, ast.Call):
            return t.When(self.exprs.expr(node.test), self.stmts(node.body))
        (condition, of), _ = _arguments(node.test, 2)
        tile = self.tile(of, RTile)
        (element,), formula = self.function(condition, (tile.dtype,))
        body = self.stmts(node.body)
        maps = tuple(stmt for stmt in body if isinstance(stmt, t.Map))
        if len(maps) != len(body):
            fail(node, "a branch of warps holds maps alone")
        return t.WhenAny(tile, element, formula, maps)


def _made(node: ast.AST, kind: Callable[..., Made], *parts: Any) -> Made:
    """A statement; what it refuses, at its place in the text."""
    try:
        return kind(*parts)
    except ScheduleError as error:
        _refuse(node, error)


def _refuse(node: ast.AST, error: ScheduleError) -> NoReturn:
    fail(node, error.message, error.hint)


def _name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _called(node: ast.expr) -> str:
    """The name of the function that an expression calls; "" for other expressions."""
    return _name_of(node.func) if isinstance(node, ast.Call) else ""


def _is_prefetch(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and _called(node.value) == "prefetch"


def _arguments(call: ast.Call, count: int, names: Sequence[str] = ()) -> tuple[list[ast.expr], dict[str, ast.expr]]:
    """The arguments of a call: `count` by place, and some of `names` by name."""
    keywords = {str(keyword.arg): keyword.value for keyword in call.keywords}
    if len(call.args) != count or not keywords.keys() <= set(names):
        expected = ", ".join([f"{count} values", *(f"{name}=..." for name in names)])
        fail(call, f"{ast.unparse(call)} has the wrong arguments, expected {expected}")
    return call.args, keywords


_SOURCES: dict[str, Callable[[_KernelParser, ast.Call], Source]] = {
    "matrix": _KernelParser.matrix,
    "computed": _KernelParser.computed,
}
_ASSIGNED: dict[str, Callable[[_KernelParser, ast.expr, ast.Call], t.TileStmt]] = {
    "load": _KernelParser.load,
    "fetch": _KernelParser.fetch,
    "fill": _KernelParser.fill,
    "map": _KernelParser.map,
    "reduce": _KernelParser.reduce,
}
_STMTS: dict[type[ast.AST], Callable[[_KernelParser, Any], t.TileStmt | None]] = {
    ast.Assign: _KernelParser.assign,
    ast.AugAssign: _KernelParser.multiply,
    ast.Expr: _KernelParser.expression,
    ast.For: _KernelParser.loop,
    ast.If: _KernelParser.branch,
}
