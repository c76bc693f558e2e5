"""Reads the types and expressions that `hidet.ir.expr_text` prints, from Python's own syntax tree."""

from __future__ import annotations

import ast
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from hidet import dtypes
from hidet.dims import Symbol, parse_dim
from hidet.dtypes import DType
from hidet.errors import HidetError, VerifyError, suggestion
from hidet.ir import expr as e
from hidet.ir.combiner import COMBINERS
from hidet.ir.common_intrinsics import ROWS
from hidet.ir.expr_text import address_type, element_type
from hidet.ir.intrinsic import Intrinsic
from hidet.ir.python_operators import PYTHON_OPERATORS
from hidet.ir.scalar_ops import BINARY_OPS, UNARY_OPS
from hidet.ir.types import BufferType, MemorySpace, PointerType, Type, VectorType, with_lanes

if TYPE_CHECKING:
    from hidet.ir.operand import Operand

_SCALARS = {entry.short: entry for entry in dtypes.ALL_DTYPES}
_SPACES: dict[str, MemorySpace] = {space: space for space in get_args(MemorySpace)}


def parse_expr(
    text: str,
    variables: Sequence[e.Var] = (),
    operands: Sequence[Operand] = (),
    symbols: Sequence[Symbol] = (),
    intrinsics: Mapping[str, Intrinsic] = ROWS,
) -> e.Expr:
    """The expression that `print_expr` printed, over the given variables, operands, symbols and intrinsics, found by
    their names.

    Raises VerifyError with line and column for text that is malformed or names something else.
    """
    scope: dict[str, Any] = {**{var.name: var for var in variables}, **{operand.name: operand for operand in operands}}
    parser = ExprParser(scope, {symbol.name: symbol for symbol in symbols}, intrinsics)
    return parser.expr(parse_python(text, "eval").body)


def parse_python(text: str, mode: str) -> Any:
    """Python's syntax tree. VerifyError where the text is not Python."""
    try:
        return ast.parse(text, mode=mode)
    except SyntaxError as error:
        raise VerifyError(f"program text, line {error.lineno}, column {error.offset}: {error.msg}") from error


def fail(node: ast.AST, message: str, hint: str | None = None) -> NoReturn:
    """Raise VerifyError at a node of the syntax tree."""
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
    raise VerifyError(f"program text, line {line}, column {column}: {message}", hint=hint)


