"""`Emitter`: what the handlers of foreign operators write graphs with.

It adds to GraphBuilder what front-ends need everywhere: constants that are made once, conversions, views that are not
repeated, the elements of tensors that say shapes and axes, and facts about the foreign node being imported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy

from hidet import dtypes
from hidet.dims import Dim, DimExpr
from hidet.dtypes import DType
from hidet.errors import ImportFailed, UnsupportedOp, ValueNeeded, suggestion
from hidet.frontend.contents import Contents
from hidet.frontend.needed import sources_of, sources_of_sizes, value_needed
from hidet.graph import GraphBuilder, Node, OperatorSpec, TensorType, Value
from hidet.graph.types import same_shape

Number = bool | int | float | complex


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The foreign node being imported.

    operator: its operator, as errors name it. read: for each of its results whether anyone may read it.
    """

    operator: str = ""
    read: tuple[bool, ...] = ()


class Emitter:
    """Writes nodes into `builder`.

    facts: about the foreign node being imported. known: what is known of elements of values; None for a graph that
    nothing is known of yet. reads_sizes: whether sizes that data decide may be read back while the model runs.
    max_bytes: tensors that are larger, or have a negative extent, are refused, because a file may ask for anything;
    None refuses none.
    """

    def __init__(
        self,
        builder: GraphBuilder,
        known: Contents | None = None,
        *,
        reads_sizes: bool = False,
        max_bytes: int | None = None,
    ) -> None:
        self.builder = builder
        self.known = known or Contents(builder)
        self.facts = NodeFacts()
        self.reads_sizes = reads_sizes
        self.max_bytes = max_bytes
        self.random_inputs: tuple[Value, Value] | None = None
        self.random_nodes = 0
        self._constants: dict[tuple[DType, type, str], Value] = {}

    def nested(self, builder: GraphBuilder) -> Self:
        """An emitter of the same class for the builder of a sub-graph (`GraphBuilder.nested`)."""
        return type(self)(builder, Contents(builder, hint=self.known.hint), max_bytes=self.max_bytes)

    @property
    def operator(self) -> str:
        """The foreign operator being imported, as errors name it."""
        return self.facts.operator

    def is_read(self, number: int) -> bool:
        """Whether anyone may read that result of the foreign node."""
        return number < len(self.facts.read) and self.facts.read[number]

    # --- nodes ---------------------------------------------------------------------------------------------------

    def emit(self, op: str | OperatorSpec, *inputs: Value | None, **attrs: Any) -> Value:
        """Apply a core operator with one output."""
        (value,) = self.emit_all(op, inputs, attrs)
        return value

    def emit_all(
        self, op: str | OperatorSpec, inputs: Sequence[Value | None], attrs: Mapping[str, Any]
    ) -> tuple[Value, ...]:
        """Apply an operator and return all its values; one without a definition is written as its decomposition.

        UnsupportedOp when core lacks it, ImportFailed for results that are refused (`max_bytes`).
        """
        if isinstance(op, str) and op not in self.builder.operators:
            raise UnsupportedOp(f"core has no operator {op}", hint=suggestion(op, self.builder.operators))
        spec = self.builder.operators[op] if isinstance(op, str) else op
        if spec.define is None and spec.decompose is not None:
            outputs = tuple(spec.decompose(self.builder, inputs, spec.attrs(attrs)))
        else:
            outputs = self.builder.emit_all(spec, inputs, attrs)
        if self.max_bytes is not None:
            for value in outputs:
                if isinstance(value.type, TensorType):
                    self.require_size(value.type.shape, value.type.dtype)
        return outputs

    def made_by(self, value: Value, op: str) -> Node | None:
        """The node that makes `value`, where it applies that operator."""
        node = self.builder.producer(value)
        return node if node is not None and node.op.name == op else None

    def require_size(self, shape: Sequence[Dim], dtype: DType) -> None:
        """ImportFailed for a tensor with a negative extent, or of more than `max_bytes`. None may be of any size."""
        if self.max_bytes is None:
            return
        extents = [extent for extent in shape if isinstance(extent, int)]
        if min(extents, default=0) < 0:
            raise ImportFailed(f"{self.operator} makes {TensorType(dtype, tuple(shape))}, which has a negative extent")
        if math.prod(extents) * dtype.nbytes > self.max_bytes:
            raise ImportFailed(f"{self.operator} makes {TensorType(dtype, tuple(shape))}, which no machine holds")

    # --- constants and element types -----------------------------------------------------------------------------

    def constant(self, number: Number, dtype: DType) -> Value:
        """A number as a tensor without axes; equal ones are one constant."""
        key = (dtype, type(number), str(number))
        known = self._constants.get(key)
        if known is None:
            known = self._constants[key] = self.builder.constant(number, dtype)
        return known

    def array(self, array: Any) -> Value:
        """Constant data: what numpy makes an array of."""
        return self.builder.constant(array)

    def size(self, size: Dim, dtype: DType = dtypes.i64) -> Value:
        """A size as a tensor without axes."""
        if isinstance(size, int):
            return self.constant(size, dtype)
        return self.emit("full", shape=(), value=size, dtype=dtype)

    def size_vector(self, sizes: Sequence[Dim], dtype: DType = dtypes.i64) -> Value:
        """Sizes as a tensor with one axis."""
        if all(isinstance(size, int) for size in sizes):
            return self.array(numpy.asarray(sizes, dtype.numpy()))
        return self.emit("stack", *[self.size(size, dtype) for size in sizes], axis=0)

    def cast(self, value: Value, dtype: DType) -> Value:
        """`value` converted to `dtype`, itself when it is of that type."""
        return value if value.tensor.dtype == dtype else self.emit("cast", value, dtype=dtype)

    # --- views ---------------------------------------------------------------------------------------------------

    def reshape(self, value: Value, shape: Sequence[Dim]) -> Value:
        """`value` in another shape, which holds no -1. A reshape of a reshape is one."""
        source = value
        while not same_shape(source.tensor.shape, shape):
            node = self.made_by(source, "reshape")
            if node is None:
                return self.emit("reshape", source, shape=tuple(shape))
            source = node.values[0]
        return source

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        """`value` with its axes in another order; negative axes count from the end. Two orders are one."""
        rank = value.tensor.rank
        order = tuple(axis % rank for axis in perm)
        unchanged = tuple(range(rank))
        node = None if order == unchanged else self.made_by(value, "transpose")
        if node is not None:
            inner = node.attrs["perm"]
            value, order = node.values[0], tuple(inner[axis] % rank for axis in order)
        return value if order == unchanged else self.emit("transpose", value, perm=order)

    def expand(self, value: Value, shape: Sequence[Dim]) -> Value:
        """`value` with axes of extent 1 repeated and leading axes added; `shape` holds no -1."""
        return value if same_shape(value.tensor.shape, shape) else self.emit("expand", value, shape=tuple(shape))

    def unsqueeze(self, value: Value, axes: Sequence[int]) -> Value:
        """`value` with new axes of extent 1 at these places of the result."""
        return self.emit("unsqueeze", value, axes=tuple(axes)) if axes else value

    def squeeze(self, value: Value, axes: Sequence[int]) -> Value:
        """`value` without those of `axes` that have extent 1."""
        rank = value.tensor.rank
        gone = tuple(axis % rank for axis in axes if rank and value.tensor.shape[axis % rank] == 1)
        return self.emit("squeeze", value, axes=gone) if gone else value

    # --- elements that must be known -----------------------------------------------------------------------------

    def contents(self, value: Value | None) -> Any | None:
        """The elements of `value` as a numpy array (of `Dim` objects where some are symbolic); None when unknown."""
        return None if value is None else self.known.of(value)

    def is_known(self, *values: Value) -> bool:
        """Whether the elements of all these are known while importing."""
        return all(self.known.of(value) is not None for value in values)

    def array_of(self, value: Value, what: str) -> Any:
        """The elements of `value` as an array; `what` names it in errors. ValueNeeded when they are not known."""
        found = self.known.of(value)
        if found is None:
            raise self.value_needed(value, what)
        return found

    def number(self, value: Value, what: str) -> Any:
        """The one element of a tensor as a Python number, or a symbolic size."""
        array = self.array_of(value, what)
        if array.size != 1:
            raise ImportFailed(f"{what} of {self.operator} has {array.size} elements: expected one")
        item = array.reshape(-1)[0]
        return item if isinstance(item, DimExpr | int) else item.item()

    def dims(self, value: Value, what: str) -> tuple[Dim, ...]:
        """The elements of an integer tensor with at most one axis. ValueNeeded when they are not known."""
        array = self.array_of(value, what)
        return tuple(item if isinstance(item, DimExpr) else int(item) for item in array.reshape(-1))

    def one_dim(self, value: Value, what: str) -> Dim:
        """The only element of an integer tensor. ImportFailed when it has another number of elements."""
        return self._only(self.dims(value, what), what)

    def ints(self, value: Value, what: str) -> tuple[int, ...]:
        """As `dims`, but all of them numbers: axes, counts, permutations. ImportFailed for a symbolic size."""
        found = self.dims(value, what)
        numbers = [item for item in found if isinstance(item, int)]
        if len(numbers) != len(found):
            raise ImportFailed(f"{what} of {self.operator} depends on a symbolic size: {list(map(str, found))}")
        return tuple(numbers)

    def one_int(self, value: Value, what: str) -> int:
        """As `one_dim`, but a number."""
        self.one_dim(value, what)
        return self.ints(value, what)[0]

    def sizes(self, value: Value, what: str) -> tuple[Dim, ...]:
        """As `dims`; sizes that are not known are read back when the model runs, and are symbols of at least 0."""
        if not self.reads_sizes or self.known.of(value) is not None:
            return self.dims(value, what)
        count = value.tensor.shape[0] if value.tensor.rank == 1 else 1
        if value.tensor.rank > 1 or not isinstance(count, int):
            raise self.value_needed(value, what)
        symbols = tuple(self.builder.fresh_size() for _ in range(count))
        self.emit_all("read_sizes", (self.cast(value, dtypes.i64),), {"defines": symbols})
        array = numpy.empty(count, object)
        array[:] = symbols
        self.known.learn(value, array.reshape(tuple(value.tensor.shape)))
        return symbols

    def one_size(self, value: Value, what: str) -> Dim:
        """The only element of an integer tensor, as `sizes`. ImportFailed when it has another number of elements."""
        return self._only(self.sizes(value, what), what)

    def _only(self, found: tuple[Dim, ...], what: str) -> Dim:
        if len(found) != 1:
            raise ImportFailed(f"{what} of {self.operator} is one number, got {len(found)}")
        return found[0]

    def value_needed(self, value: Value, what: str) -> ValueNeeded:
        """The error that says which inputs the elements of `value` come from."""
        return self.needs(f"{what} of {self.operator} must be known before the model runs", *self.sources(value))

    def sizes_needed(self, value: Value, message: str) -> ValueNeeded:
        """The error that says which inputs the open extents of `value` come from."""
        return self.needs(message, (), tuple(sorted(sources_of_sizes(value, self.known))))

    def needs(self, message: str, inputs: tuple[str, ...], shapes: tuple[str, ...]) -> ValueNeeded:
        """The error that elements of these inputs, and sizes of those in `shapes`, must be known."""
        return value_needed(message, inputs, shapes, self.known.hint)

    def sources(self, value: Value) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the model's inputs that a value is computed from: whose elements, and whose sizes, are not known."""
        values, shapes = sources_of(value, self.known)
        return tuple(sorted(values)), tuple(sorted(shapes))

    # --- random numbers ------------------------------------------------------------------------------------------

    def random_source(self, seed: int | None = None) -> tuple[Value, Value, int]:
        """Seed and offset (i64, without axes) and stream number of a random operator. `seed` None: others at every
        call."""
        if seed is not None:
            return self.constant(seed, dtypes.i64), self.constant(0, dtypes.i64), 0
        if self.random_inputs is None:
            self.random_inputs = self._draw_state()
        self.random_nodes += 1
        return (*self.random_inputs, self.random_nodes - 1)

    def _draw_state(self) -> tuple[Value, Value]:
        """Seed and offset of a call, for all random operators of the graph."""
        seed, offset = self.builder.emit_all("random_state", [], {})
        return seed, offset
