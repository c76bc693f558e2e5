"""`Emitter`: what the operator mappings write graphs with.

It adds to GraphBuilder what ONNX needs everywhere: numbers that operators take as tensors (`ints`, `number`, `dims`),
conversions, views that are not repeated, and facts about the ONNX node being imported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hidet import dtypes
from hidet.dims import Dim, DimExpr, symbols
from hidet.dtypes import DType
from hidet.errors import ImportFailed, UnsupportedOp, ValueNeeded
from hidet.graph import Graph, GraphBuilder, OperatorSpec, Value
from hidet.graph.symbols import symbols_of
from hidet.graph.types import TensorType, dims_of, same_shape
from hidet.onnx.contents import Contents

Number = bool | int | float | complex

MAX_BYTES = 1 << 40
"""Tensors that are larger are refused."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The ONNX node being imported.

    operator: its name, with the domain before it where that is not ONNX's own. version: since-version of the handler's
    row. opset: version of the domain that the model asks for. inputs: names of its inputs, "" for absent ones. wanted:
    for each output whether it has a name, that is, may be read.
    """

    operator: str = ""
    version: int = 0
    opset: int = 0
    inputs: tuple[str, ...] = ()
    wanted: tuple[bool, ...] = ()

    def is_wanted(self, output: int) -> bool:
        """Whether output number `output` is there to be read."""
        return output < len(self.wanted) and self.wanted[output]


def value_needed(message: str, inputs: tuple[str, ...], shapes: tuple[str, ...] = ()) -> ValueNeeded:
    """The error that elements, or sizes, of these inputs must be known, and how they are given."""
    if not inputs and not shapes:
        return ValueNeeded(message, ())
    parts = [f"input {name!r}" for name in inputs] + [f"the sizes of input {name!r}" for name in shapes]
    python = ["values={" + ", ".join(f"{name!r}: …" for name in inputs) + "}"] if inputs else []
    python += ["shapes={" + ", ".join(f"{name!r}: (…)" for name in shapes) + "}"] if shapes else []
    shell = [f"--value {name}=…" for name in inputs] + [f"--shape {name}=1x8" for name in shapes]
    return ValueNeeded(
        f"{message}; this is computed from {', '.join(parts)}",
        inputs,
        shapes,
        hint=f"from_onnx and hidet.compile take {', '.join(python)}, the command line {' '.join(shell)}; OnnxRunner "
        "takes what it is called with",
    )


def in_branch(error: ValueNeeded, deciding: tuple[str, ...]) -> ValueNeeded:
    """The error of a branch that inputs `deciding` may choose or not."""
    more = tuple(name for name in deciding if name not in (*error.inputs, *error.deciding))
    if not more:
        return error
    names = ", ".join(map(repr, more))
    flags = " ".join(f"--value {name}=…" for name in more)
    values = ", ".join(f"{name!r}: …" for name in more)
    made = ValueNeeded(
        f"{error.message}; whether this branch is taken is computed from input {names}",
        error.inputs,
        error.shapes,
        hint=f"{error.hint}; the branch is chosen by values={{{values}}}, {flags}",
    )
    made.deciding = (*error.deciding, *more)
    made.loc = error.loc
    return made


class Emitter:
    """Writes nodes into `builder`. `node` are facts about the ONNX node being imported.

    reads_sizes: whether sizes that data decide may be read back while the model runs.
    """

    def __init__(self, builder: GraphBuilder, contents: Contents, *, reads_sizes: bool = False) -> None:
        self.builder = builder
        self.known = contents
        self.node = NodeFacts()
        self.reads_sizes = reads_sizes
        self._constants: dict[tuple[DType, type, str], Value] = {}
        self._random_inputs: tuple[Value, Value] | None = None
        self._random_nodes = 0

    # --- nodes ---------------------------------------------------------------------------------------------------

    def emit(self, op: str | OperatorSpec, *inputs: Value | None, **attrs: Any) -> Value:
        """Apply a core operator with one output."""
        (value,) = self.emit_all(op, inputs, attrs)
        return value

    def emit_all(
        self, op: str | OperatorSpec, inputs: Sequence[Value | None], attrs: Mapping[str, Any]
    ) -> tuple[Value, ...]:
        """Apply an operator and return all its values; one without a definition is written as its decomposition."""
        position = self.builder.node_count
        if isinstance(op, str) and op not in self.builder.operators:
            raise UnsupportedOp(f"core has no operator {op}")
        spec = self.builder.operators[op] if isinstance(op, str) else op
        if spec.define is None and spec.decompose is not None:
            outputs = tuple(spec.decompose(self.builder, inputs, spec.attrs(attrs)))
        else:
            outputs = self.builder.emit_all(spec, inputs, attrs)
        for value in outputs:
            self._require_size(value)
        self.known.note(self.builder.nodes_from(position))
        return outputs

    def _require_size(self, value: Value) -> None:
        """ImportFailed for a tensor with a negative extent, or of more than `MAX_BYTES`."""
        if not isinstance(value.type, TensorType):
            return
        extents = [extent for extent in value.tensor.shape if isinstance(extent, int)]
        if min(extents, default=0) < 0:
            raise ImportFailed(f"{self.node.operator} makes {value.type}, which has a negative extent")
        if math.prod(extents) * value.tensor.dtype.nbytes > MAX_BYTES:
            raise ImportFailed(f"{self.node.operator} makes {value.type}, which no machine holds")

    def inline(self, graph: Graph, inputs: Sequence[Value]) -> tuple[Value, ...]:
        """Apply the nodes of a graph to other values, and return what its outputs become."""
        mapping = dict(zip(graph.inputs, inputs, strict=True))
        for value, constant in graph.constants.items():
            mapping[value] = self.builder.constant(constant.data)
        for node in graph.nodes:
            given = [None if value is None else mapping[value] for value in node.inputs]
            mapping.update(zip(node.outputs, self.emit_all(node.op, given, node.attrs), strict=True))
        return tuple(mapping[value] for value in graph.outputs)

    # --- numbers and element types -------------------------------------------------------------------------------

    def constant(self, number: Number, dtype: DType) -> Value:
        """A tensor without axes."""
        key = (dtype, type(number), str(number))
        known = self._constants.get(key)
        if known is None:
            known = self._constants[key] = self.builder.constant(number, dtype)
        return known

    def array(self, array: Any) -> Value:
        """Constant data."""
        return self.builder.constant(array)

    def size(self, size: Dim, dtype: DType = dtypes.i64) -> Value:
        """A size as a tensor without axes."""
        if isinstance(size, int):
            return self.constant(size, dtype)
        return self.emit("full", shape=(), value=size, dtype=dtype)

    def size_vector(self, sizes: Sequence[Dim], dtype: DType = dtypes.i64) -> Value:
        """Sizes as a tensor with one axis."""
        import numpy

        if all(isinstance(size, int) for size in sizes):
            return self.array(numpy.asarray(sizes, dtype.numpy()))
        return self.emit("stack", *[self.size(size, dtype) for size in sizes], axis=0)

    def cast(self, value: Value, dtype: DType) -> Value:
        """`value` converted to `dtype`, itself when it is of that type."""
        return value if value.tensor.dtype == dtype else self.emit("cast", value, dtype=dtype)

    # --- elements that must be known -----------------------------------------------------------------------------

    def contents(self, value: Value | None) -> Any | None:
        """The elements of `value` as a numpy array (of `Dim` objects where some are symbolic); None when unknown."""
        return None if value is None else self.known.of(value)

    def array_of(self, value: Value, what: str) -> Any:
        """The elements of `value` as an array; `what` names it in errors. ValueNeeded when they are not known."""
        found = self.known.of(value)
        if found is None:
            raise self.value_needed(value, what)
        return found

    def dims(self, value: Value, what: str) -> tuple[Dim, ...]:
        """The elements of an integer tensor with at most one axis. ValueNeeded when they are not known."""
        array = self.array_of(value, what)
        return tuple(item if isinstance(item, DimExpr) else int(item) for item in array.reshape(-1))

    def sizes(self, value: Value, what: str) -> tuple[Dim, ...]:
        """As `dims`; sizes that are not known are read back when the model runs, and are symbols of at least 0."""
        if not self.reads_sizes or self.known.of(value) is not None:
            return self.dims(value, what)
        count = value.tensor.shape[0] if value.tensor.rank == 1 else 1
        if value.tensor.rank > 1 or not isinstance(count, int):
            raise self.value_needed(value, what)
        import numpy

        symbols = tuple(self.builder.fresh_size() for _ in range(count))
        self.emit_all("read_sizes", (self.cast(value, dtypes.i64),), {"defines": symbols})
        array = numpy.empty(count, object)
        array[:] = symbols
        self.known.learn(value, array.reshape(tuple(value.tensor.shape)))
        return symbols

    def one_size(self, value: Value, what: str) -> Dim:
        """The only element of an integer tensor, as `sizes`. ImportFailed when it has another number of elements."""
        found = self.sizes(value, what)
        if len(found) != 1:
            raise ImportFailed(f"{what} of {self.node.operator} is one number, got {len(found)}")
        return found[0]

    def is_known(self, *values: Value) -> bool:
        """Whether the elements of all these are known while importing."""
        return all(self.known.of(value) is not None for value in values)

    def one_dim(self, value: Value, what: str) -> Dim:
        """The only element of an integer tensor. ImportFailed when it has another number of elements."""
        found = self.dims(value, what)
        if len(found) != 1:
            raise ImportFailed(f"{what} of {self.node.operator} is one number, got {len(found)}")
        return found[0]

    def one_int(self, value: Value, what: str) -> int:
        """As `one_dim`, but a number."""
        self.one_dim(value, what)
        return self.ints(value, what)[0]

    def ints(self, value: Value, what: str) -> tuple[int, ...]:
        """As `dims`, but all of them numbers: axes, counts, permutations."""
        found = self.dims(value, what)
        numbers = [item for item in found if isinstance(item, int)]
        if len(numbers) != len(found):
            raise ImportFailed(f"{what} of {self.node.operator} depends on a symbolic size: {list(map(str, found))}")
        return tuple(numbers)

    def number(self, value: Value, what: str) -> Any:
        """The one element of a tensor as a Python number, or a symbolic size."""
        array = self.array_of(value, what)
        if array.size != 1:
            raise ImportFailed(f"{what} of {self.node.operator} has {array.size} elements: expected one")
        item = array.reshape(-1)[0]
        return item if isinstance(item, DimExpr | int) else item.item()

    def value_needed(self, value: Value, what: str) -> ValueNeeded:
        """The error that says which inputs the elements of `value` come from."""
        self.known.of(value)
        message = f"{what} of {self.node.operator} must be known before the model runs"
        return value_needed(message, *self.sources(value))

    def sources(self, value: Value) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the model's inputs that a value is computed from: whose elements, and whose sizes, are not known."""
        self.known.of(value)
        values, shapes = _sources(value, self.known)
        return tuple(sorted(values)), tuple(sorted(shapes))

    def sizes_needed(self, value: Value, message: str) -> ValueNeeded:
        """The error that says which inputs the open extents of `value` come from."""
        names = {symbol.name for size in dims_of(value.type) for symbol in symbols(size)}
        return value_needed(message, (), tuple(sorted(_inputs_of_sizes(names, self.known))))

    # --- views ---------------------------------------------------------------------------------------------------

    def reshape(self, value: Value, shape: Sequence[Dim]) -> Value:
        """`value` in another shape, which holds no -1."""
        node = self.known.producers.get(value)
        if node is not None and node.op.name == "reshape" and node.inputs[0] is not None:
            value = node.inputs[0]
        return value if same_shape(value.tensor.shape, shape) else self.emit("reshape", value, shape=tuple(shape))

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        """`value` with its axes in another order; negative axes count from the end."""
        rank = value.tensor.rank
        order = tuple(axis % rank for axis in perm)
        return value if order == tuple(range(rank)) else self.emit("transpose", value, perm=order)

    def expand(self, value: Value, shape: Sequence[Dim]) -> Value:
        """`value` with axes of extent 1 repeated and leading axes added; `shape` holds no -1."""
        return value if same_shape(value.tensor.shape, shape) else self.emit("expand", value, shape=tuple(shape))

    def unsqueeze(self, value: Value, axes: Sequence[int]) -> Value:
        """`value` with new axes of extent 1 at these places of the result."""
        return self.emit("unsqueeze", value, axes=tuple(axes)) if axes else value

    # --- random numbers ------------------------------------------------------------------------------------------

    def random_source(self, seed: float | None) -> tuple[Value, Value, int]:
        """Seed, offset and stream number of a random operator. `seed` None: others at every call."""
        import numpy

        self._random_nodes += 1
        if seed is not None:
            bits = int(numpy.float32(seed).view(numpy.int32))
            return self.constant(bits, dtypes.i64), self.constant(0, dtypes.i64), 0
        if self._random_inputs is None:
            key, offset = self.builder.emit_all("random_state", [], {})
            self._random_inputs = key, offset
        return (*self._random_inputs, self._random_nodes - 1)


def _sources(value: Value, known: Contents) -> tuple[set[str], set[str]]:
    """Names of the model's inputs that a value is computed from: of those whose elements are not known, and of those
    with sizes that are not."""
    values: set[str] = set()
    shapes: set[str] = set()
    seen: set[Value] = set()
    open_sizes: set[str] = set()
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        if current in known.inputs and current not in known.given:
            values.add(known.inputs[current])
        if current in known.outer:
            around, source = known.outer[current]
            more = _sources(source, around)
            values |= more[0]
            shapes |= more[1]
        node = known.producers.get(current)
        if node is not None:
            waiting += node.values
            open_sizes |= {symbol.name for symbol in symbols_of(tuple(node.attrs.values()))}
    return values, (shapes | _inputs_of_sizes(open_sizes, known)) - values


def _inputs_of_sizes(names: set[str], known: Contents) -> set[str]:
    """Names of the model's inputs that have one of the symbols of these names among their extents."""
    return {
        name
        for around in known.around()
        for entry, name in around.inputs.items()
        if not names.isdisjoint(symbol.name for size in dims_of(entry.type) for symbol in symbols(size))
    }


__all__ = ["Emitter", "NodeFacts", "Number", "in_branch", "value_needed"]
