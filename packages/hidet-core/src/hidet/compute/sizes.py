"""What a compute definition makes of symbolic sizes: its integers and truth values, element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from hidet import dims
from hidet.compute.definition import Compute, Definition, Operand
from hidet.dims import Dim, DimExpr
from hidet.ir.expr import Access, Binary, Cast, Const, Expr, Reduce, Select, Size, Unary, Var

Array = np.ndarray[Any, Any]


def evaluate_sizes(definition: Definition, arrays: Sequence[Array | None]) -> list[Array] | None:
    """The outputs of `definition` on arrays of objects: int, bool and `Dim`. None where these do not decide them.

    arrays: one an input of the definition, in order; None entries (absent inputs) are skipped. Floats, and stages other
    than `Compute`, are not computed with.
    """
    present = [array for array in arrays if array is not None]
    known = dict(zip(definition.inputs, present, strict=True))
    try:
        for stage in definition.stages:
            if not isinstance(stage, Compute):
                return None
            shape = [_number(extent) for extent in stage.result.shape]
            result = known[stage.result] = np.empty(shape, object)
            for place in np.ndindex(*shape):
                result[place] = _Element(known, dict(zip(stage.axes, place, strict=True))).of(stage.value)
    except _UndecidedError:
        return None
    return [known[operand] for operand in definition.outputs]


class _UndecidedError(Exception):
    """The sizes do not say what an element is."""


def _number(value: Dim) -> int:
    if isinstance(value, DimExpr):
        raise _UndecidedError
    return int(value)


def _decided(answer: bool | None) -> bool:
    if answer is None:
        raise _UndecidedError
    return answer


def _least(value: Dim) -> int | None:
    return dims.bounds(value)[0]


class _Element:
    """One element of a stage: values of expressions, given those of variables."""

    def __init__(self, tensors: Mapping[Operand, Array], variables: Mapping[Var, Dim]) -> None:
        self._tensors = tensors
        self._variables = variables

    def of(self, expr: Expr) -> Any:
        """The value: an int or Dim, a bool of bool expressions."""
        case = _CASES.get(type(expr))
        # Integers keep their values in all types that sizes have; those of floats are rounded.
        if case is None or expr.dtype.is_float:
            raise _UndecidedError
        return case(self, expr)

    def var(self, expr: Var) -> Dim:
        return self._variables[expr]

    def const(self, expr: Const) -> Dim:
        if not isinstance(expr.value, int):
            raise _UndecidedError
        return bool(expr.value) if expr.dtype.is_bool else expr.value

    def size(self, expr: Size) -> Dim:
        return expr.dim

    def unary(self, expr: Unary) -> Any:
        function = _UNARY.get(expr.op)
        if function is None:
            raise _UndecidedError
        return function(self.of(expr.a))

    def binary(self, expr: Binary) -> Any:
        function = _BINARY.get(expr.op)
        if function is None:
            raise _UndecidedError
        return function(self.of(expr.a), self.of(expr.b))

    def select(self, expr: Select) -> Any:
        return self.of(expr.a if self.of(expr.condition) else expr.b)

    def cast(self, expr: Cast) -> Any:
        value = self.of(expr.a)
        if expr.dtype.is_bool and not expr.a.dtype.is_bool:
            return not _decided(dims.prove_equal(value, 0))
        return value if expr.dtype.is_bool or not expr.a.dtype.is_bool else int(value)

    def access(self, expr: Access) -> Any:
        tensor = self._tensors[expr.operand]
        place = tuple(_number(self.of(index)) for index in expr.indices)
        if any(not 0 <= index < extent for index, extent in zip(place, tensor.shape, strict=True)):
            raise _UndecidedError
        return tensor[place]

    def reduce(self, expr: Reduce) -> Any:
        types = [value.dtype for value in expr.values]
        left, right = ([Var(side, type_) for type_ in types] for side in ("left", "right"))
        combined = expr.combiner.combine(left, right)
        total: list[Any] | None = None
        for place in product(*(range(_number(self.of(extent))) for extent in expr.extents)):
            inner = _Element(self._tensors, {**self._variables, **dict(zip(expr.axes, place, strict=True))})
            values = [inner.of(value) for value in expr.values]
            if total is not None:
                both = dict(zip([*left, *right], [*total, *values], strict=True))
                values = [_Element({}, both).of(value) for value in combined]
            total = values
        if total is None:
            total = [_Element({}, {}).of(value) for value in expr.combiner.identity(types)]
        return total[expr.result]


def _floordiv(a: Dim, b: Dim) -> Dim:
    least = _least(b)
    if least is None or least < 1:
        raise _UndecidedError
    return dims.floordiv(a, b)


def _mod(a: Dim, b: Dim) -> Dim:
    least = _least(b)
    if least is None or least < 1:
        raise _UndecidedError
    return dims.mod(a, b)


def _truncdiv(a: Dim, b: Dim) -> Dim:
    """Division rounded towards zero, which is that towards minus infinity where nothing is negative."""
    least = _least(a)
    if least is None or least < 0:
        raise _UndecidedError
    return _floordiv(a, b)


def _abs(a: Dim) -> Dim:
    if isinstance(a, int):
        return abs(a)
    least = _least(a)
    if least is None or least < 0:
        raise _UndecidedError
    return a


_UNARY: Mapping[str, Callable[[Any], Any]] = {
    "neg": lambda a: -a,
    "abs": _abs,
    "lnot": lambda a: not a,
}

_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": _floordiv,
    "truncdiv": _truncdiv,
    "mod": _mod,
    "min": dims.minimum,
    "max": dims.maximum,
    "eq": lambda a, b: _decided(dims.prove_equal(a, b)),
    "ne": lambda a, b: not _decided(dims.prove_equal(a, b)),
    "lt": lambda a, b: _decided(dims.prove_lt(a, b)),
    "le": lambda a, b: _decided(dims.prove_le(a, b)),
    "gt": lambda a, b: _decided(dims.prove_lt(b, a)),
    "ge": lambda a, b: _decided(dims.prove_le(b, a)),
    "land": lambda a, b: a and b,
    "lor": lambda a, b: a or b,
}

_CASES: Mapping[type[Expr], Callable[[Any, Any], Any]] = {
    Var: _Element.var,
    Const: _Element.const,
    Size: _Element.size,
    Unary: _Element.unary,
    Binary: _Element.binary,
    Select: _Element.select,
    Cast: _Element.cast,
    Access: _Element.access,
    Reduce: _Element.reduce,
}
