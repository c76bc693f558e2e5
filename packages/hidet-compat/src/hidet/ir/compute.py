"""What an operator means, index by index, in the words of hidet 0.6.

    a = tensor_input("a", "float32", [m, k])
    b = tensor_input("b", "float32", [k, n])
    c = compute("c", [m, n], lambda i, j: reduce([k], lambda p: a[i, p] * b[p, j], "sum"))

A node is a stage of a definition (`hidet.compute.definition`). Indices and elements compute with the types that scripts
have: integers meet floats as floats, `/` of integers rounds toward zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from hidet import dims
from hidet.compute.definition import (
    ALL,
    ANY,
    ARGMAX,
    ARGMIN,
    MAX,
    MIN,
    PRODUCT,
    SUM,
    Combiner,
    Compute,
    Operand,
    fresh_axes,
)
from hidet.compute.definition import reduce as fold
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import ShapeError, UnsupportedOp, suggestion
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.ir.visit import accesses
from hidet.lang import layout as layouts
from hidet.lang import operators
from hidet.lang.operand import Operand as Element
from hidet.lang.operand import unwrapped, wrapped
from hidet.lang.types import TensorKind, dtype_of, tensor_type

COMBINERS: Mapping[str, Combiner] = {
    "sum": SUM,
    "avg": SUM,
    "max": MAX,
    "min": MIN,
    "prod": PRODUCT,
    "and": ALL,
    "or": ANY,
}
"""What `reduce` takes; "avg" divides the sum by the number of indices."""
_ARGUMENTS: Mapping[str, Combiner] = {"max": ARGMAX, "min": ARGMIN}


class TensorNode:
    """A tensor of a task: an input, or what `compute` makes.

    operand: what expressions read. stage: how its elements are computed; None for an input. reads: the nodes that they
    are computed from.
    """

    def __init__(self, operand: Operand, stage: Compute | None = None) -> None:
        self.operand = operand
        self.stage = stage
        found = [] if stage is None else [_NODES[id(access.operand)] for access in accesses(stage.value)]
        self.reads = tuple(dict.fromkeys(found))
        _NODES[id(operand)] = self

    @property
    def name(self) -> str:
        """As tasks print it."""
        return self.operand.name

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.operand.dtype

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Extents: numbers or symbols."""
        return self.operand.shape

    @property
    def const_shape(self) -> tuple[int, ...]:
        """Extents, which are numbers. ShapeError where one is a symbol."""
        numbers = [extent for extent in self.shape if isinstance(extent, int)]
        if len(numbers) != len(self.shape):
            raise ShapeError(f"{self.name} has shape {list(self.shape)}: a size is known at run time only")
        return tuple(numbers)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def type(self) -> TensorKind:
        """As scripts declare a parameter for it: `a: task.inputs[0].type`."""
        return tensor_type(self.dtype, self.shape)

    def is_input(self) -> bool:
        """Whether nothing computes it."""
        return self.stage is None

    def __getitem__(self, indices: Any) -> Any:
        """An element, to compute with. Of an index fewer than axes: the elements that are left, to be indexed again."""
        given = indices if isinstance(indices, tuple) else (indices,)
        if len(given) < self.ndim:
            return _Row(self, given)
        return wrapped(self.operand[tuple(operators.index(unwrapped(index)) for index in given)])

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype.name}[{', '.join(map(str, self.shape))}]"


_NODES: WeakValueDictionary[int, TensorNode] = WeakValueDictionary()
"""The node of each operand, which expressions name, by `id`: a node keeps its operand, and those it reads."""


class _Row:
    """A tensor of which the first indices are known."""

    def __init__(self, node: TensorNode, known: tuple[Any, ...]) -> None:
        self.node = node
        self.known = known

    def __getitem__(self, indices: Any) -> Any:
        more = indices if isinstance(indices, tuple) else (indices,)
        return self.node[(*self.known, *more)]


ScalarNode = Element
"""A number of a definition, to compute with: what a `TensorNode` gives for indices, and what `reduce` gives."""


