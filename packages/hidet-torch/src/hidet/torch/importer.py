"""From a functional aten graph to a graph of core operators.

Every node is translated by the handler of its operator; a node without one, or one that core cannot express, becomes an
eager node that calls torch. Sizes are read from torch's own shape inference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from hidet import dtypes
from hidet.context import CompileContext
from hidet.dims import Dim, DimExpr, as_dim, symbols
from hidet.errors import HidetError, ImportFailed, PluginError, UnsupportedOp
from hidet.frontend import Handler, identifier
from hidet.graph import DimType, GraphBuilder, TensorType, Value
from hidet.graph.types import contiguous_strides, same_shape
from hidet.runtime.program import SymbolSource
from hidet.torch import compat
from hidet.torch.assemble import assemble
from hidet.torch.control import CONTROL
from hidet.torch.data_sizes import DataSizes
from hidet.torch.eager_nodes import EagerNode, NeedsTorch, refusal
from hidet.torch.effects import without_tokens
from hidet.torch.emitter import AtenFacts, Layout, TorchEmitter
from hidet.torch.fallback import eager_spec, handler_failure
from hidet.torch.fx_nodes import (
    ASSERTION,
    COMPLEX,
    ELEMENT,
    RANGE_CHECKS,
    EagerStrides,
    OnComplex,
    as_real,
    is_number,
    location,
    mutated_inputs,
    operator_name,
    read_results,
    tensor_of_caller,
    used_numbers,
)
from hidet.torch.guards import SizeTable
from hidet.torch.imported import ImportedGraph
from hidet.torch.kernels import lacks_kernel
from hidet.torch.mapping import handlers_of, handlers_of_floats
from hidet.torch.numbers import ComputedNumber, import_argument, import_check, import_number, import_result
from hidet.torch.outputs import PlanOutputs, plan_outputs
from hidet.torch.script_nodes import SCRIPT, emit_script
from hidet.torch.tensors import as_numpy, device_for, dtype_of
from torch import fx

# What a number that a node in torch returns is passed on as.
_NUMBERS = {torch.SymInt: dtypes.i64, torch.SymFloat: dtypes.f64, torch.SymBool: dtypes.boolean}

# Without a result of their own: checks that dynamo's guards have made already.
_IGNORED = frozenset({"aten._assert_tensor_metadata.default", *RANGE_CHECKS})


def import_fx(
    gm: fx.GraphModule,
    ctx: CompileContext,
    *,
    parameters: frozenset[int] = frozenset(),
    name: str = "main",
    bound: Mapping[int, torch.Tensor] | None = None,
    plan: PlanOutputs = plan_outputs,
    bounds: Mapping[str, tuple[int | None, int | None]] | None = None,
    device: torch.device | None = None,
) -> ImportedGraph:
    """Translate a graph of aten operators.

    gm: functional but for trailing `aten.copy_` to inputs; nodes carry `meta["val"]`. parameters: numbers of inputs
    that are weights. bound: data of inputs that become constants. plan: how results are returned. bounds: smallest and
    largest values of symbols, of a graph for which nobody else ensures what it asserts of sizes; None: dynamo's guards
    do. device: that tensors of `gm` are on; None for where torch has them
    for the target. Raises UnsupportedOp with the whole list under
    `strict`, ImportFailed for devices and values that a graph cannot hold.
    """
    return Importer(gm, ctx, parameters, name, bound or {}, plan, bounds, device).run()


class Importer:
    """Translates one graph; `nested` translates a graph inside it."""

    def __init__(
        self,
        gm: fx.GraphModule,
        ctx: CompileContext,
        parameters: frozenset[int],
        name: str,
        bound: Mapping[int, torch.Tensor],
        plan: PlanOutputs,
        bounds: Mapping[str, tuple[int | None, int | None]] | None,
        device: torch.device | None = None,
    ) -> None:
        self.gm = without_tokens(gm)
        self.ctx = ctx
        self.options = ctx.options
        self.device = device or device_for(ctx.target.device)
        self.sizes = SizeTable(bounds)
        self.builder = GraphBuilder(ctx.registry.operators, name)
        self.emitter = TorchEmitter(self.builder, str(self.device))
        self.handlers = handlers_of(ctx.registry)
        self.of_floats = handlers_of_floats()
        self.values: dict[fx.Node, Any] = {}
        self.arguments: list[Value | None] = []
        self.symbols: dict[str, SymbolSource] = {}
        self.mutations: dict[int, fx.Node] = {}
        self.eager: list[EagerNode] = []
        self.computed: list[ComputedNumber] = []
        self.scalars: set[int] = set()
        self.waiting: list[fx.Node] = []
        self.parameters = parameters
        self.bound = bound
        self.plan = plan
        self.is_guarded = bounds is None
        self.read, self.asserted = used_numbers(self.gm)
        self.operands: Sequence[Any] | None = None
        self.eager_strides = EagerStrides()

    @property
    def data_sizes(self) -> DataSizes:
        """Which sizes are defined so far."""
        return DataSizes(self.sizes, self.symbols, self.emitter)

    def run(self) -> ImportedGraph:
        """Translate the whole graph."""
        self.mutations = mutated_inputs(self.gm)
        output = self._walk()
        if self.options.strict and self.eager:
            raise refusal(self.eager)
        return self._finish(output)

    def nested(self, gm: fx.GraphModule, builder: GraphBuilder, operands: Sequence[Any]) -> list[Any]:
        """Write the nodes of a graph inside this one with `builder`, its inputs being `operands`; what it returns.

        UnsupportedOp for what only a whole graph can hold.
        """
        child = Importer(gm, self.ctx, frozenset(), builder.name, {}, self.plan, None, self.device)
        child.is_guarded = self.is_guarded
        child.sizes, child.symbols, child.eager, child.operands = self.sizes, self.symbols, self.eager, operands
        child.builder = builder
        child.emitter = self.emitter if builder is self.builder else self.emitter.nested(builder)
        child.emitter.data_sizes |= self.emitter.data_sizes
        random = child.emitter.random_nodes
        if mutated_inputs(gm):
            raise UnsupportedOp("a branch or loop that overwrites its inputs")
        returned = child._walk().args[0]
        if child.emitter.random_nodes != random:
            raise UnsupportedOp("random numbers inside of a branch or loop")
        return [child.resolve(item) for item in (returned if isinstance(returned, tuple | list) else (returned,))]

    def _walk(self) -> fx.Node:
        output: fx.Node | None = None
        for node in self.gm.graph.nodes:
            with self.builder.at(location(node)):
                if node.op != "placeholder":
                    self._number_arguments()
                if node.op == "placeholder":
                    self._placeholder(node)
                elif node.op == "get_attr":
                    self._attribute(node)
                elif node.op == "call_function":
                    self._call(node)
                elif node.op == "output":
                    output = node
                else:
                    raise ImportFailed(f"fx node {node.name} is a {node.op}: expected a graph of functions")
        if output is None:
            raise ImportFailed("the fx graph has no output node")
        return output

    # --- inputs and constants ------------------------------------------------------------------------------------

    def _placeholder(self, node: fx.Node) -> None:
        number = len(self.arguments)
        value = node.meta.get("val")
        if self.operands is not None:
            self.values[node] = self.operands[number]
            self.arguments.append(None)
            return
        if number in self.bound:
            self.arguments.append(None)
            self._constant(node, self.bound[number])
            return
        if isinstance(value, torch.Tensor):
            type_ = self._tensor_type(value, tensor_of_caller(node).dim(), f"input {node.name}")
            if value.device != self.device:
                self.scalars.add(number)
            # What is read as real is another tensor in every call.
            is_stable = number not in self.mutations and COMPLEX not in node.meta
            is_parameter = number in self.parameters and is_stable
            self.values[node] = self.builder.input(type_, identifier(node.name), is_parameter=is_parameter)
            for axis, extent in enumerate(type_.shape):
                self._note_symbol(extent, number, axis)
        elif isinstance(value, torch.SymInt):
            dim = self.sizes.dim(value)
            self.values[node] = dim
            if isinstance(dim, DimExpr):
                size = self.builder.input(DimType(dim), identifier(node.name))
                self.arguments.append(size)
                self.emitter.size_values[str(dim)] = size
                self._note_symbol(dim, number, None)
                return
        elif value is None or isinstance(value, int | float | bool | str):
            self.values[node] = value
        elif isinstance(value, torch.SymFloat | torch.SymBool):
            self.waiting.append(node)
        else:
            raise ImportFailed(
                f"input {node.name} is a {type(value).__name__}: expected a tensor or a number",
                hint="pass tensors and plain numbers to the compiled function",
            )
        self.arguments.append(self.values[node] if isinstance(value, torch.Tensor) else None)

    def _number_arguments(self) -> None:
        """What is computed from arguments comes after all of them."""
        for node in self.waiting:
            self.values[node] = import_argument(self, node)
        self.waiting = []

    def _note_symbol(self, dim: Dim, number: int, axis: int | None) -> None:
        """Remember an argument that gives the value of a symbol."""
        if isinstance(dim, DimExpr):
            (symbol, *others) = symbols(dim)
            if not others and dim == as_dim(symbol):
                self.symbols.setdefault(symbol.name, SymbolSource(symbol.name, number, axis))

    def _attribute(self, node: fx.Node) -> None:
        data: Any = self.gm
        for part in str(node.target).split("."):
            data = getattr(data, part)
        if isinstance(data, torch.Tensor):
            self._constant(node, data)
        else:
            self.values[node] = data

    def _constant(self, node: fx.Node, data: torch.Tensor) -> None:
        if compat.is_fake(data):
            raise NeedsTorch(f"AOTAutograd has put tensor {node.name} into the graph that it traced with, without data")
        self._require_dense(data, f"constant {node.name}")
        data = as_real(data) if COMPLEX in node.meta else data
        self.values[node] = self.builder.constant(as_numpy(data), name=identifier(node.name))

    def _tensor_type(self, tensor: torch.Tensor, rank: int, what: str) -> TensorType:
        # A CPU tensor of rank 0 is a number, which torch takes on every device.
        if tensor.device != self.device and not (tensor.device.type == "cpu" and rank == 0):
            raise ImportFailed(
                f"{what} is on device {tensor.device}, and the graph is compiled for {self.device}",
                hint="move the model and its inputs to one device",
            )
        self._require_dense(tensor, what)
        shape = self.sizes.shape(tensor.shape)
        strides = self.sizes.shape(tensor.stride())
        is_plain = same_shape(strides, contiguous_strides(shape))
        return TensorType(dtype_of(tensor.dtype), shape, None if is_plain else strides)

    @staticmethod
    def _require_dense(tensor: torch.Tensor, what: str) -> None:
        if tensor.layout != torch.strided:
            raise ImportFailed(
                f"{what} has layout {tensor.layout}: expected a dense tensor", hint="call to_dense() first"
            )

    # --- nodes ---------------------------------------------------------------------------------------------------

    def _call(self, node: fx.Node) -> None:
        name = operator_name(node.target)
        if name == "operator.getitem":
            source, number = node.args
            made = self.values[source][number]  # type: ignore[index]  # a node and an int
            if made is None and is_number(node):
                raise ImportFailed(f"nothing makes the number {node}, a result of {source}", loc=self.builder.loc)
            self.values[node] = made
            return
        if is_number(node):
            # What assertions alone have a use for is computed with them, apart from what has to be read in its place.
            if node in self.read or (node in self.asserted and name == ELEMENT):
                self.values[node] = import_number(self, node, name)
            return
        if name == ASSERTION:
            import_check(self, node)
            return
        if name == "aten.copy_.default" or name in _IGNORED:
            self.values[node] = self.resolve(node.args[0]) if name == "aten.copy_.default" else None
            return
        handler = self.handlers.get(name)
        types = self._result_types(node)
        fresh = self.data_sizes.fresh([extent for type_ in types if type_ is not None for extent in type_.shape])
        if self.options.eager_random and torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            self._call_eagerly(node, name, types, fresh, "option eager_random asks for torch's own random numbers")
        elif isinstance(node.target, OnComplex):
            self._call_eagerly(node, name, types, fresh, node.target.reason)
        elif handler in self.of_floats and lacks_kernel(node):
            self._call_eagerly(node, name, types, fresh, "torch has no kernel of it for these element types")
        elif handler is None and name not in CONTROL and not hasattr(node.target, SCRIPT):
            self._call_eagerly(node, name, types, fresh, "no core operator is mapped to it")
        else:
            eager = len(self.eager)
            try:
                if handler is None and name in CONTROL:
                    self.values[node] = CONTROL[name](self, node, types)
                elif handler is None:
                    self.values[node] = self._script(node, types)
                else:
                    self.values[node] = self._handle(node, handler, types, fresh)
                fresh = self.data_sizes.settled(fresh, types, self.values[node])
                self.data_sizes.require_defined(fresh, name)
            except (ImportFailed, PluginError):
                raise
            except Exception as error:  # noqa: BLE001 - a handler's mistake is named, and does not end the user's program
                reason = error.message if isinstance(error, HidetError) else handler_failure(error)
                del self.eager[eager:]
                self._call_eagerly(node, name, types, self.data_sizes.undefined(fresh), reason)
        self.data_sizes.note(fresh)

    def _handle(
        self, node: fx.Node, handler: Handler, types: tuple[TensorType | None, ...], fresh: Sequence[str]
    ) -> Any:
        found = read_results(node)
        read = tuple(number in found for number in range(len(types)))
        name = operator_name(node.target)
        self.emitter.facts = AtenFacts(name, read, types, lambda: self._stored(node.args[0]), fresh, self.sizes.traced)
        args = [self.resolve(argument) for argument in node.args]
        kwargs = {key: self.resolve(argument) for key, argument in node.kwargs.items()}
        try:
            value = handler(self.emitter, *args, **kwargs)
        except TypeError as error:
            # Most handlers take numbers as numbers; one that a caller may change is a size of the graph.
            varying = [number for number in compat.leaves((args, kwargs)) if isinstance(number, DimExpr)]
            if not varying:
                raise
            raise UnsupportedOp(f"the number {varying[0]}, which differs between calls, has to be known") from error
        if not self.emitter.has_inferred_rank(value):
            # What follows was traced with that rank.
            inferred = ", ".join(map(str, types))
            message = f"torch infers {inferred} for the results of {name}, which have another rank"
            raise NeedsTorch(message, loc=self.builder.loc)
        self.emitter.require_inferred(value)
        return self.emitter.as_inferred(value)

    def _script(self, node: fx.Node, types: tuple[TensorType | None, ...]) -> Any:
        arguments = [self.resolve(argument) for argument in node.args]
        made = emit_script(self.emitter, getattr(node.target, SCRIPT), arguments, types, self.device.type)
        return made if isinstance(node.meta.get("val"), tuple | list) else made[0]

    def _result_types(self, node: fx.Node) -> tuple[TensorType | None, ...]:
        """Types of the results. Sizes that depend on data are symbols like others."""
        value = node.meta.get("val")
        results = value if isinstance(value, tuple | list) else (value,)
        integers = compat.INTEGER_RESULTS.get(operator_name(node.target), ())
        return tuple(
            TensorType(dtypes.i64 if number in integers else dtype_of(v.dtype), self.sizes.shape(v.shape))
            if isinstance(v, torch.Tensor)
            else None
            for number, v in enumerate(results)
        )

    def _stored(self, argument: Any) -> Iterator[tuple[Value, Layout]]:
        """A tensor and what it is a view of, each with its strides and storage offset."""
        given = argument.meta["val"]
        key = compat.storage_key(given)
        if not self.eager_strides.are_known(argument):
            return
        while isinstance(argument, fx.Node):
            tensor = argument.meta.get("val")
            if isinstance(tensor, torch.Tensor):
                if tensor.dtype != given.dtype or compat.storage_key(tensor) != key:
                    return
                strides, offset = self.sizes.shape(tensor.stride()), self.sizes.dim(tensor.storage_offset())
                yield self.values[argument], (strides, offset)
            argument = argument.args[0] if argument.args else None

    def resolve(self, argument: Any) -> Any:
        """An argument of an fx node as handlers take it."""
        if isinstance(argument, fx.Node):
            if argument not in self.values and is_number(argument):
                self.values[argument] = import_number(self, argument, operator_name(argument.target))
            return self.values[argument]
        if isinstance(argument, torch.SymInt):
            return self.sizes.dim(argument)
        if isinstance(argument, list | tuple):
            return [self.resolve(item) for item in argument]
        return argument

    def _call_eagerly(
        self, node: fx.Node, name: str, types: tuple[TensorType | None, ...], fresh: Sequence[str], reason: str
    ) -> None:
        loc = self.builder.loc
        extents = [extent for type_ in types if type_ is not None for extent in type_.shape]
        defines = [extent for extent in dict.fromkeys(extents) if str(extent) in fresh]
        if len(defines) < len(fresh):
            raise UnsupportedOp(f"{name} makes a size that depends on data and is no extent of a result: {fresh}")
        # What nobody reads is left where it is: torch's shapes of such results need not be those it was traced with.
        read = read_results(node)
        value = node.meta.get("val")
        inferred = value if isinstance(value, tuple | list) else (value,)
        numbers = {n: _NUMBERS[type(v)] for n, v in enumerate(inferred) if n in read and type(v) in _NUMBERS}
        types = tuple(
            TensorType(numbers[n], ())
            if n in numbers
            else type_
            if n in read or (type_ is not None and self.data_sizes.fresh(type_.shape))
            else None
            for n, type_ in enumerate(types)
        )
        by_strides = self._defined_by_strides(node, types, [*fresh, *map(str, defines)])
        strides = tuple(by_strides.values())
        spec, inputs = eager_spec(node, name, types, self.values, self.emitter.size_value, defines, strides)
        # What a step makes lies row-major; a result of the graph in another layout is a copy.
        emit = self.builder.emit_all if defines or by_strides else self.emitter.emit_all
        made = emit(spec, inputs, {})
        if by_strides:
            # The layout of a result of the graph may be all that has a use for them.
            self.data_sizes.read_all(made[-1], list(by_strides), is_checked=True)
        outputs = iter(made)
        results: tuple[Any, ...] = tuple(None if type_ is None else next(outputs) for type_ in types)
        results = tuple(
            import_result(self, result, inferred[n])
            if n in numbers
            else inferred[n]
            if isinstance(inferred[n], int | float)
            else result
            for n, result in enumerate(results)
        )
        self.values[node] = results if isinstance(value, tuple | list) else results[0]
        self.eager.append(EagerNode(name, reason, loc))

    def _defined_by_strides(
        self, node: fx.Node, types: Sequence[TensorType | None], known: Sequence[str]
    ) -> dict[Dim, tuple[int, int]]:
        """Symbols that are strides of results in eager mode and nothing else, with the number of a result and its axis.

        known: names of those that extents of the results define.
        """
        value = node.meta.get("val")
        results = value if isinstance(value, tuple | list) else (value,)
        found: dict[Dim, tuple[int, int]] = {}
        for number, (result, type_) in enumerate(zip(results, types, strict=False)):
            for axis, stride in enumerate(result.stride() if type_ is not None and type_.rank else ()):
                size = self.sizes.dim(stride)
                if self.data_sizes.fresh([size]) == [str(size)] and str(size) not in known:
                    found.setdefault(size, (number, axis))
        left = self.data_sizes.undefined(list(map(str, found)))
        return {size: place for size, place in found.items() if str(size) in left}

    # --- the end -------------------------------------------------------------------------------------------------

    def _finish(self, output: fx.Node) -> ImportedGraph:
        returned = output.args[0]
        assert isinstance(returned, Sequence)
        placeholders = [node for node in self.gm.graph.nodes if node.op == "placeholder"]
        plan = self.plan(self.data_sizes, list(returned), self.resolve, placeholders, self.mutations)
        values, types = list(plan.values), dict(plan.types)
        mutated: list[tuple[Value, int]] = []
        for number, source in self.mutations.items():
            target = self.arguments[number]
            assert target is not None
            value = self._written(source, target, values)
            types[value] = target.tensor
            mutated.append((target, len(values)))
            values.append(value)
        drawn = self.emitter.random_inputs or ()
        graph = assemble(self.builder.build(values), types, mutated, last=drawn)
        numbers = {value: number for number, value in enumerate(self.arguments) if value is not None}
        random = [value for value in drawn if value in graph.inputs]
        inputs = tuple(numbers[value] for value in graph.inputs if value not in random)
        sources = tuple(self.symbols.values())
        complexes = {number for number, node in enumerate(placeholders) if COMPLEX in node.meta}
        return ImportedGraph(
            graph,
            inputs,
            len(self.arguments),
            sources,
            len(random),
            plan.outputs,
            tuple(self.eager),
            self.device,
            tuple(place for place, number in enumerate(inputs) if number in self.scalars),
            tuple(plan.symbols.items()),
            tuple(self.computed),
            tuple(place for place, number in enumerate(inputs) if number in complexes),
            tuple(plan.complex),
        )

    def _written(self, source: fx.Node, target: Value, outputs: Sequence[Value]) -> Value:
        """What `source` computes as a value of its own, which can be placed in the memory of an input."""
        value: Value = self.emitter.expand(
            self.emitter.cast(self.values[source], target.tensor.dtype), target.tensor.shape
        )
        is_own = self.emitter.owns_memory(value)
        return value if is_own and value not in outputs else self.emitter.emit("copy", value)