class ExprParser:
    """Expressions over the names in `scope`: variables, and in compute definitions operands.

    intrinsics: by name, those that calls may name.
    """

    def __init__(
        self, scope: dict[str, Any], symbols: Mapping[str, Symbol], intrinsics: Mapping[str, Intrinsic]
    ) -> None:
        self.scope = scope
        self.symbols = symbols
        self.intrinsics = intrinsics

    # --- types -------------------------------------------------------------------------------------------------------

    def type(self, node: ast.expr) -> Type:
        """A type."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return self._placed(self.type(node.left), node.right)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            return PointerType(self.scalar(node.operand))
        if isinstance(node, ast.Subscript):
            element = self.value_type(node.value)
            shape = tuple(map(self.expr, elements(node.slice)))
            lanes = element.lanes if isinstance(element, VectorType) else 1
            return BufferType(element if isinstance(element, DType) else element.dtype, shape, lanes=lanes)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "strided":
            inner = self.type(node.args[0])
            if not isinstance(inner, BufferType) or len(node.args) != 2:
                fail(node, "expected strided(buffer type, [stride, ...])")
            return BufferType(inner.dtype, inner.shape, self.exprs(node.args[1]), lanes=inner.lanes)
        return self.value_type(node)

    def _placed(self, inner: Type, node: ast.expr) -> Type:
        """A pointer or buffer type in the memory space that `node` names."""
        space = _SPACES.get(node.id) if isinstance(node, ast.Name) else None
        if space is None:
            fail(node, f"expected a memory space: {', '.join(_SPACES)}")
        if isinstance(inner, PointerType):
            return PointerType(inner.dtype, space)
        if isinstance(inner, BufferType):
            return BufferType(inner.dtype, inner.shape, inner.strides, space, inner.lanes)
        fail(node, "only pointers and buffers have a memory space")

    def value_type(self, node: ast.expr) -> DType | VectorType:
        """A scalar or vector type."""
        found = named_type(node.id) if isinstance(node, ast.Name) else None
        if found is None:
            fail(node, f"expected a type, found {ast.unparse(node)}")
        return found

    def scalar(self, node: ast.expr) -> DType:
        """A scalar type."""
        found = self.value_type(node)
        if not isinstance(found, DType):
            fail(node, f"expected a scalar type, found {found}")
        return found

    # --- expressions -------------------------------------------------------------------------------------------------

    def called(self, args: list[ast.expr], keywords: _Arguments) -> e.Call:
        """A call of an intrinsic or, where none has the name, of a function."""
        name = string(args[0])
        arguments = tuple(map(self.expr, args[1:]))
        return e.Call(name, arguments, self.result_type(keywords["type"]), self.intrinsics.get(name))

    def expr(self, node: ast.expr) -> e.Expr:
        """An expression."""
        case = _CASES.get(type(node))
        if case is None:
            fail(node, f"{ast.unparse(node)} is no expression of the thread IR")
        return case(self, node)

    def exprs(self, node: ast.expr) -> tuple[e.Expr, ...]:
        """The expressions of a list."""
        return tuple(map(self.expr, elements(node)))

    def name(self, node: ast.Name) -> Any:
        """What a name stands for."""
        if node.id not in self.scope:
            fail(node, f"{node.id} is not defined", suggestion(node.id, self.scope))
        return self.scope[node.id]

    def constant(self, node: ast.Constant) -> e.Expr:
        value = node.value
        if isinstance(value, bool):
            return e.Const(value, dtypes.boolean)
        if isinstance(value, int):
            return e.Const(value, dtypes.i64)
        if isinstance(value, float):
            return e.Const(value, dtypes.f32)
        fail(node, f"{value!r} is no literal of the thread IR")

    def unary(self, node: ast.UnaryOp) -> e.Expr:
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            literal = self.constant(node.operand)
            assert isinstance(literal, e.Const)
            return e.Const(-literal.value, literal.type)
        return self.make_unary(PYTHON_OPERATORS.get(type(node.op), ""), self.expr(node.operand), node)

    def make_unary(self, op: str, a: e.Expr, node: ast.AST) -> e.Expr:
        if op not in UNARY_OPS:
            fail(node, "no such operator")
        type_: Type = with_lanes(dtypes.boolean, a.lanes) if UNARY_OPS[op].result == "bool" else a.type
        return e.Unary(op, a, type_)

    def binary(self, node: ast.BinOp) -> e.Expr:
        return self.make_binary(
            PYTHON_OPERATORS.get(type(node.op), ""), self.expr(node.left), self.expr(node.right), node
        )

    def make_binary(self, op: str, a: e.Expr, b: e.Expr, node: ast.AST) -> e.Expr:
        if op not in BINARY_OPS:
            fail(node, "no such operator")
        type_: Type = with_lanes(dtypes.boolean, a.lanes) if BINARY_OPS[op].result == "bool" else a.type
        return e.Binary(op, a, b, type_)

    def compare(self, node: ast.Compare) -> e.Expr:
        if len(node.ops) != 1:
            fail(node, "comparisons do not chain; write (a < b) and (b < c)")
        a, b = self.expr(node.left), self.expr(node.comparators[0])
        return self.make_binary(PYTHON_OPERATORS.get(type(node.ops[0]), ""), a, b, node)

    def logical(self, node: ast.BoolOp) -> e.Expr:
        result, *others = map(self.expr, node.values)
        for other in others:
            result = self.make_binary(PYTHON_OPERATORS[type(node.op)], result, other, node)
        return result

    def select(self, node: ast.IfExp) -> e.Expr:
        a = self.expr(node.body)
        return e.Select(self.expr(node.test), a, self.expr(node.orelse), a.type)

    def subscript(self, node: ast.Subscript) -> e.Expr:
        indices = tuple(map(self.expr, elements(node.slice)))
        thing = self.name(node.value) if isinstance(node.value, ast.Name) else self.expr(node.value)
        if isinstance(thing, e.Expr):
            return e.Load(thing, indices, element_type(thing.type))
        return e.Access(thing, indices, thing.dtype)

    def call(self, node: ast.Call) -> e.Expr:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        keywords = {k.arg: k.value for k in node.keywords}
        special = _CALLS.get(name)
        try:
            if special is not None:
                return special(self, node, node.args, keywords)
            type_ = named_type(name)
            if type_ is not None:
                return e.Const(_literal(node), type_)
            if name in UNARY_OPS and len(node.args) == 1:
                return self.make_unary(name, self.expr(node.args[0]), node)
            if name in BINARY_OPS and len(node.args) == 2:
                return self.make_binary(name, self.expr(node.args[0]), self.expr(node.args[1]), node)
        except (IndexError, KeyError, ValueError, TypeError) as error:
            fail(node, f"{ast.unparse(node)} has the wrong arguments ({error})")
        hint = suggestion(name, [*_CALLS, *UNARY_OPS, *BINARY_OPS])
        fail(node, f"{ast.unparse(node.func)} is no function of {len(node.args)} values", hint)

    def result_type(self, node: ast.expr) -> Type:
        """The type of a call; None for one that gives no value."""
        if isinstance(node, ast.Constant) and node.value is None:
            return None  # type: ignore[return-value]  # such calls stand in Evaluate only
        return self.type(node)

    def size(self, node: ast.Call) -> e.Expr:
        try:
            dim = parse_dim(ast.unparse(node.args[0]), self.symbols)
        except HidetError as error:
            fail(node, error.message, error.hint)
        if isinstance(dim, int):
            fail(node, f"size {dim} is constant: write it as a literal")
        return e.Size(dim, self.type(node.args[1]) if len(node.args) > 1 else dtypes.i64)

    def load(self, args: list[ast.expr], keywords: dict[str | None, ast.expr]) -> e.Expr:
        buffer = self.expr(args[0])
        type_ = self.type(args[2]) if len(args) > 2 else element_type(buffer.type)
        mask = self.expr(keywords["mask"]) if "mask" in keywords else None
        return e.Load(buffer, self.exprs(args[1]), type_, mask)

    def address(self, node: ast.Call, args: list[ast.expr], keywords: dict[str | None, ast.expr]) -> e.Expr:
        buffer, *indices = map(self.expr, args)
        type_ = self.type(keywords["type"]) if "type" in keywords else address_type(buffer.type)
        if type_ is None:
            fail(node, f"{ast.unparse(args[0])} is no memory")
        return e.AddressOf(buffer, tuple(indices), type_)

    def let(self, args: list[ast.expr]) -> e.Expr:
        """`let(name := part, ..., expression)`: a part is one expression wherever it is used."""
        *parts, last = args
        outer = dict(self.scope)
        for part in parts:
            if not isinstance(part, ast.NamedExpr):
                fail(part, "expected let(name := value, ..., value)")
            self.scope[part.target.id] = self.expr(part.value)
        result = self.expr(last)
        self.scope.clear()
        self.scope.update(outer)
        return result

    def reduce(self, node: ast.Call, args: list[ast.expr]) -> e.Expr:
        name = string(args[0])
        if name not in COMBINERS:
            fail(node, f"combiner {name!r} is unknown", suggestion(name, COMBINERS))
        extents = self.exprs(args[2])
        names = [axis.id for axis in elements(args[1]) if isinstance(axis, ast.Name)]
        axes = tuple(e.Var(name, dtypes.i64) for name in names)
        outer = dict(self.scope)
        self.scope.update(zip(names, axes, strict=True))
        values = self.exprs(args[3])
        self.scope.clear()
        self.scope.update(outer)
        result = int(string(args[4], int))
        return e.Reduce(COMBINERS[name], axes, extents, values, result, values[result].type)


def elements(node: ast.expr) -> list[ast.expr]:
    """The parts of a list or tuple; any other node is its only part."""
    return list(node.elts) if isinstance(node, ast.List | ast.Tuple) else [node]


def string(node: ast.expr, kind: type = str) -> Any:
    """The value of a string (or other) literal. VerifyError for anything else."""
    if not isinstance(node, ast.Constant) or type(node.value) is not kind:
        fail(node, f"expected a literal of type {kind.__name__}, found {ast.unparse(node)}")
    return node.value


def named_type(name: str) -> DType | VectorType | None:
    """The scalar or vector type called `name`: f32, f32x8; None when there is none."""
    if name in _SCALARS:
        return _SCALARS[name]
    scalar, _, lanes = name.rpartition("x")
    return VectorType(_SCALARS[scalar], int(lanes)) if scalar in _SCALARS and lanes.isdigit() else None


def _literal(node: ast.Call) -> Any:
    """The value of a constant that says its type: f16(1.5), c64(1.0, -2.0), f32(inf), f64(bits(0x7ff8000000000001))."""
    parts = [_number(part) for part in node.args]
    return complex(*parts) if len(parts) == 2 else parts[0]


def _number(node: ast.expr) -> Any:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand)
    if isinstance(node, ast.Name) and node.id in ("inf", "nan"):
        return float(node.id)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "bits":
        return struct.unpack(">d", string(node.args[0], int).to_bytes(8, "big"))[0]
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        return node.value
    fail(node, f"expected a number, found {ast.unparse(node)}")


_CASES: dict[type[ast.AST], Callable[[ExprParser, Any], e.Expr]] = {
    ast.Name: ExprParser.name,
    ast.Constant: ExprParser.constant,
    ast.UnaryOp: ExprParser.unary,
    ast.BinOp: ExprParser.binary,
    ast.Compare: ExprParser.compare,
    ast.BoolOp: ExprParser.logical,
    ast.IfExp: ExprParser.select,
    ast.Subscript: ExprParser.subscript,
    ast.Call: ExprParser.call,
}

_Arguments = dict[str | None, ast.expr]
_CALLS: dict[str, Callable[[ExprParser, ast.Call, list[ast.expr], _Arguments], e.Expr]] = {
    "size": lambda parser, node, args, keywords: parser.size(node),
    "pointer": lambda parser, node, args, keywords: e.Const(_number(args[0]), parser.type(args[1])),
    "cast": lambda parser, node, args, keywords: e.Cast(parser.expr(args[0]), parser.type(args[1])),
    "bitcast": lambda parser, node, args, keywords: e.Bitcast(parser.expr(args[0]), parser.type(args[1])),
    "load": lambda parser, node, args, keywords: parser.load(args, keywords),
    "address": ExprParser.address,
    "call": lambda parser, node, args, keywords: parser.called(args, keywords),
    "broadcast": lambda parser, node, args, keywords: _broadcast(parser.expr(args[0]), string(args[1], int)),
    "extract": lambda parser, node, args, keywords: _extract(parser.expr(args[0]), string(args[1], int)),
    "shuffle": lambda parser, node, args, keywords: _shuffle(parser.expr(args[0]), parser.expr(args[1]), args[2]),
    "reduce": lambda parser, node, args, keywords: parser.reduce(node, args),
    "let": lambda parser, node, args, keywords: parser.let(args),
}


def _broadcast(a: e.Expr, lanes: int) -> e.Expr:
    return e.Broadcast(a, VectorType(a.dtype, lanes))


def _shuffle(a: e.Expr, b: e.Expr, picked: ast.expr) -> e.Expr:
    if not isinstance(picked, ast.List):
        fail(picked, f"expected a list of lanes, found {ast.unparse(picked)}")
    lanes = tuple(string(lane, int) for lane in picked.elts)
    return e.Shuffle(a, b, lanes, VectorType(a.dtype, len(lanes)))


def _extract(a: e.Expr, lane: int) -> e.Expr:
    return e.Extract(a, lane, a.dtype)
