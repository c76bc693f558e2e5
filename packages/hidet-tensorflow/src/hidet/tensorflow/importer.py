"""From TensorFlow functions to a graph of core operators.

Every node is translated by the handler of its operator (`hidet.tensorflow.mapping`); calls of functions are written out
where they stand, and variables become constants.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy

from hidet.context import CompileContext
from hidet.dims import Dim
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Contents, Handler, NodeFacts, SizeNames, identifier
from hidet.frontend.translate import require_names, translating, with_constants
from hidet.graph import GraphBuilder, Value
from hidet.loc import Loc
from hidet.runtime.signature import ModelGraph
from hidet.tensorflow.attributes import attributes_of
from hidet.tensorflow.emitter import TensorFlowEmitter
from hidet.tensorflow.fallback import EagerNode, fallback_warning, may_run_in_tensorflow, run_in_tensorflow
from hidet.tensorflow.functions import Function, Source
from hidet.tensorflow.items import Complex, Item
from hidet.tensorflow.loader import LoadedModel
from hidet.tensorflow.mapping import handlers_of
from hidet.tensorflow.mapping.signal import on_complex
from hidet.tensorflow.supported import require_supported
from hidet.tensorflow.value_types import input_type

MAX_NESTING = 64
"""Functions that call each other."""

MAX_WRITTEN = 1 << 18
"""Nodes of one import, those of functions counted at each call."""

MAX_BYTES = 1 << 40
"""Tensors that are larger are refused."""


def import_model(
    model: LoadedModel,
    ctx: CompileContext,
    *,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    values: Mapping[str, Any] | None = None,
) -> ModelGraph:
    """Translate a model.

    shapes: shapes of inputs by name in place of those that the model says. values: arrays that take the place of inputs
    by name. Nodes that cannot be compiled run in TensorFlow, with a FallbackWarning; under option `strict`, and for
    devices, they are refused: UnsupportedOp with the whole list. ShapeNeeded and ValueNeeded name inputs whose shape or
    elements must be known.
    """
    handlers = handlers_of(ctx.registry)
    # What TensorFlow runs, it runs on the host.
    is_strict = ctx.options.strict or ctx.target.device != "cpu"
    require_supported(model, handlers, is_strict)
    importer = _Importer(model, ctx, handlers, is_strict)
    made = importer.run(shapes or {}, values or {})
    if importer.eager:
        warnings.warn(fallback_warning(importer.eager), stacklevel=2)
    return made


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """A function that is an attribute of a node. importer: writes it."""

    function: Function
    importer: _Importer = field(repr=False)

    @property
    def unchanged(self) -> frozenset[int]:
        """Numbers of the arguments that the function returns, at the same place."""
        return self.function.unchanged

    @property
    def growing(self) -> frozenset[int]:
        """Numbers of the arguments that the function returns, at the same place, with 1 added."""
        return self.function.growing

    def inline(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """Write the function's nodes for these arguments where the node stands, and return its results."""
        return self.importer.call(self.function, items)

    def write(self, emitter: TensorFlowEmitter, items: Sequence[Item]) -> tuple[Item, ...]:
        """Write the function's nodes into a graph of their own, and return its results. items: arguments there."""
        with self.importer.writing_with(emitter):
            return self.importer.call(self.function, items)


