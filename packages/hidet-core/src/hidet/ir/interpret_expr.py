"""Values of program expressions: numpy scalars and vectors, pointers and buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from hidet import dtypes
from hidet.errors import LaunchError, UnsupportedOp
from hidet.ir import expr as e
from hidet.ir.memory import AddressSpace, Buffer, Pointer, dense_strides
from hidet.ir.scalar_numpy import apply_binary, apply_unary, constant, convert
from hidet.ir.types import BufferType, PointerType, Type, VectorType, element_dtype, lanes_of
from hidet.ir.verify_expr import is_mask_word

Array = np.ndarray[Any, Any]


class Caller(Protocol):
    """Whoever runs functions."""

    def call(self, node: e.Call, arguments: Sequence[Any]) -> Any:
        """The result of a function of the module, or of an intrinsic."""


class ExprInterpreter:
    """Expressions over the variables in `values`."""

    def __init__(self, values: dict[e.Var, Any], space: AddressSpace, caller: Caller) -> None:
        self.values = values
        self.space = space
        self.caller = caller
        self._known: dict[int, Any] = {}

    def __call__(self, node: e.Expr) -> Any:
        """The value of one expression, evaluated anew."""
        self._known.clear()
        return self.value(node)

    def index(self, node: e.Expr) -> int:
        """The value of an i64 expression as a Python number, evaluated anew."""
        return int(self(node))

    def value(self, node: e.Expr) -> Any:
        """The value of a part of an expression; parts that it shares are evaluated once."""
        known = self._known.get(id(node))
        if known is None:
            case = _CASES.get(type(node))
            if case is None:
                raise UnsupportedOp(f"{type(node).__name__} has no meaning in a program")
            known = self._known[id(node)] = case(self, node)
        return known

    def number(self, node: e.Expr) -> int:
        """The value of an i64 part as a Python number."""
        return int(self.value(node))

    def var(self, node: e.Var) -> Any:
        try:
            return self.values[node]
        except KeyError:
            raise LaunchError(f"variable {node.name} is read before it has a value") from None

    def const(self, node: e.Const) -> Any:
        if isinstance(node.type, PointerType):
            return Pointer(None, 0, node.dtype)
        scalar = constant(node)
        return np.full(node.lanes, scalar) if isinstance(node.type, VectorType) else scalar

    def unary(self, node: e.Unary) -> Any:
        return apply_unary(node.op, self.value(node.a), node.dtype)

    def binary(self, node: e.Binary) -> Any:
        a = self.value(node.a)
        if isinstance(a, Pointer):
            distance = self.number(node.b)
            return a.moved(distance if node.op == "add" else -distance)
        if node.op in ("land", "lor") and node.lanes == 1 and bool(a) == (node.op == "lor"):
            # The second operand may read memory that only exists when the first one says so.
            return a
        return apply_binary(node.op, a, self.value(node.b), node.dtype)

    def select(self, node: e.Select) -> Any:
        condition = self.value(node.condition)
        if node.condition.lanes == 1:
            return self.value(node.a if condition else node.b)
        return np.where(condition, self.value(node.a), self.value(node.b))

    def cast(self, node: e.Cast) -> Any:
        a = self.value(node.a)
        if isinstance(a, Pointer):
            return Pointer(a.block, a.offset, node.dtype)
        return convert(a, node.a.dtype, node.dtype)

    def bitcast(self, node: e.Bitcast) -> Any:
        a = self.value(node.a)
        if isinstance(a, Buffer):
            a = a.pointer
        if isinstance(node.type, PointerType):
            if isinstance(a, Pointer):
                return Pointer(a.block, a.offset, node.dtype)
            return self.space.pointer(int(a), node.dtype)
        if isinstance(a, Pointer):
            return np.asarray(self.space.number(a)).astype(node.dtype.numpy())
        if is_mask_word(node):
            return np.array([int(a) >> lane & 1 for lane in range(node.lanes)], np.bool_)
        bits = np.atleast_1d(a).view(node.dtype.numpy())
        return bits if isinstance(node.type, VectorType) else bits[0:1].reshape(())

    def cells(self, buffer: e.Expr, indices: Sequence[e.Expr], count: int) -> Any:
        """`count` elements of memory from `indices` on, shared with it."""
        return self.place(buffer, indices).cells(count)

    def pointer(self, buffer: e.Expr, indices: Sequence[e.Expr]) -> Pointer:
        """The pointer to an element that a statement writes, evaluated anew."""
        self._known.clear()
        return self.place(buffer, indices)

    def place(self, buffer: e.Expr, indices: Sequence[e.Expr]) -> Pointer:
        """The pointer to an element."""
        base = self.value(buffer)
        where = [self.number(i) for i in indices]
        return base.element(where) if isinstance(base, Buffer) else base.moved(where[0])

    def load(self, node: e.Load) -> Any:
        if node.mask is None:
            result = _read(self.cells(node.buffer, node.indices, node.lanes))
            return result if isinstance(node.type, VectorType) else result[0:1].reshape(())
        start = self.place(node.buffer, node.indices)
        lanes = np.zeros(node.lanes, node.dtype.numpy())
        for lane in np.flatnonzero(self.value(node.mask)):
            lanes[lane] = _read(start.moved(int(lane)).cells(1))[0]
        return lanes

    def address(self, node: e.AddressOf) -> Any:
        base = self.value(node.buffer)
        if isinstance(base, Buffer) and all(isinstance(i, e.Const) and i.value == 0 for i in node.indices):
            # An array without elements begins somewhere, too.
            return base.pointer
        return self.place(node.buffer, node.indices)

    def call(self, node: e.Call) -> Any:
        result = self.caller.call(node, [self.value(argument) for argument in node.arguments])
        if isinstance(result, Pointer) or result is None:
            return result
        return np.asarray(result).astype(node.dtype.numpy(), copy=False)

    def broadcast(self, node: e.Broadcast) -> Any:
        return np.full(node.lanes, self.value(node.a))

    def extract(self, node: e.Extract) -> Any:
        return self.value(node.a)[node.lane : node.lane + 1].reshape(())

    def shuffle(self, node: e.Shuffle) -> Any:
        return np.concatenate([self.value(node.a), self.value(node.b)])[list(node.picked)]


def _read(cells: Array) -> Array:
    """A copy of memory; a bool in memory is a byte of which any non-zero value is true."""
    return cells.view(np.uint8) != 0 if cells.dtype == np.bool_ else cells.copy()


def bind(type_: Type, value: Any, evaluate: Callable[[e.Expr], int]) -> Any:
    """A pointer as the array that a buffer type says it is; other values as they are."""
    if not isinstance(type_, BufferType) or not isinstance(value, Pointer):
        return value
    shape = tuple(evaluate(extent) for extent in type_.shape)
    strides = dense_strides(shape) if type_.strides is None else tuple(evaluate(s) for s in type_.strides)
    return Buffer(value, shape, strides, type_.lanes)


def undefined(type_: Type) -> Any:
    """The value of a local that nothing was assigned to: all bits set, NaN for floats."""
    if isinstance(type_, PointerType):
        return Pointer(None, 0, type_.dtype)
    dtype, lanes = element_dtype(type_), lanes_of(type_)
    if dtype is dtypes.boolean:
        value = np.ones(lanes, np.bool_)
    else:
        value = np.full(lanes * dtype.nbytes, 0xFF, np.uint8).view(dtype.numpy())
    return value if isinstance(type_, VectorType) else value.reshape(())


COMMON_MEANINGS: Mapping[str, Callable[..., Any]] = {
    "fma": lambda a, b, c: (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(a.dtype),
    "prefetch": lambda place: None,
    "poll": lambda: None,
}
"""Meanings of `hidet.ir.common_intrinsics`: "fma" is computed in f64 and then rounded."""

_CASES: dict[type, Callable[[ExprInterpreter, Any], Any]] = {
    e.Var: ExprInterpreter.var,
    e.Const: ExprInterpreter.const,
    e.Unary: ExprInterpreter.unary,
    e.Binary: ExprInterpreter.binary,
    e.Select: ExprInterpreter.select,
    e.Cast: ExprInterpreter.cast,
    e.Bitcast: ExprInterpreter.bitcast,
    e.Load: ExprInterpreter.load,
    e.AddressOf: ExprInterpreter.address,
    e.Call: ExprInterpreter.call,
    e.Broadcast: ExprInterpreter.broadcast,
    e.Extract: ExprInterpreter.extract,
    e.Shuffle: ExprInterpreter.shuffle,
}
