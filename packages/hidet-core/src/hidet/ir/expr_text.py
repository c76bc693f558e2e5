"""Types and expressions of the thread IR as Python text; `hidet.ir.expr_parser` reads them back.

    f32, f32x8, ~f32, ~f32 @ shared, f32[4, n], strided(f32x8[4, 6], [6, 1]) @ local
    a + b * 2, x if i < n else 0.0, exp(x), cast(i, f32)
    a[i, j], load(p, [i], f32x8, mask=m), call("fma", a, b, c, type=f32)

Bare integers are i64 and bare floats f32; other constants say their type: `f16(1.5)`, `i32(3)`, `f32(inf)`.
"""

from __future__ import annotations

import keyword
import math
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from hidet import dtypes
from hidet.dims import Symbol, symbols
from hidet.errors import VerifyError
from hidet.ir import expr as e
from hidet.ir.scalar_ops import BINARY_OPS, UNARY_OPS
from hidet.ir.types import BufferType, PointerType, Type, with_lanes

# How tightly Python binds each infix or prefix operator; calls, subscripts and names bind tightest.
PRECEDENCE = {
    **dict.fromkeys(("lor",), 1),
    **dict.fromkeys(("land",), 2),
    **dict.fromkeys(("lnot",), 3),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), 4),
    "or": 5,
    "xor": 6,
    "and": 7,
    **dict.fromkeys(("shl", "shr"), 8),
    **dict.fromkeys(("add", "sub"), 9),
    **dict.fromkeys(("mul", "div", "floordiv", "mod"), 10),
    **dict.fromkeys(("neg", "not"), 11),
}
_SELECT, _COMPARISON, _ATOM = 0, 4, 12


class Named(Protocol):
    """What has a name: variables, operands, tiles. Told apart by identity."""

    @property
    def name(self) -> str:
        """The name that it would like to have in a text."""


class Names:
    """One plain and unique name for each variable and operand of a function, given at first use."""

    def __init__(self) -> None:
        self._names: dict[Named, str] = {}
        self._used: set[str] = set()
        self.symbols: dict[Symbol, None] = {}

    def __call__(self, thing: Named) -> str:
        known = self._names.get(thing)
        if known is None:
            wanted = plain_name(thing.name)
            known, attempt = wanted, 0
            while known in self._used:
                attempt += 1
                known = f"{wanted}_{attempt}"
            self._used.add(known)
            self._names[thing] = known
        return known

    def inner(self, hidden: Iterable[Named] = ()) -> Names:
        """Names of a scope inside of this one: what has a name keeps it, and what gets one there has it there alone.

        hidden: what is not mentioned there, so that others may have the names.
        """
        made = Names()
        made._names, made.symbols = dict(self._names), self.symbols
        made._used = self._used.difference(made._names.pop(thing, "") for thing in hidden)
        return made


def plain_name(name: str) -> str:
    """`name` as a Python identifier that is no keyword."""
    plain = re.sub(r"\W", "_", name)
    plain = f"_{plain}" if not plain or plain[0].isdigit() else plain
    return f"{plain}_" if keyword.iskeyword(plain) else plain


def print_expr(expr: e.Expr) -> str:
    """The text of one expression, its variables under their own names where these are unique."""
    return expr_text(expr, Names())


def type_text(type_: Type | None, names: Names) -> str:
    """The text of a type; None, the type of nothing, is `None`."""
    if isinstance(type_, PointerType):
        return f"~{type_.dtype.short}{_space(type_.space)}"
    if isinstance(type_, BufferType):
        element = str(with_lanes(type_.dtype, type_.lanes))
        text = f"{element}[{_subscript(type_.shape, names)}]"
        if type_.strides is not None:
            text = f"strided({text}, {list_text(type_.strides, names)})"
        return text + _space(type_.space)
    return str(type_)


def _space(space: str) -> str:
    return "" if space == "global" else f" @ {space}"


def _subscript(indices: Sequence[e.Expr], names: Names) -> str:
    return ", ".join(expr_text(i, names) for i in indices) if indices else "()"


def list_text(exprs: Sequence[e.Expr], names: Names) -> str:
    """Expressions between brackets."""
    return f"[{', '.join(expr_text(x, names) for x in exprs)}]"


def expr_text(expr: e.Expr, names: Names, outer: int = _SELECT) -> str:
    """The text of `expr`, in parentheses when it binds less tightly than `outer`."""
    case = _CASES.get(type(expr))
    if case is None:
        raise VerifyError(f"expression {type(expr).__name__} has no text")
    text, own = case(expr, names)
    return f"({text})" if own < outer else text


def element_type(buffer_type: Type) -> Type:
    """What one element of a pointer or buffer is: the type of a read that does not say its own."""
    if isinstance(buffer_type, BufferType):
        return with_lanes(buffer_type.dtype, buffer_type.lanes)
    return buffer_type.dtype if isinstance(buffer_type, PointerType) else buffer_type


def address_type(buffer_type: Type) -> PointerType | None:
    """The type of the address of an element; None for types that are no memory."""
    if isinstance(buffer_type, BufferType | PointerType):
        return PointerType(buffer_type.dtype, buffer_type.space)
    return None


_Text = tuple[str, int]


