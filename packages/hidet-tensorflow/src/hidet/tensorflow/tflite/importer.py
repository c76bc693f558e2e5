"""From TFLite sub-graphs to a graph of core operators: every node by the handler of its operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from hidet.context import CompileContext
from hidet.dims import Dim
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Contents, Handler, NodeFacts, SizeNames, identifier
from hidet.frontend.translate import require_names, translating
from hidet.graph import GraphBuilder, Value
from hidet.loc import Loc
from hidet.runtime.signature import Entries, GraphInput, GraphOutput, ModelGraph, Parameter, Signature
from hidet.tensorflow.tflite.emitter import LiteEmitter
from hidet.tensorflow.tflite.loader import LiteGraph, LiteModel, LiteNode, LiteTensor
from hidet.tensorflow.tflite.mapping import handlers_of
from hidet.tensorflow.tflite.rows import with_row_writes
from hidet.tensorflow.tflite.survey import require_supported
from hidet.tensorflow.value_types import input_type

MAX_NESTING = 64
"""Sub-graphs inside each other."""

MAX_WRITTEN = 1 << 18
"""Nodes of one import, those of sub-graphs counted each time."""

MAX_BYTES = 1 << 40
"""Tensors that are larger are refused."""


def import_lite(
    model: LiteModel,
    ctx: CompileContext,
    *,
    signature: str | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    values: Mapping[str, Any] | None = None,
) -> ModelGraph:
    """Translate a model. signature: which one; None is the only one, or "serving_default".

    shapes: shapes of inputs by name in place of those that the file says. values: arrays that take the place of inputs
    by name. Raises UnsupportedOp with the list of operators that are not known, and ImportFailed naming the node for
    one that cannot be what the file says it is.
    """
    handlers = handlers_of(ctx.registry)
    found = model.signature(signature)
    require_supported(model, found.graph, handlers)
    names = list(found.inputs)
    require_names(names, shapes=shapes or {}, values=values or {})
    builder = GraphBuilder(ctx.registry.operators, identifier(found.name or model.graphs[found.graph].name) or "main")
    emitter = LiteEmitter(builder, Contents(builder), reads_sizes=True, max_bytes=MAX_BYTES)
    importer = _Importer(model, handlers, builder, emitter)
    sizes = SizeNames()
    graph = model.graphs[found.graph]
    items: dict[int, Value] = {}
    parameters: list[Parameter] = []
    for name, number in found.inputs.items():
        tensor = graph.tensors[number]
        array = (values or {}).get(name)
        if tensor.dtype is None:
            raise ImportFailed(f"input {name!r} is of element type {tensor.type_number}, which is not known")
        if array is not None:
            items[number] = builder.constant(array.astype(tensor.dtype.numpy(), copy=False))
            continue
        type_ = input_type(name, tensor.dtype, tensor.shape, sizes, None, (shapes or {}).get(name))
        items[number] = builder.input(type_, identifier(name))
        emitter.known.inputs[items[number]] = name
        parameters.append(Parameter(name, GraphInput(len(parameters))))
    results = importer.write(found.graph, [items[number] for number in graph.inputs], list(found.outputs.values()))
    form = Entries(tuple((name, GraphOutput(place)) for place, name in enumerate(found.outputs)))
    calls = Signature(tuple(parameters), len(parameters), results=form if found.name else None)
    return ModelGraph(builder.build(list(results)), calls)


@dataclass(frozen=True, slots=True, eq=False)
class LiteBody:
    """A sub-graph that a node names. importer: writes it."""

    number: int
    importer: _Importer = field(repr=False)

    @property
    def graph(self) -> LiteGraph:
        """The sub-graph."""
        return self.importer.model.graphs[self.number]

    @property
    def read(self) -> frozenset[int]:
        """Numbers of the arguments that its nodes read, or it returns."""
        graph = self.graph
        numbers = {number for node in graph.nodes for number in node.inputs} | set(graph.outputs)
        return frozenset(place for place, number in enumerate(graph.inputs) if number in numbers)

    def inline(self, items: Sequence[Value]) -> tuple[Value, ...]:
        """Write the sub-graph's nodes for these arguments where the node stands, and return its results."""
        return self.importer.write(self.number, items, self.graph.outputs)

    def write(self, emitter: LiteEmitter, items: Sequence[Value]) -> tuple[Value, ...]:
        """Write the sub-graph's nodes into a graph of their own, and return its results."""
        with self.importer.writing_with(emitter):
            return self.inline(items)

    @property
    def unchanged(self) -> frozenset[int]:
        """Numbers of the arguments that are results of the same number."""
        pairs = zip(self.graph.inputs, self.graph.outputs, strict=False)
        return frozenset(number for number, (before, after) in enumerate(pairs) if before == after)

    @property
    def growing(self) -> frozenset[int]:
        """Numbers of the arguments that are results of the same number with 1 added."""
        graph = self.graph
        made_by = {output: node for node in graph.nodes for output in node.outputs}
        found = set()
        for number, (before, after) in enumerate(zip(graph.inputs, graph.outputs, strict=False)):
            node = made_by.get(after)
            if node is None or node.operator != "ADD" or before not in node.inputs or len(node.inputs) != 2:
                continue
            other = graph.tensors[node.inputs[1 - node.inputs.index(before)]].data
            if other is not None and other.size == 1 and other.dtype.kind in "iu" and other.reshape(-1)[0] == 1:
                found.add(number)
        return frozenset(found)


