"""From an ONNX model to a graph of core operators.

Every node is translated by the handler of its operator and version (`hidet.onnx.mapping`); an operator without one is
replaced by its function body: the model's own, or the one that ONNX defines it by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hidet.context import CompileContext
from hidet.dims import Dim
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Contents, Emitter, Handler, NodeFacts, Rows, SizeNames, identifier
from hidet.frontend.translate import require_names, translating, with_constants
from hidet.graph import Graph, GraphBuilder, TensorType, Value
from hidet.graph.types import ValueType
from hidet.loc import Loc
from hidet.onnx.attributes import AttributeReader, require_inputs, with_bound_attributes
from hidet.onnx.functions import Expansion, expansion_of, type_proto
from hidet.onnx.loader import LoadedModel, canonical_domain
from hidet.onnx.mapping import find_handler, handlers_of, qualified_name, table
from hidet.onnx.places import location
from hidet.onnx.scope import Item, Scope
from hidet.onnx.supported import every_node, require_supported
from hidet.onnx.tensors import sparse_array, tensor_array
from hidet.onnx.value_types import Absent, ArgumentType, EmptySequence, value_type

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, NodeProto

MAX_NESTING = 64
"""Function bodies and sub-graphs inside each other."""

MAX_WRITTEN = 1 << 16
"""Nodes of one import, those of unrolled loops and function bodies counted each time, beyond `MAX_TIMES` what the file
holds."""

MAX_TIMES = 16
"""How often, on average, the nodes of a file are written: functions are called, and bodies of loops repeated."""

MAX_BYTES = 1 << 40
"""Tensors that are larger are refused."""

MAX_SPARSE_BYTES = 1 << 30
"""Largest sparse initialiser that is made dense."""

_HINT = "from_onnx and hidet.compile take {python}, the command line {shell}; OnnxRunner takes what it is called with"


@dataclass(frozen=True, slots=True, eq=False)
class ImportedModel:
    """A graph and how a model's inputs and outputs relate to it.

    inputs: names of the model's inputs, in order, initialisers left out. arguments: those that the graph takes, in
    order. bound: names of those that are not arguments because their elements are built into the graph.
    outputs: for each output of the model its name and how it is made of the graph's results.
    """

    graph: Graph
    inputs: tuple[str, ...]
    arguments: tuple[str, ...]
    bound: tuple[str, ...]
    outputs: tuple[tuple[str, Item], ...]


def import_model(
    model: LoadedModel,
    ctx: CompileContext,
    *,
    shapes: Mapping[str, Sequence[Dim] | ArgumentType] | None = None,
    values: Mapping[str, Any] | None = None,
    must_bind: bool = False,
    reads_sizes: bool = True,
) -> ImportedModel:
    """Translate a model.

    shapes: shapes of inputs by name, or their types, in place of declared ones. values: elements of inputs by name,
    numpy arrays, which are built into the graph where an operator needs to know them. must_bind: build in all of
    `values`. reads_sizes: sizes that depend on data are read while the model runs, where the operator allows it,
    instead of asking for values.
    Raises ImportFailed for a damaged model, UnsupportedOp with the whole list of operators that are not known, and
    `ValueNeeded` when elements must be known that are not.
    """
    handlers = handlers_of(ctx.registry)
    require_supported(model, handlers)
    return _Importer(model, ctx, handlers, shapes or {}, values or {}, must_bind, reads_sizes).run()


@dataclass(slots=True)
class _Budget:
    """held: nodes that the file holds. nodes: written so far. depth: of what is being written."""

    held: int
    nodes: int = 0
    depth: int = 0

    def take(self) -> None:
        self.nodes += 1
        if self.nodes > MAX_WRITTEN + MAX_TIMES * self.held:
            raise ImportFailed(
                f"the model has {self.held} nodes, which become more than {self.nodes - 1} with loops and functions "
                "written out",
                hint="functions that call functions multiply; so do loops of a constant trip count whose values change "
                "their number of axes",
            )


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """A sub-graph that is an attribute of a node, with the scope that it may read.

    inputs, outputs: names in the sub-graph. proto: what the model says. importer: for `inline`.
    """

    proto: GraphProto
    scope: Scope
    importer: _Importer = field(repr=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the sub-graph's inputs."""
        return tuple(entry.name for entry in self.proto.input)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the sub-graph's outputs."""
        return tuple(entry.name for entry in self.proto.output)

    def inline(self, items: Sequence[Item], builder_scope: Scope | None = None) -> tuple[Item, ...]:
        """Write the sub-graph's nodes for these inputs where the node that owns it stands, and return its outputs.

        builder_scope: what outer names mean; None is the scope around the owning node.
        """
        scope = Scope(builder_scope or self.scope)
        if len(items) != len(self.proto.input):
            raise ImportFailed(f"sub-graph {self.proto.name!r} has {len(self.proto.input)} inputs, got {len(items)}")
        for entry, item in zip(self.proto.input, items, strict=True):
            scope.define(entry.name, item)
        return self.importer.graph(self.proto, scope)

    def write(self, emitter: Emitter, items: Sequence[Item], outer: Mapping[str, Item]) -> tuple[Item, ...]:
        """Write the sub-graph's nodes into a graph of their own, and return its outputs.

        emitter: writes into that graph. items: the sub-graph's inputs there. outer: what the names that it reads from
        around it are there.
        """
        scope = Scope(None)
        for name, item in outer.items():
            scope.define(name, item)
        importer = self.importer
        kept = importer.builder, importer.emitter
        importer.builder, importer.emitter = emitter.builder, emitter
        try:
            return self.inline(items, scope)
        finally:
            importer.builder, importer.emitter = kept

    def captures(self) -> tuple[str, ...]:
        """Names of outer values that the sub-graph reads, in order of their first use."""
        return tuple(_captured(self.proto))