def const_text(node: e.Const) -> str:
    """A literal, with its type unless Python's literal says it."""
    value, type_ = node.value, node.type
    if (type_ is dtypes.i64 and type(value) is int) or (type_ is dtypes.boolean and type(value) is bool):
        return repr(value)
    if type_ is dtypes.f32 and type(value) is float and math.isfinite(value):
        return repr(value)
    if isinstance(type_, PointerType):
        return f"pointer({value!r}, ~{type_.dtype.short}{_space(type_.space)})"
    if isinstance(value, complex):
        return f"{type_}({_float(value.real)}, {_float(value.imag)})"
    return f"{type_}({_float(value) if isinstance(value, float) else repr(value)})"


def _float(value: float) -> str:
    bits = struct.pack(">d", value).hex()
    # repr does not show the sign and payload of a NaN.
    return f"bits(0x{bits})" if math.isnan(value) and bits != "7ff8000000000000" else repr(value)


def _unary(node: e.Unary, names: Names) -> _Text:
    symbol = UNARY_OPS[node.op].symbol if node.op in UNARY_OPS else None
    # A minus before a literal is part of the literal.
    if symbol is None or (node.op == "neg" and isinstance(node.a, e.Const)):
        return f"{node.op}({expr_text(node.a, names)})", _ATOM
    own = PRECEDENCE[node.op]
    return f"{symbol}{expr_text(node.a, names, own)}", own


def _binary(node: e.Binary, names: Names) -> _Text:
    symbol = BINARY_OPS[node.op].symbol if node.op in BINARY_OPS else None
    if symbol is None:
        return f"{node.op}({expr_text(node.a, names)}, {expr_text(node.b, names)})", _ATOM
    own = PRECEDENCE[node.op]
    # Operators group to the left, but a < b < c would be a chain.
    left = own + 1 if own == _COMPARISON else own
    return f"{expr_text(node.a, names, left)} {symbol} {expr_text(node.b, names, own + 1)}", own


def _select(node: e.Select, names: Names) -> _Text:
    taken, condition = (expr_text(x, names, _SELECT + 1) for x in (node.a, node.condition))
    return f"{taken} if {condition} else {expr_text(node.b, names, _SELECT + 1)}", _SELECT


def _load(node: e.Load, names: Names) -> _Text:
    is_plain = node.type == element_type(node.buffer.type)
    if isinstance(node.buffer, e.Var) and is_plain and node.mask is None:
        return f"{names(node.buffer)}[{_subscript(node.indices, names)}]", _ATOM
    parts = [expr_text(node.buffer, names), list_text(node.indices, names)]
    parts += [] if is_plain else [type_text(node.type, names)]
    parts += [] if node.mask is None else [f"mask={expr_text(node.mask, names)}"]
    return f"load({', '.join(parts)})", _ATOM


def _address(node: e.AddressOf, names: Names) -> _Text:
    parts = [expr_text(x, names) for x in (node.buffer, *node.indices)]
    if node.type != address_type(node.buffer.type):
        parts.append(f"type={type_text(node.type, names)}")
    return f"address({', '.join(parts)})", _ATOM


def _call(node: e.Call, names: Names) -> _Text:
    parts = [f'"{node.callee}"', *(expr_text(x, names) for x in node.arguments), f"type={type_text(node.type, names)}"]
    return f"call({', '.join(parts)})", _ATOM


def _shuffle(node: e.Shuffle, names: Names) -> _Text:
    return f"shuffle({expr_text(node.a, names)}, {expr_text(node.b, names)}, {list(node.picked)})", _ATOM


def _reduce(node: e.Reduce, names: Names) -> _Text:
    axes = ", ".join(map(names, node.axes))
    extents, values = list_text(node.extents, names), list_text(node.values, names)
    return f'reduce("{node.combiner.name}", [{axes}], {extents}, {values}, {node.result})', _ATOM


def _size(node: e.Size, names: Names) -> _Text:
    names.symbols.update(dict.fromkeys(symbols(node.dim)))
    suffix = "" if node.type is dtypes.i64 else f", {type_text(node.type, names)}"
    return f"size({node.dim}{suffix})", _ATOM


def _of_type(function: str) -> Callable[[Any, Names], _Text]:
    return lambda node, names: (f"{function}({expr_text(node.a, names)}, {type_text(node.type, names)})", _ATOM)


_CASES: dict[type, Callable[[Any, Names], _Text]] = {
    e.Var: lambda node, names: (names(node), _ATOM),
    e.Const: lambda node, names: (const_text(node), _ATOM),
    e.Size: _size,
    e.Unary: _unary,
    e.Binary: _binary,
    e.Select: _select,
    e.Cast: _of_type("cast"),
    e.Bitcast: _of_type("bitcast"),
    e.Load: _load,
    e.AddressOf: _address,
    e.Call: _call,
    e.Broadcast: lambda node, names: (f"broadcast({expr_text(node.a, names)}, {node.lanes})", _ATOM),
    e.Extract: lambda node, names: (f"extract({expr_text(node.a, names)}, {node.lane})", _ATOM),
    e.Shuffle: _shuffle,
    e.Access: lambda node, names: (f"{names(node.operand)}[{_subscript(node.indices, names)}]", _ATOM),
    e.Reduce: _reduce,
}


def symbol_text(symbol: Symbol) -> str:
    """The line that declares a symbolic size."""
    parts = [str(symbol.lower), str(symbol.upper)]
    parts += [] if symbol.divisor == 1 else [f"divisor={symbol.divisor}"]
    parts += [] if symbol.hint is None else [f"hint={symbol.hint}"]
    return f"{symbol.name} = symbol({', '.join(parts)})"