class _Importer:
    def __init__(
        self, model: LiteModel, handlers: Mapping[str, Handler], builder: GraphBuilder, emitter: LiteEmitter
    ) -> None:
        self.model = replace(model, graphs=[with_row_writes(graph) for graph in model.graphs])
        self.handlers = handlers
        self.builder = builder
        self.emitter = emitter
        self.written = 0
        self.depth = 0

    @contextmanager
    def writing_with(self, emitter: LiteEmitter) -> Iterator[None]:
        """Nodes go into the graph of `emitter`."""
        kept = self.builder, self.emitter
        self.builder, self.emitter = emitter.builder, emitter
        try:
            yield
        finally:
            self.builder, self.emitter = kept

    def write(self, number: int, items: Sequence[Value], outputs: Sequence[int]) -> tuple[Value, ...]:
        """Write the nodes of a sub-graph that these of its tensors need."""
        graph = self.model.graphs[number]
        if len(items) != len(graph.inputs):
            raise ImportFailed(f"sub-graph {graph.name!r} has {len(graph.inputs)} inputs, got {len(items)}")
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise ImportFailed(f"sub-graphs are nested more than {MAX_NESTING} deep")
        try:
            found = dict(zip(graph.inputs, items, strict=True))
            for node in needed_nodes(graph, outputs):
                self.written += 1
                if self.written > MAX_WRITTEN:
                    raise ImportFailed(f"the model becomes more than {MAX_WRITTEN} nodes with its loops written out")
                found.update(zip(node.outputs, self._node(graph, node, found), strict=True))
            return tuple(self._value(graph, tensor, found) for tensor in outputs)
        finally:
            self.depth -= 1

    def _value(self, graph: LiteGraph, number: int, found: dict[int, Value]) -> Value:
        """A tensor's value: what a node has made, or what the file holds."""
        if number not in found:
            tensor = graph.tensors[number]
            if tensor.data is not None:
                found[number] = self.builder.constant(tensor.data)
            elif tensor.is_variable and tensor.dtype is not None and None not in tensor.shape:
                zero = tensor.quantisation.zero[0] if tensor.quantisation is not None else 0
                shape = tuple(extent or 0 for extent in tensor.shape)
                found[number] = self.emitter.emit("full", shape=shape, value=int(zero), dtype=tensor.dtype)
            else:
                raise ImportFailed(f"tensor {number}, {tensor.name!r}, is read, which no node before has made")
        return found[number]

    def _node(self, graph: LiteGraph, node: LiteNode, found: dict[int, Value]) -> Sequence[Value]:
        name = graph.tensors[node.outputs[0]].name if node.outputs else ""
        loc = Loc(None, name=f"node {node.number}, {node.operator} {name!r}")
        with self.builder.at(loc), translating(loc, node.operator, "operands or options"):
            operands = [None if number < 0 else self._value(graph, number, found) for number in node.inputs]
            return self._results(graph, node, operands)

    def _results(self, graph: LiteGraph, node: LiteNode, operands: Sequence[Value | None]) -> Sequence[Value]:
        emitter = self.emitter
        emitter.facts = NodeFacts(node.operator, (True,) * len(node.outputs))
        emitter.operands = [None if number < 0 else graph.tensors[number] for number in node.inputs]
        emitter.results = [graph.tensors[number] for number in node.outputs]
        options = dict(node.options)
        for name in [name for name in options if name.endswith("_subgraph")]:
            number = options.pop(name)
            if not 0 <= number < len(self.model.graphs):
                raise ImportFailed(f"{node.operator} names sub-graph {number} of {len(self.model.graphs)}")
            options[name.removesuffix("_subgraph")] = LiteBody(number, self)
        if node.custom:
            options["custom"] = node.custom
        made = self.handlers[node.operator](emitter, *operands, **options)
        results = made if isinstance(made, tuple) else (made,)
        if len(results) < len(node.outputs):
            raise ImportFailed(f"{node.operator} has {len(node.outputs)} results, expected {len(results)}")
        for value, number in zip(results, node.outputs, strict=False):
            if isinstance(value, Value):
                _require_type(node, value, graph.tensors[number])
        return results[: len(node.outputs)]


def _require_type(node: LiteNode, value: Value, tensor: LiteTensor) -> None:
    """ImportFailed for a result of another element type than the file says."""
    if value.tensor.dtype != tensor.dtype:
        said = "a type that is not known" if tensor.dtype is None else tensor.dtype.name
        raise UnsupportedOp(f"{node.operator} makes {value.type}, where the file says {said}")


def needed_nodes(graph: LiteGraph, outputs: Sequence[int]) -> list[LiteNode]:
    """The nodes that these tensors need, in order, and those without results."""
    wanted = set(outputs)
    found = []
    for node in reversed(graph.nodes):
        if not node.outputs or not wanted.isdisjoint(node.outputs):
            found.append(node)
            wanted.update(node.inputs)
    return found[::-1]