class _Importer:
    def __init__(
        self,
        model: LoadedModel,
        ctx: CompileContext,
        handlers: Mapping[str, Rows],
        shapes: Mapping[str, Sequence[Dim] | ArgumentType],
        values: Mapping[str, Any],
        must_bind: bool,
        reads_sizes: bool,
    ) -> None:
        self.model = model
        self.handlers = handlers
        self.shapes = shapes
        self.values = values
        self.must_bind = must_bind
        parts = [model.proto.graph.node, *(function.node for function in model.functions.values())]
        self.budget = _Budget(sum(1 for nodes in parts for _ in every_node(nodes)))
        self.sizes = SizeNames()
        self.builder = GraphBuilder(ctx.registry.operators, identifier(model.proto.graph.name) or "main")
        self.given: dict[Value, Any] = {}
        contents = Contents(self.builder, self.given, hint=_HINT)
        self.emitter = Emitter(self.builder, contents, reads_sizes=reads_sizes, max_bytes=MAX_BYTES)
        self.opsets: Mapping[str, int] = model.opsets
        self.attributes: Mapping[str, AttributeProto] = {}

    def run(self) -> ImportedModel:
        proto = self.model.proto.graph
        scope = Scope(None)
        held = self._initializers(proto, scope)
        names = tuple(entry.name for entry in proto.input if entry.name not in held)
        require_names(names, shapes=self.shapes, values=self.values)
        by_value: dict[Value, str] = {}
        for entry in proto.input:
            if entry.name in held:
                continue
            given = self.shapes.get(entry.name)
            if isinstance(given, EmptySequence | Absent):
                # No argument of the graph: there is nothing to pass.
                scope.define(entry.name, given if isinstance(given, EmptySequence) else None)
                continue
            item = self._input(entry.name, value_type(entry.type, entry.name, self.sizes, given))
            scope.define(entry.name, item)
            by_value[item] = entry.name
        results = self._nodes_of(proto, scope)
        return self._finish(names, by_value, results)

    def _input(self, name: str, type_: ValueType) -> Value:
        value = self.builder.input(type_, identifier(name))
        self.emitter.known.inputs[value] = name
        if name in self.values and isinstance(type_, TensorType):
            self.given[value] = self.values[name]
        return value

    def _initializers(self, proto: GraphProto, scope: Scope) -> set[str]:
        """Define a graph's constants; the names of them."""
        held: set[str] = set()
        for tensor in proto.initializer:
            with self.builder.at(Loc(self.model.path, name=f"initializer {tensor.name}")):
                array = tensor_array(tensor, self.model.folder)
                scope.define(tensor.name, self.builder.constant(array, name=None))
            held.add(tensor.name)
        for sparse in proto.sparse_initializer:
            name = sparse.values.name
            scope.define(name, self.builder.constant(sparse_array(sparse, self.model.folder, MAX_SPARSE_BYTES)))
            held.add(name)
        return held

    # --- graphs --------------------------------------------------------------------------------------------------

    def graph(self, proto: GraphProto, scope: Scope) -> tuple[Item, ...]:
        """Write a sub-graph's nodes; its inputs are defined in `scope`."""
        self.budget.depth += 1
        if self.budget.depth > MAX_NESTING:
            raise ImportFailed(f"sub-graphs and functions are nested more than {MAX_NESTING} deep")
        try:
            self._initializers(proto, scope)
            return tuple(item for _, item in self._nodes_of(proto, scope))
        finally:
            self.budget.depth -= 1

    def _nodes_of(self, proto: GraphProto, scope: Scope) -> tuple[tuple[str, Item], ...]:
        for node in proto.node:
            self.node(node, scope)
        return tuple((entry.name, scope.find(entry.name, "an output of the graph")) for entry in proto.output)

    # --- nodes ---------------------------------------------------------------------------------------------------

    def node(self, node: NodeProto, scope: Scope) -> None:
        """Translate a node, and define its outputs in `scope`."""
        self.budget.take()
        loc = location(node, self.model.path)
        hint = "onnx.checker.check_model(model, full_check=True) may say more"
        with self.builder.at(loc), translating(loc, node.op_type, "inputs or attributes", hint):
            results = self._results(node, scope)
        if len(results) < sum(1 for name in node.output if name):
            raise ImportFailed(
                f"{node.op_type} has {len(node.output)} outputs here, but only {len(results)} are known", loc=loc
            )
        for name, item in zip(node.output, results, strict=False):
            if name:
                if item is None:
                    raise ImportFailed(f"output {name!r} of {node.op_type} is read, but not computed", loc=loc)
                scope.define(name, item)

    def _results(self, node: NodeProto, scope: Scope) -> Sequence[Item]:
        domain = canonical_domain(node.domain)
        opset = self.opsets.get(domain, self.model.opsets.get(domain, 0))
        inputs = [scope.find(name, f"an input of {node.op_type}") if name else None for name in node.input]
        own = self.model.functions.get((domain, node.op_type, node.overload))
        # A function is how a model spells an operator of somebody else's domain for those who do not know it.
        is_ours = own is None or (not node.overload and qualified_name(domain, node.op_type) not in table())
        found = find_handler(self.handlers, domain, node.op_type, opset) if is_ours else None
        node = with_bound_attributes(node, self.attributes)
        reader = AttributeReader(self.model.folder, lambda proto: Body(proto, scope, self))
        if found is not None:
            require_inputs(node, domain, opset)
            defaults = {} if own is None else {entry.name: reader.value(entry) for entry in own.attribute_proto}
            return self._handled(node, found, inputs, {**defaults, **reader.complete(node, domain, opset)})
        expansion = expansion_of(node, own, domain, opset, [_proto_type(item) for item in inputs], self.opsets)
        return self._expanded(node, expansion, inputs)

    def _handled(
        self,
        node: NodeProto,
        handler: Handler,
        inputs: Sequence[Item],
        attributes: Mapping[str, Any],
    ) -> Sequence[Item]:
        name = qualified_name(canonical_domain(node.domain), node.op_type)
        self.emitter.facts = NodeFacts(name, tuple(map(bool, node.output)))
        result = handler(self.emitter, *inputs, **attributes)
        return result if isinstance(result, tuple) else (result,)

    def _expanded(self, node: NodeProto, expansion: Expansion, inputs: Sequence[Item]) -> Sequence[Item]:
        """Write a function's body in a scope of its own."""
        self.budget.depth += 1
        if self.budget.depth > MAX_NESTING:
            raise ImportFailed(f"sub-graphs and functions are nested more than {MAX_NESTING} deep")
        scope = Scope(None)
        for number, name in enumerate(expansion.inputs):
            scope.define(name, inputs[number] if number < len(inputs) else None)
        outer = self.opsets, self.attributes
        self.opsets, self.attributes = expansion.opsets, expansion.attributes(node)
        try:
            for inner in expansion.nodes:
                self.node(inner, scope)
            return tuple(
                scope.find(name, "a function's output") if number < len(node.output) and node.output[number] else None
                for number, name in enumerate(expansion.outputs)
            )
        finally:
            self.opsets, self.attributes = outer
            self.budget.depth -= 1

    # --- the end -------------------------------------------------------------------------------------------------

    def _finish(
        self, names: tuple[str, ...], by_value: Mapping[Value, str], results: Sequence[tuple[str, Item]]
    ) -> ImportedModel:
        outputs: list[Value] = []
        for name, item in results:
            if not isinstance(item, Value):
                raise UnsupportedOp(f"output {name!r} is a sequence that is always empty, of no known type")
            outputs.append(item)
        built = self.builder.build(outputs)
        bound = self.emitter.known.used if not self.must_bind else set(self.given)
        arrays = {value: self.given[value] for value in built.inputs if value in bound}
        graph = with_constants(built, arrays)
        return ImportedModel(
            graph,
            names,
            tuple(by_value[value] for value in graph.inputs),
            tuple(by_value[value] for value in arrays),
            tuple(results),
        )


def _proto_type(item: Item) -> Any:
    return type_proto(item)


def _captured(proto: GraphProto) -> dict[str, None]:
    """Names that a graph reads and does not define, in order."""
    inner = {entry.name for entry in proto.input} | {tensor.name for tensor in proto.initializer}
    found: dict[str, None] = {}
    for node in proto.node:
        read = [name for name in node.input if name]
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                read += _captured(body)
        found.update((name, None) for name in read if name not in inner)
        inner.update(node.output)
    found.update((entry.name, None) for entry in proto.output if entry.name not in inner)
    return found
