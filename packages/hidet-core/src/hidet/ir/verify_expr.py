"""Type rules of expressions in programs, as a table: node class -> check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import VerifyError
from hidet.ir import expr as e
from hidet.ir.expr_text import Names, type_text
from hidet.ir.func import SYMBOL, Function
from hidet.ir.intrinsic_call import check_intrinsic
from hidet.ir.scalar_ops import BINARY_OPS, UNARY_OPS
from hidet.ir.types import BufferType, PointerType, Type, VectorType, lanes_of, with_lanes

Functions = Mapping[str, Function]

_LOGICAL = ("land", "lor")
_BITS = ("and", "or", "xor", "shl", "shr")
_TESTS = ("isnan", "isinf", "isfinite")


def check_expr(node: e.Expr, functions: Functions) -> None:
    """Raise VerifyError unless the type of `node` follows from the types of its parts.

    functions: the module's, by name; a call of another name is an intrinsic, checked when the tables have it.
    """
    case = _CASES.get(type(node))
    _require(case is not None, "{} has no meaning in a program", type(node).__name__)
    assert case is not None
    case(node, functions)


def _require(condition: bool, message: str, *parts: object) -> None:
    """Raise VerifyError unless `condition`; the message is formatted only then."""
    if not condition:
        shown = [type_text(part, Names()) if isinstance(part, BufferType) else part for part in parts]
        raise VerifyError(message.format(*shown))


def check_indices(buffer: e.Expr, indices: Sequence[e.Expr]) -> None:
    """`indices` are as many i64 values as `buffer`, a pointer or buffer, takes."""
    type_ = buffer.type
    _require(isinstance(type_, PointerType | BufferType), "memory of type {} is no pointer or buffer", type_)
    rank = len(type_.shape) if isinstance(type_, BufferType) else 1
    _require(len(indices) == rank, "{} indices of a {}, which takes {}", len(indices), type_, rank)
    for index in indices:
        _require(index.type is dtypes.i64, "an index has type {}, expected i64", index.type)


def check_element(buffer: e.Expr, type_: Type, mask: e.Expr | None) -> None:
    """A value of `type_` can be one or several consecutive elements of `buffer`, under `mask` if there is one."""
    of = buffer.type
    assert isinstance(of, PointerType | BufferType)
    _require(
        isinstance(type_, dtypes.DType | VectorType)
        and (type_ if isinstance(type_, dtypes.DType) else type_.dtype) == of.dtype,
        "a value of type {} is no element of a {}",
        type_,
        of,
    )
    wide = lanes_of(of)
    _require(wide == 1 or lanes_of(type_) == wide, "a value of type {} is no element of a {}", type_, of)
    if mask is not None:
        expected = with_lanes(dtypes.boolean, lanes_of(type_))
        _require(mask.type == expected, "a mask has type {}, expected {}", mask.type, expected)


def check_condition(node: e.Expr, what: str) -> None:
    """`node` is one truth value."""
    _require(node.type is dtypes.boolean, "{} has type {}, expected bool", what, node.type)


def check_arguments(function: Function, arguments: Sequence[e.Expr]) -> None:
    """`arguments` fit the parameters of `function`."""
    name, params = function.name, function.params
    _require(len(arguments) == len(params), "{} takes {} arguments, got {}", name, len(params), len(arguments))
    for var, argument in zip(params, arguments, strict=True):
        _require(
            _same_memory(var.type, argument.type) or var.type == argument.type,
            "argument {} of {} has type {}, expected {}",
            var.name,
            name,
            argument.type,
            var.type,
        )


def _same_memory(a: Type, b: Type) -> bool:
    memory = isinstance(a, PointerType | BufferType) and isinstance(b, PointerType | BufferType)
    return memory and a.dtype == b.dtype and a.space == b.space  # type: ignore[union-attr]  # both are memory


def _var(node: e.Var, functions: Functions) -> None:
    """Any type; whether the variable is in scope is for the statements to know."""


def _const(node: e.Const, functions: Functions) -> None:
    value, type_ = node.value, node.type
    _require(not isinstance(type_, BufferType), "a constant cannot be a buffer")
    if isinstance(type_, PointerType):
        _require(value == 0, "constant {!r} cannot be a pointer", value)
        return
    dtype = node.dtype
    if dtype.kind == "bool":
        fits = isinstance(value, bool)
    elif dtype.is_int:
        fits = isinstance(value, int) and not isinstance(value, bool) and dtype.min <= value <= dtype.max
    else:
        fits = isinstance(value, int | float) or dtype.is_complex
    _require(fits, "constant {!r} is no value of {}", value, type_)


def _unary(node: e.Unary, functions: Functions) -> None:
    _require(node.op in UNARY_OPS, "scalar operation {!r} is unknown", node.op)
    a = node.a
    _require(isinstance(a.type, dtypes.DType | VectorType), "{} of a {}", node.op, a.type)
    if node.op == "lnot":
        _require(a.dtype.kind == "bool", "lnot of {}, expected bool", a.type)
    elif node.op == "not":
        _require(a.dtype.is_int or a.dtype.kind == "bool", "not of {}, expected integers or bool", a.type)
    elif node.op in _TESTS:
        _require(a.dtype.is_float or a.dtype.is_complex, "{} of {}, expected floats", node.op, a.type)
    else:
        _require(a.dtype.kind != "bool", "{} of bool, expected numbers", node.op)
    _check_result(node.op, UNARY_OPS[node.op].result, a, node)


def _binary(node: e.Binary, functions: Functions) -> None:
    op, a, b = node.op, node.a, node.b
    _require(op in BINARY_OPS, "scalar operation {!r} is unknown", op)
    if isinstance(a.type, PointerType):
        _require(
            op in ("add", "sub") and b.type is dtypes.i64, "{} of {} and {}, expected + or - of i64", op, a.type, b.type
        )
        _require(node.type == a.type, "{} of {} has type {}", op, a.type, node.type)
        return
    _require(isinstance(a.type, dtypes.DType | VectorType), "{} of a {}", op, a.type)
    _require(a.type == b.type, "operands of {} have types {} and {}", op, a.type, b.type)
    if op in _LOGICAL:
        _require(a.dtype.kind == "bool", "{} of {}, expected bool", op, a.type)
    elif op in _BITS:
        _require(not a.dtype.is_float, "{} of {}, expected integers or bool", op, a.type)
    _check_result(op, BINARY_OPS[op].result, a, node)


def _check_result(op: str, rule: str, a: e.Expr, node: e.Expr) -> None:
    expected = with_lanes(dtypes.boolean, a.lanes) if rule == "bool" else a.type
    _require(node.type == expected, "{} of {} has type {}, expected {}", op, a.type, node.type, expected)


def _select(node: e.Select, functions: Functions) -> None:
    condition = node.condition
    _require(condition.dtype.kind == "bool", "the condition of a select has type {}, expected bool", condition.type)
    _require(
        condition.lanes in (1, node.lanes), "a select of {} lanes on a condition of {}", node.lanes, condition.lanes
    )
    _require(node.a.type == node.b.type, "sides of a select have types {} and {}", node.a.type, node.b.type)
    _require(node.type == node.a.type, "a select of {} has type {}", node.a.type, node.type)


def _cast(node: e.Cast, functions: Functions) -> None:
    _require(node.lanes == node.a.lanes, "cast of {} to {}, which has other lanes", node.a.type, node.type)
    for type_ in (node.a.type, node.type):
        _require(not isinstance(type_, BufferType), "cast of {} to {}", node.a.type, node.type)


def _bitcast(node: e.Bitcast, functions: Functions) -> None:
    if is_mask_word(node):
        return
    old, new = (_bits(type_) for type_ in (node.a.type, node.type))
    _require(old == new, "bitcast of {} ({} bits) to {} ({} bits)", node.a.type, old, node.type, new)


def is_mask_word(node: e.Bitcast) -> bool:
    """Whether the bits of a word become the lanes of a bool vector."""
    word, lanes = node.a.type, node.type
    is_mask = isinstance(lanes, VectorType) and lanes.dtype.is_bool
    return is_mask and isinstance(word, DType) and word.kind == "uint" and word.bits == node.lanes


def _bits(type_: Type) -> int:
    if isinstance(type_, PointerType | BufferType):
        return 64
    return type_.dtype.bits * type_.lanes if isinstance(type_, VectorType) else type_.bits


def _load(node: e.Load, functions: Functions) -> None:
    check_indices(node.buffer, node.indices)
    check_element(node.buffer, node.type, node.mask)


def _address(node: e.AddressOf, functions: Functions) -> None:
    check_indices(node.buffer, node.indices)
    _require(isinstance(node.type, PointerType), "an address has type {}, expected a pointer", node.type)


def _call(node: e.Call, functions: Functions) -> None:
    if node.intrinsic is not None:
        check_intrinsic(node)
        return
    function = functions.get(node.callee)
    if function is None:
        _require(
            "." not in node.callee or node.callee.startswith(SYMBOL),
            "{} is neither a function of the module nor an intrinsic of an installed wheel",
            node.callee,
        )
        return
    _require(
        function.kind == "device", "{} is a {} function; only device functions are called", node.callee, function.kind
    )
    check_arguments(function, node.arguments)
    _require(
        node.type == function.result, "a call of {} has type {}, it returns {}", node.callee, node.type, function.result
    )


def _broadcast(node: e.Broadcast, functions: Functions) -> None:
    fits = isinstance(node.a.type, dtypes.DType) and node.type == VectorType(node.a.type, node.lanes)
    _require(fits, "broadcast of {} has type {}", node.a.type, node.type)


def _extract(node: e.Extract, functions: Functions) -> None:
    _require(0 <= node.lane < node.a.lanes, "lane {} of {}", node.lane, node.a.type)
    _require(node.type == node.a.dtype, "a lane of {} has type {}", node.a.type, node.type)


def _shuffle(node: e.Shuffle, functions: Functions) -> None:
    _require(isinstance(node.a.type, VectorType), "lanes are picked from {}, expected a vector", node.a.type)
    _require(node.a.type == node.b.type, "lanes are picked from {} and {}", node.a.type, node.b.type)
    outside = [lane for lane in node.picked if not 0 <= lane < 2 * node.a.lanes]
    _require(not outside, "lanes {} of two {}", outside, node.a.type)
    fits = node.type == VectorType(node.a.dtype, len(node.picked))
    _require(fits, "{} picked lanes of {} have type {}", len(node.picked), node.a.type, node.type)


_CASES: dict[type, Callable[[Any, Functions], None]] = {
    e.Var: _var,
    e.Const: _const,
    e.Unary: _unary,
    e.Binary: _binary,
    e.Select: _select,
    e.Cast: _cast,
    e.Bitcast: _bitcast,
    e.Load: _load,
    e.AddressOf: _address,
    e.Call: _call,
    e.Broadcast: _broadcast,
    e.Extract: _extract,
    e.Shuffle: _shuffle,
}