class _Importer:
    def __init__(
        self, model: LoadedModel, ctx: CompileContext, handlers: Mapping[str, Handler], is_strict: bool
    ) -> None:
        self.model = model
        self.handlers = handlers
        self.is_strict = is_strict
        self.eager: list[EagerNode] = []
        self.builder = GraphBuilder(ctx.registry.operators, identifier(model.name) or "main")
        self.given: dict[Value, Any] = {}
        self.emitter = TensorFlowEmitter(
            self.builder, Contents(self.builder, self.given), reads_sizes=True, max_bytes=MAX_BYTES
        )
        self.written = 0
        self.depth = 0

    def run(self, shapes: Mapping[str, Sequence[Dim]], values: Mapping[str, Any]) -> ModelGraph:
        sizes = SizeNames()
        names = [entry.name for entry in self.model.inputs]
        require_names(names, shapes=shapes, values=values)
        items: list[Item] = []
        for entry in self.model.inputs:
            array = values.get(entry.name)
            given = shapes.get(entry.name) if array is None else array.shape
            type_ = input_type(entry.name, entry.dtype, entry.shape, sizes, entry.batch, given)
            value = self.builder.input(type_, identifier(entry.name))
            if array is not None:
                self.given[value] = array.astype(entry.dtype.numpy(), copy=False)
            else:
                self.emitter.known.inputs[value] = entry.name
            items.append(value)
        items += [
            self.builder.constant(item) if isinstance(item, numpy.ndarray) else item for item in self.model.captured
        ]
        results = self.call(self.model.main, items)
        outputs = []
        for name, item in zip(self.model.main.results, results, strict=True):
            if not isinstance(item, Value):
                what = "complex" if isinstance(item, Complex) else "no tensor"
                raise UnsupportedOp(f"result {name!r} of the model is {what}")
            outputs.append(item)
        graph = with_constants(self.builder.build(outputs), self.given)
        return ModelGraph(graph, self.model.signature_without(values.keys()))

    @contextmanager
    def writing_with(self, emitter: TensorFlowEmitter) -> Iterator[None]:
        """Nodes go into the graph of `emitter`."""
        kept = self.builder, self.emitter
        self.builder, self.emitter = emitter.builder, emitter
        try:
            yield
        finally:
            self.builder, self.emitter = kept

    def call(self, function: Function, items: Sequence[Item]) -> tuple[Item, ...]:
        """Write the nodes of a function that its results need."""
        if len(items) != len(function.arguments):
            raise ImportFailed(f"function {function.name!r} has {len(function.arguments)} arguments, got {len(items)}")
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise ImportFailed(f"functions call each other more than {MAX_NESTING} deep")
        found: dict[Source, Item] = {(name, 0): item for name, item in zip(function.arguments, items, strict=True)}
        try:
            for node, operands in function.steps:
                self.written += 1
                if self.written > MAX_WRITTEN:
                    raise ImportFailed(
                        f"the model becomes more than {MAX_WRITTEN} nodes with its functions written out"
                    )
                results = self._node(node, [_item(found, source) for source in operands], function)
                found.update(((node.name, number), item) for number, item in enumerate(results))
            return tuple(_item(found, source) for source in function.returned)
        finally:
            self.depth -= 1

    def _node(self, node: Any, operands: Sequence[Item], function: Function) -> Sequence[Item]:
        loc = Loc(None, name=f"{node.op} {node.name!r}")
        with self.builder.at(loc), translating(loc, node.op):
            return self._results(node, operands, function)

    def _results(self, node: Any, operands: Sequence[Item], function: Function) -> Sequence[Item]:
        if node.op in function.library:
            return self.call(function.library.function(node.op), operands)
        self.emitter.facts = NodeFacts(node.op)
        handler = self.handlers.get(node.op)
        if handler is None:
            return self._in_tensorflow(node, operands, function, "hidet does not know it")
        try:
            return self._handled(node, handler, operands, function)
        except UnsupportedOp as error:
            is_node = all(isinstance(item, Value) for item in operands) and may_run_in_tensorflow(node.op)
            if self.is_strict or not is_node:
                raise
            return self._in_tensorflow(node, operands, function, error.message)

    def _in_tensorflow(self, node: Any, operands: Sequence[Item], function: Function, reason: str) -> Sequence[Item]:
        results = run_in_tensorflow(self.emitter, node, operands, function)
        self.eager.append(EagerNode(node.op, node.name, reason))
        return results

    def _handled(self, node: Any, handler: Handler, operands: Sequence[Item], function: Function) -> Sequence[Item]:
        attributes = attributes_of(node, lambda name: Body(function.library.function(name), self))
        if any(isinstance(item, Complex) for item in operands):
            handler = on_complex(node.op, handler)
        result = handler(self.emitter, *operands, **attributes)
        return result if isinstance(result, tuple) else (result,)


def _item(found: Mapping[Source, Item], source: Source) -> Item:
    """What is known by now. ImportFailed for a result that its node does not have."""
    if source not in found:
        raise ImportFailed(f"result {source[1]} of node {source[0]!r} is read, which the node does not have")
    return found[source]
