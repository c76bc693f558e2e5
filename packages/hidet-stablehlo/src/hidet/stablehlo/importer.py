"""From StableHLO modules to a graph of core operators.

Every operation is translated by the handler of its operator (`hidet.stablehlo.mapping`); calls of functions are written
out where they stand, and regions where their operations want them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hidet.context import CompileContext
from hidet.dims import Dim
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Contents, Handler, NodeFacts, SizeNames, identifier
from hidet.frontend.loops import NotRows
from hidet.frontend.translate import require_names, translating, with_constants
from hidet.graph import GraphBuilder, TensorType, Value
from hidet.graph.types import same_shape
from hidet.loc import Loc
from hidet.runtime.signature import ModelGraph
from hidet.stablehlo.calls import Model, shape_of_input, signature_of
from hidet.stablehlo.emitter import StableHloEmitter
from hidet.stablehlo.expansions import with_functions_restored
from hidet.stablehlo.items import Complex, Item, Rows
from hidet.stablehlo.mapping import handlers_of
from hidet.stablehlo.mapping.complex_numbers import on_complex
from hidet.stablehlo.mapping.elementwise import is_elementwise
from hidet.stablehlo.mapping.shape import constant_item
from hidet.stablehlo.program import MAX_NESTING, Block, Function, Operation, Ranked, place_of
from hidet.stablehlo.supported import require_supported

MAX_WRITTEN = 1 << 18
"""Operations of one import, those of functions and regions counted each time they are written out."""

MAX_BYTES = 1 << 40
"""Tensors that are larger are refused."""


def import_model(
    model: Model,
    ctx: CompileContext,
    *,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    values: Mapping[str, Any] | None = None,
) -> ModelGraph:
    """Translate a model.

    shapes: shapes of inputs by name in place of those that the model says. values: arrays that take the place of inputs
    by name. UnsupportedOp names all operators that cannot be compiled.
    """
    handlers = handlers_of(ctx.registry)
    require_supported(model.module, handlers)
    return _Importer(model, ctx, handlers).run(shapes or {}, dict(values or {}))


@dataclass(frozen=True, eq=False)
class Body:
    """A region of an operation, or a function that it names. outer: what the values around it are. importer: writes
    it."""

    block: Block
    outer: Mapping[int, Item]
    importer: _Importer = field(repr=False)

    @cached_property
    def free(self) -> tuple[int, ...]:
        """The values from around it that it reads."""
        return free_values(self.block)

    def number_outside(self, number: int) -> bool | int | float | None:
        """The number that a value around it is, if it is a constant of one element."""
        item = self.outer.get(number)
        constant = self.importer.builder.constants.get(item) if isinstance(item, Value) else None
        array = None if constant is None else constant.numpy()
        found: bool | int | float | None = array.item() if array is not None and array.size == 1 else None
        return found

    def captured(self) -> list[Item]:
        """What these are."""
        return [_item(self.outer, number) for number in self.free]

    def inline(self, items: Sequence[Item], captured: Sequence[Item] | None = None) -> tuple[Item, ...]:
        """Write the region's operations for these arguments where the operation stands, and return its results.

        captured: what stands for the values of `free`; None for these themselves.
        """
        inside = self.captured() if captured is None else captured
        return self.importer.run_block(self.block, items, dict(zip(self.free, inside, strict=True)))

    def on_elements(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """Write what the region does to numbers, for the elements of tensors at once."""
        with self.importer.on_elements():
            return self.inline(items)

    def write(
        self, emitter: StableHloEmitter, items: Sequence[Item], captured: Sequence[Item] | None = None
    ) -> tuple[Item, ...]:
        """The same in a graph of its own. items, captured: values there."""
        with self.importer.writing_with(emitter):
            return self.inline(items, captured)


def free_values(block: Block) -> tuple[int, ...]:
    """The values that a block reads and does not make, in the order in which it reads them."""
    own: set[int] = set()
    found: dict[int, None] = {}

    def visit(inner: Block) -> None:
        own.update(inner.arguments)
        for operation in inner.operations:
            found.update(dict.fromkeys(number for number in operation.operands if number not in own))
            for region in operation.regions:
                visit(region)
            own.update(operation.results)
        found.update(dict.fromkeys(number for number in inner.returned if number not in own))

    visit(block)
    return tuple(found)


class _Importer:
    def __init__(self, model: Model, ctx: CompileContext, handlers: Mapping[str, Handler]) -> None:
        self.model = model
        self.handlers = handlers
        self.builder = GraphBuilder(ctx.registry.operators, identifier(model.name) or "main")
        self.given: dict[Value, Any] = {}
        self.emitter = StableHloEmitter(
            self.builder, Contents(self.builder, self.given), reads_sizes=True, max_bytes=MAX_BYTES
        )
        self.written = 0
        self.depth = 0
        self.is_by_element = False
        self.restored: dict[int, Sequence[Operation]] = {}

    def run(self, shapes: Mapping[str, Sequence[Dim]], values: dict[str, Any]) -> ModelGraph:
        sizes = SizeNames()
        names = [entry.name for entry in self.model.inputs if entry.constant is None]
        require_names(names, shapes=shapes, values=values)
        items: list[Item] = []
        for entry in self.model.inputs:
            if entry.constant is not None:
                items.append(constant_item(self.emitter, entry.constant))
                continue
            if entry.dtype.is_complex:
                raise UnsupportedOp(f"input {entry.name!r} is {entry.dtype.name}: complex inputs are not imported")
            array = values.get(entry.name)
            given = shapes.get(entry.name) if array is None else array.shape
            shape = shape_of_input(entry, sizes, given)
            value = self.builder.input(TensorType(entry.dtype, shape), identifier(entry.name))
            if array is not None:
                if not same_shape(array.shape, shape):
                    raise ImportFailed(f"the value of input {entry.name!r} is of shape {array.shape}")
                self.given[value] = array.astype(entry.dtype.numpy(), copy=False)
            else:
                self.emitter.known.inputs[value] = entry.name
            items.append(value)
        results = self.call(self.model.main, items)
        outputs = []
        for number, item in enumerate(results):
            if not isinstance(item, Value):
                what = "complex" if isinstance(item, Complex) else "no tensor"
                raise UnsupportedOp(f"result {number} of the model is {what}")
            outputs.append(item)
        graph = with_constants(self.builder.build(outputs), self.given)
        return ModelGraph(graph, signature_of(self.model, set(values)))

    @contextmanager
    def writing_with(self, emitter: StableHloEmitter) -> Iterator[None]:
        """Nodes go into the graph of `emitter`."""
        kept = self.builder, self.emitter
        self.builder, self.emitter = emitter.builder, emitter
        try:
            yield
        finally:
            self.builder, self.emitter = kept

    @contextmanager
    def on_elements(self) -> Iterator[None]:
        """What operations say of their shapes is that of one element."""
        kept, self.is_by_element = self.is_by_element, True
        try:
            yield
        finally:
            self.is_by_element = kept

    def call(self, function: Function, items: Sequence[Item]) -> tuple[Item, ...]:
        """Write the operations of a function."""
        return self.run_block(function.block, items, {})

    def run_block(self, block: Block, items: Sequence[Item], outer: Mapping[int, Item]) -> tuple[Item, ...]:
        """Write the operations of a block. outer: what it reads of values around it."""
        if len(items) != len(block.arguments):
            raise ImportFailed(
                f"{self.emitter.operator} passes {len(items)} arguments, expected {len(block.arguments)}"
            )
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise ImportFailed(f"functions and regions contain each other more than {MAX_NESTING} deep")
        found: dict[int, Item] = {**outer, **dict(zip(block.arguments, items, strict=True))}
        try:
            for operation in self._operations(block):
                self.written += 1
                if self.written > MAX_WRITTEN:
                    raise ImportFailed(
                        f"the model becomes more than {MAX_WRITTEN} operations with its functions written out"
                    )
                results = self._operation(operation, found)
                if len(results) != len(operation.results):
                    raise ImportFailed(f"{operation.name} has {len(operation.results)} results, made {len(results)}")
                found.update(zip(operation.results, results, strict=True))
            return tuple(_item(found, number) for number in block.returned)
        finally:
            self.depth -= 1

    def _operations(self, block: Block) -> Sequence[Operation]:
        """Those of a block, which the module keeps, with functions that were taken apart in one piece."""
        if id(block) not in self.restored:
            self.restored[id(block)] = with_functions_restored(block).operations
        return self.restored[id(block)]

    def _operation(self, operation: Operation, found: Mapping[int, Item]) -> Sequence[Item]:
        loc = self._loc(operation)
        with self.builder.at(loc), translating(loc, operation.name):
            return self._results(operation, [_item(found, number) for number in operation.operands], found)

    def _loc(self, operation: Operation) -> Loc:
        place = place_of(operation, self.builder.loc)
        return place if place is not None else Loc(self.model.module.source, name=operation.name)

    def _results(self, operation: Operation, operands: list[Item], found: Mapping[int, Item]) -> Sequence[Item]:
        e = self.emitter
        e.facts, e.types = NodeFacts(operation.name), operation.types
        attributes = dict(operation.attributes)
        name = operation.name
        if name == "call":
            return self.call(self._function(attributes.get("callee")), operands)
        if name == "composite":
            composite = str(attributes.get("name"))
            name = f"composite {composite}"
            if name not in self.handlers:
                return self.call(self._function(attributes.get("decomposition")), operands)
            inner = attributes.get("composite_attributes")
            attributes = inner if isinstance(inner, dict) else {}
        if name == "custom_call":
            name = f"custom_call {attributes.get('call_target_name')}"
        handler = self.handlers.get(name)
        if handler is None:
            raise UnsupportedOp(f"{name} is not imported")
        if self.is_by_element and not is_elementwise(name):
            raise UnsupportedOp(f"{name} in a region that is computed element by element")
        if operation.regions:
            attributes["regions"] = tuple(Body(block, found, self) for block in operation.regions)
        if any(isinstance(item, Complex) for item in operands) or _is_complex(operation):
            handler = on_complex(name, handler)
        if any(isinstance(item, Rows) for item in operands) and name != "dynamic_update_slice":
            raise NotRows
        result = handler(e, *operands, **attributes)
        results = result if isinstance(result, tuple) else (result,)
        self._check(operation, results)
        return results

    def _function(self, name: Any) -> Function:
        text = getattr(name, "name", name)
        function = self.model.module.functions.get(text) if isinstance(text, str) else None
        if function is None:
            raise ImportFailed(f"the module has no function {text!r}, which is called")
        return function

    def _check(self, operation: Operation, results: Sequence[Item]) -> None:
        """Types of results are as the file says: a file may say anything."""
        if self.is_by_element:
            return
        for type_, item in zip(operation.types, results, strict=False):
            if not isinstance(item, Value) or not isinstance(type_, Ranked) or type_.dtype.is_complex:
                continue
            made = item.tensor
            fits = made.dtype == type_.dtype and made.rank == len(type_.shape)
            if fits:
                pairs = zip(made.shape, type_.shape, strict=True)
                fits = all(b is None or not isinstance(a, int) or a == b for a, b in pairs)
            if not fits:
                raise ImportFailed(f"{operation.name} makes {made}, and the file says {type_}")


def _is_complex(operation: Operation) -> bool:
    return any(isinstance(type_, Ranked) and type_.dtype.is_complex for type_ in operation.types)


def _item(found: Mapping[int, Item], number: int) -> Item:
    """What is known by now. ImportFailed for a value that nothing has made."""
    if number not in found:
        raise ImportFailed("a value is read before it is made")
    return found[number]
