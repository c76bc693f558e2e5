"""Values of expressions for many threads at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hidet import dtypes
from hidet.errors import LaunchError, UnsupportedOp
from hidet.gpu.simulator.bits import bitcast
from hidet.gpu.simulator.lanes import Lanes
from hidet.gpu.simulator.memory import NOWHERE, Pointers, RowError, View, pick_value, select_values, take_value
from hidet.ir import expr as e
from hidet.ir.scalar_numpy import apply_binary, apply_unary, constant, convert
from hidet.ir.types import BufferType, PointerType, VectorType
from hidet.ir.verify_expr import is_mask_word

if TYPE_CHECKING:
    from hidet.gpu.simulator.activation import Activation

Array = np.ndarray[Any, Any]

ZERO = np.zeros(1, np.int64)


class Evaluation:
    """Expressions of one statement, run by the threads of one activation of a function. Shared parts are evaluated
    once for each set of threads."""

    def __init__(self, activation: Activation) -> None:
        self.activation = activation
        self._known: dict[tuple[int, int], tuple[Any, Any]] = {}

    def set(self, node: e.Expr, lanes: Lanes, value: Any) -> None:
        """Say what a part evaluates to."""
        self._known[(id(node), id(lanes))] = (value, lanes)

    def value(self, node: e.Expr, lanes: Lanes) -> Any:
        """The value of an expression for `lanes`: arrays with as many rows or one, `Pointers` or a `View`."""
        known = self._known.get((id(node), id(lanes)))
        if known is not None:
            return known[0]
        case = _CASES.get(type(node))
        if case is None:
            raise UnsupportedOp(f"{type(node).__name__} has no meaning in a program")
        try:
            value = case(self, node, lanes)
        except RowError as error:
            raise self.activation.fault(lanes, error) from None
        # The entry keeps `lanes` alive, so that no other set takes its identity.
        self._known[(id(node), id(lanes))] = (value, lanes)
        return value

    def var(self, node: e.Var, lanes: Lanes) -> Any:
        activation = self.activation
        value = activation.values.get(node)
        if value is None:
            raise LaunchError(f"variable {node.name} is read before it has a value")
        unset = activation.unset.get(node)
        if unset is not None and unset[lanes.index].any():
            row = int(np.flatnonzero(unset[lanes.index])[0])
            raise RowError(row, f"variable {node.name} is read, but nothing was assigned to it")
        return take_value(value, lanes)

    def const(self, node: e.Const, lanes: Lanes) -> Any:
        if isinstance(node.type, PointerType):
            return Pointers((NOWHERE,), None, ZERO, ZERO, node.dtype)
        scalar = constant(node)[None]
        return scalar if node.lanes == 1 else np.repeat(scalar[:, None], node.lanes, axis=1)

    def unary(self, node: e.Unary, lanes: Lanes) -> Any:
        return apply_unary(node.op, self.value(node.a, lanes), node.dtype)

    def binary(self, node: e.Binary, lanes: Lanes) -> Any:
        a = self.value(node.a, lanes)
        if isinstance(a, Pointers):
            distance = self.value(node.b, lanes)
            return a.moved(distance if node.op == "add" else -distance)
        if node.op in ("land", "lor") and node.lanes == 1:
            # The second operand may read memory that only exists where the first one says so.
            decided = a if node.op == "lor" else ~a
            return self._where_else(~decided, lanes, node.b, a)
        return apply_binary(node.op, a, self.value(node.b, lanes), node.dtype)

    def _where_else(self, needed: Array, lanes: Lanes, node: e.Expr, other: Array) -> Any:
        """`node` where `needed`, else `other`."""
        if needed.all():
            return self.value(node, lanes)
        if not needed.any():
            return other
        part = self.value(node, lanes.only(needed))
        result = np.array(np.broadcast_to(other, (lanes.count, *other.shape[1:])))
        result[needed] = part
        return result

    def select(self, node: e.Select, lanes: Lanes) -> Any:
        condition = self.value(node.condition, lanes)
        if node.condition.lanes > 1:
            return np.where(condition, self.value(node.a, lanes), self.value(node.b, lanes))
        if condition.all():
            return self.value(node.a, lanes)
        if not condition.any():
            return self.value(node.b, lanes)
        a, b = self.value(node.a, lanes.only(condition)), self.value(node.b, lanes.only(~condition))
        return select_values(condition, a, b, lanes.count)

    def cast(self, node: e.Cast, lanes: Lanes) -> Any:
        a = self.value(node.a, lanes)
        if isinstance(a, View):
            a = a.pointers
        if isinstance(a, Pointers):
            return a.cast(node.dtype)
        return convert(a, node.a.dtype, node.dtype)

    def bitcast(self, node: e.Bitcast, lanes: Lanes) -> Any:
        a = self.value(node.a, lanes)
        if isinstance(node.type, PointerType):
            if isinstance(a, Pointers):
                return a.cast(node.dtype)
            return self.activation.launch.pointers(a, node.dtype, node.type.space, self.activation.blocks(lanes))
        if isinstance(a, Pointers):
            return a.bits().astype(node.dtype.numpy())
        if is_mask_word(node):
            return (a[:, None].astype(np.uint64) >> np.arange(node.lanes, dtype=np.uint64)) & np.uint64(1) != 0
        return bitcast(a, node.a.dtype, node.dtype, isinstance(node.type, VectorType))

    def place(self, buffer: e.Expr, indices: Sequence[e.Expr], lanes: Lanes, accessed: bool = True) -> Pointers:
        """The pointers to the elements at `indices`, which are `accessed` or only pointed to."""
        base = self.value(buffer, lanes)
        where = [self.value(index, lanes) for index in indices]
        return base.element(where, accessed) if isinstance(base, View) else base.moved(where[0])

    def load(self, node: e.Load, lanes: Lanes) -> Any:
        pointers = self.place(node.buffer, node.indices, lanes)
        activation = self.activation
        if node.mask is None:
            return activation.launch.load(activation, lanes, pointers, node.dtype, node.lanes, vector=_is_vector(node))
        mask = np.broadcast_to(self.value(node.mask, lanes), (lanes.count, node.lanes))
        result = np.zeros((lanes.count, node.lanes), node.dtype.numpy())
        for lane in range(node.lanes):
            wanted = mask[:, lane]
            if wanted.any():
                part = pick_value(pointers, wanted).moved(np.array([lane]))
                result[wanted, lane] = activation.launch.load(activation, lanes.only(wanted), part, node.dtype, 1)
        return result

    def address(self, node: e.AddressOf, lanes: Lanes) -> Any:
        return self.place(node.buffer, node.indices, lanes, accessed=False).cast(node.dtype)

    def call(self, node: e.Call, lanes: Lanes) -> Any:
        return self.activation.call_now(self, node, lanes)

    def broadcast(self, node: e.Broadcast, lanes: Lanes) -> Any:
        return np.repeat(self.value(node.a, lanes)[:, None], node.lanes, axis=1)

    def extract(self, node: e.Extract, lanes: Lanes) -> Any:
        return self.value(node.a, lanes)[:, node.lane]

    def shuffle(self, node: e.Shuffle, lanes: Lanes) -> Any:
        both = np.broadcast_arrays(self.value(node.a, lanes), self.value(node.b, lanes))
        return np.concatenate(both, axis=1)[:, list(node.picked)]


def _is_vector(node: e.Load) -> bool:
    return isinstance(node.type, VectorType)


def undefined(type_: Any) -> Any:
    """The value of a local that nothing was assigned to: null, or all bits set."""
    if isinstance(type_, PointerType):
        return Pointers((NOWHERE,), None, ZERO, ZERO, type_.dtype)
    assert not isinstance(type_, BufferType)
    lanes = type_.lanes if isinstance(type_, VectorType) else 1
    dtype = type_ if isinstance(type_, dtypes.DType) else type_.dtype
    if dtype is dtypes.boolean:
        value: Array = np.ones((1, lanes), np.bool_)
    else:
        value = np.full((1, lanes * dtype.nbytes), 0xFF, np.uint8).view(dtype.numpy())
    return value if isinstance(type_, VectorType) else value[:, 0]


_CASES: dict[type, Callable[[Evaluation, Any, Lanes], Any]] = {
    e.Var: Evaluation.var,
    e.Const: Evaluation.const,
    e.Unary: Evaluation.unary,
    e.Binary: Evaluation.binary,
    e.Select: Evaluation.select,
    e.Cast: Evaluation.cast,
    e.Bitcast: Evaluation.bitcast,
    e.Load: Evaluation.load,
    e.AddressOf: Evaluation.address,
    e.Call: Evaluation.call,
    e.Broadcast: Evaluation.broadcast,
    e.Extract: Evaluation.extract,
    e.Shuffle: Evaluation.shuffle,
}