def tensor_input(name: str, dtype: Any, shape: Sequence[Any], layout: Any = None) -> TensorNode:
    """An input of a task. layout: row-major, which None means; others are refused."""
    _require_row_major(layout)
    return TensorNode(Operand(name, dtype_of(dtype), tuple(map(dims.as_dim, shape))))


def scalar_input(name: str, dtype: Any) -> TensorNode:
    """An input of a task without axes: `x[()]` is its number."""
    return TensorNode(Operand(name, dtype_of(dtype), ()))


def compute(name: str, shape: Sequence[Any], fcompute: Callable[..., Any], layout: Any = None) -> TensorNode:
    """The tensor whose element at some indices is `fcompute(*indices)`, of the type that this has.

    layout: as of `tensor_input`.
    """
    _require_row_major(layout)
    extents = tuple(map(dims.as_dim, shape))
    axes = fresh_axes(len(extents))
    value = _expr(fcompute(*map(Element, axes)))
    result = Operand(name, value.dtype, extents)
    return TensorNode(result, Compute(result, axes, value))


def reduce(
    shape: Sequence[Any],
    fcompute: Callable[..., Any],
    reduce_type: str,
    accumulate_dtype: Any = "float32",
    name: str | None = None,
) -> Any:
    """The sum, average, ... of `fcompute(*indices)` over all indices below `shape`, of the type that this has.

    reduce_type: "sum", "avg", "max", "min", "prod", "and", "or". accumulate_dtype: floats of fewer bits are summed in
    it. name: for nobody. UnsupportedOp for another type.
    """
    combiner = COMBINERS.get(reduce_type)
    if combiner is None:
        raise UnsupportedOp(f"reduction {reduce_type!r} is unknown", hint=suggestion(reduce_type, COMBINERS))
    wide = dtype_of(accumulate_dtype)
    extents = tuple(map(dims.as_dim, shape))
    given: list[DType] = []

    def value_at(*axes: Expr) -> Expr:
        value = _expr(fcompute(*map(Element, axes)))
        if reduce_type in ("and", "or"):
            value = operators.condition(value)
        given.append(value.dtype)
        is_narrow = value.dtype.is_float and value.dtype.bits < wide.bits
        return build.cast(value, wide) if is_narrow else value

    total: Expr = fold(combiner, extents, value_at)
    if reduce_type == "avg":
        total = operators.binary("div", total, dims.product(extents))
    return Element(build.cast(total, given[0]))


def arg_reduce(
    extent: Any, fcompute: Callable[..., Any], reduce_type: str, index_dtype: Any = "int64", name: str | None = None
) -> Any:
    """The index below `extent` where `fcompute(index)` is largest ("max") or smallest ("min"), the first of equals."""
    combiner = _ARGUMENTS.get(reduce_type)
    if combiner is None:
        raise UnsupportedOp(f"arg_reduce takes 'max' or 'min', got {reduce_type!r}")
    place = fold(combiner, (dims.as_dim(extent),), lambda axis: (_expr(fcompute(Element(axis))), axis), result=1)
    return Element(build.cast(place, dtype_of(index_dtype)))


def nodes_from(outputs: Sequence[TensorNode]) -> Iterator[TensorNode]:
    """The nodes that outputs are computed from, and these, each behind those it reads."""
    found: dict[TensorNode, None] = {}
    stack = list(outputs)[::-1]
    while stack:
        waiting = [node for node in stack[-1].reads if node not in found]
        if waiting:
            stack.extend(waiting)
        else:
            found.setdefault(stack.pop())
    return iter(found)


def _expr(value: Any) -> Expr:
    """What a function of indices gives, as an expression: numbers are i64, f32 or bool."""
    return operators.as_expr(unwrapped(value))


def _require_row_major(layout: Any) -> None:
    if layout is not None and not layouts.is_row_major(layout):
        raise UnsupportedOp(
            f"a tensor of a task lies in row-major order, not as {layout}",
            hint="hidet.ops.transpose; the compiler chooses how results lie in memory",
        )


__all__ = [
    "COMBINERS",
    "ScalarNode",
    "TensorNode",
    "arg_reduce",
    "compute",
    "reduce",
    "scalar_input",
    "tensor_input",
]
