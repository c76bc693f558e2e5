"""Building graphs: emit operators by name, with inference and checks; values are named %0, %1, …"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hidet.dims import Dim, DimExpr, symbol, symbols
from hidet.dtypes import DType, from_numpy
from hidet.errors import HidetError, UnsupportedOp, suggestion
from hidet.graph.attrs import Attrs
from hidet.graph.graph import Constant, Graph, Node, Value
from hidet.graph.operator import OperatorSpec, define_node, infer_types
from hidet.graph.types import TensorType, ValueType, dims_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hidet.compute.definition import Definition
    from hidet.loc import Loc


class _Question:
    """What an operator makes of inputs of some types. The operator itself is told from others by its identity.

    hints: of all symbols in it. Sizes are equal whatever they hint at, but the answer is made of these.
    """

    __slots__ = ("_hash", "attrs", "hints", "spec", "types")

    def __init__(self, spec: OperatorSpec, types: tuple[ValueType | None, ...], attrs: Attrs) -> None:
        self.spec = spec
        self.types = types
        self.attrs = attrs
        dims = (dim for type_ in types if type_ is not None for dim in dims_of(type_))
        self.hints = tuple(entry.hint for dim in (*dims, *_sizes(tuple(attrs.values()))) for entry in symbols(dim))
        self._hash = hash((id(spec), types, attrs))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, _Question)
        if self.spec is not other.spec or self.hints != other.hints:
            return False
        return self.types == other.types and self.attrs == other.attrs


def _sizes(attribute: Any) -> Iterator[DimExpr]:
    """Those in the value of an attribute that no number is known for."""
    if isinstance(attribute, DimExpr):
        yield attribute
    elif isinstance(attribute, tuple):
        for part in attribute:
            yield from _sizes(part)


@functools.lru_cache(maxsize=4096)
def _meaning(question: _Question) -> tuple[Definition | None, tuple[ValueType, ...]]:
    """Made once for all nodes that differ only in what they read: those of equal layers, and in all passes."""
    return _answer(question)


def _answer(question: _Question) -> tuple[Definition | None, tuple[ValueType, ...]]:
    spec, types, attrs = question.spec, question.types, question.attrs
    definition = define_node(spec, types, attrs)
    return definition, infer_types(spec, types, definition, attrs)


def node_meaning(
    spec: OperatorSpec, inputs: Sequence[Value | None], attrs: Attrs
) -> tuple[Definition | None, tuple[ValueType, ...]]:
    """The definition of `spec` on inputs of the types of `inputs`, None if it has none, and the results' types.

    Equal questions get the same definition object. Raises what the operator raises for inputs that do not fit.
    """
    question = _Question(spec, tuple([None if v is None else v.type for v in inputs]), attrs)
    # What is remembered lives as long as the process, so it must not hold a model: its sub-graphs, or its eager calls.
    lasts = spec.define is not None and spec.call is None and Graph not in map(type, attrs.values())
    return _meaning(question) if lasts else _answer(question)


class GraphBuilder:
    """Collects nodes in order. `operators` maps names to specs (a registry's table); values are numbered from
    `first_number`."""

    def __init__(
        self,
        operators: Mapping[str, OperatorSpec],
        name: str = "graph",
        first_number: int = 0,
        taken_sizes: set[str] | None = None,
    ) -> None:
        """taken_sizes: names of symbols that `fresh_size` must not use; None starts with none."""
        self.operators = operators
        self.name = name
        self.loc: Loc | None = None
        self._inputs: list[Value] = []
        self._parameters: set[Value] = set()
        self._nodes: list[Node] = []
        self._constants: dict[Value, Constant] = {}
        self._count = first_number
        self._types: dict[ValueType, ValueType] = {}
        self._producers: dict[Value, Node] = {}
        self._indexed = 0
        self._taken_sizes: set[str] = set() if taken_sizes is None else taken_sizes

    def nested(self, name: str) -> GraphBuilder:
        """A builder of a sub-graph; symbols made by either have different names."""
        inner = GraphBuilder(self.operators, name, taken_sizes=self._taken_sizes)
        inner.loc = self.loc
        return inner

    def fresh_size(self, lower: int = 0) -> Dim:
        """A symbol of a new name, for a size that only running the graph tells."""
        number = len(self._taken_sizes)
        while f"n_{number}" in self._taken_sizes:
            number += 1
        self._taken_sizes.add(f"n_{number}")
        return symbol(f"n_{number}", lower)

    def input(self, type_: ValueType, name: str | None = None, *, is_parameter: bool = False) -> Value:
        """Add a graph input; parameters are weights that stay the same between calls."""
        # Equal types are one object, as those of results are: what compares types compares identities first.
        value = self._value(self._types.setdefault(type_, type_), name)
        self._inputs.append(value)
        self._taken_sizes.update(found.name for dim in dims_of(type_) for found in symbols(dim))
        if is_parameter:
            self._parameters.add(value)
        return value

    def constant(self, data: Any, dtype: DType | None = None, name: str | None = None) -> Value:
        """Add constant data: anything numpy understands; `dtype` None keeps the data's own."""
        import numpy

        array = numpy.asarray(data, dtype=None if dtype is None else dtype.numpy())
        value = self._value(TensorType(from_numpy(array.dtype), array.shape), name)
        self._constants[value] = Constant(array)
        return value

    def emit(self, op: str | OperatorSpec, *inputs: Value | None, **attrs: Any) -> Value:
        """Apply a one-output operator and return its value."""
        outputs = self.emit_all(op, inputs, attrs)
        if len(outputs) != 1:
            raise HidetError(f"operator {op} has {len(outputs)} outputs where one is expected", loc=self.loc)
        return outputs[0]

    def emit_all(
        self,
        op: str | OperatorSpec,
        inputs: Sequence[Value | None],
        attrs: Mapping[str, Any],
        types: Sequence[ValueType] | None = None,
    ) -> tuple[Value, ...]:
        """Apply an operator and return all its values. UnsupportedOp or ShapeError carry the current `loc`.

        types: the results' types where they are to lie in memory otherwise than row-major; None infers them.
        """
        try:
            spec = self._spec(op) if isinstance(op, str) else op
            spec.check_inputs(len(inputs))
            complete = spec.attrs(attrs)
            definition, results = node_meaning(spec, inputs, complete)
        except HidetError as error:
            if error.loc is None:
                error.loc = self.loc
            raise
        outputs = tuple([self._value(t) for t in (results if types is None else types)])
        self._nodes.append(Node(spec, tuple(inputs), complete, outputs, self.loc, definition))
        return outputs

    def repeat(self, node: Node, inputs: Sequence[Value | None]) -> tuple[Value, ...]:
        """Apply the operator of `node`, with its attributes, to inputs of the same types: nothing is inferred again."""
        outputs = tuple([self._value(value.type) for value in node.outputs])
        self._nodes.append(Node(node.op, tuple(inputs), node.attrs, outputs, self.loc, node.definition))
        return outputs

    def _spec(self, name: str) -> OperatorSpec:
        spec = self.operators.get(name)
        if spec is None:
            raise UnsupportedOp(f"operator {name!r} is unknown", hint=suggestion(name, self.operators))
        return spec

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes so far."""
        return tuple(self._nodes)

    def producer(self, value: Value) -> Node | None:
        """The node so far that computes `value`; None for inputs, constants and values of other graphs."""
        for node in self._nodes[self._indexed :]:
            self._producers.update(dict.fromkeys(node.outputs, node))
        self._indexed = len(self._nodes)
        return self._producers.get(value)

    def take_nodes(self) -> list[Node]:
        """The nodes so far, which this builder then has no longer; what they define stays known."""
        taken, self._nodes = self._nodes, []
        self._producers, self._indexed = {}, 0
        return taken

    @property
    def constants(self) -> Mapping[Value, Constant]:
        """The constants so far, as a read-only view."""
        return MappingProxyType(self._constants)

    def append(self, node: Node) -> None:
        """Add an existing node, sharing it."""
        self._nodes.append(node)

    @contextmanager
    def at(self, loc: Loc | None) -> Iterator[None]:
        """Give nodes emitted inside the place `loc` of the user's model."""
        previous, self.loc = self.loc, loc
        try:
            yield
        finally:
            self.loc = previous

    def build(self, outputs: Sequence[Value], mutates: Sequence[tuple[int, int]] = ()) -> Graph:
        """The finished graph."""
        return Graph(
            self.name,
            tuple(self._inputs),
            tuple(self._nodes),
            tuple(outputs),
            dict(self._constants),
            frozenset(self._parameters),
            tuple(mutates),
        )

    def _value(self, type_: ValueType, name: str | None = None) -> Value:
        self._count += 1
        return Value(name or str(self._count - 1), type_)


def full(builder: GraphBuilder, shape: Sequence[Dim], value: float | int | bool, dtype: DType) -> Value:
    """A tensor filled with one number."""
    return builder.emit("full", shape=tuple(shape), value=value, dtype=dtype)


def rebuild_node(node: Node, mapping: Mapping[Value, Value]) -> Node:
    """The node reading mapped inputs; the same object when none is mapped. Types of inputs must stay equal."""
    if not mapping or mapping.keys().isdisjoint(node.inputs):
        return node
    inputs = tuple([None if v is None else mapping.get(v, v) for v in node.inputs])
    return Node(node.op, inputs, node.attrs, node.outputs, node.loc, node.definition)


__all__ = ["Attrs", "GraphBuilder", "full", "node_meaning", "rebuild_node"]
