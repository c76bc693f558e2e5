"""Graphs of symbolic tensors: `trace_from` finds them, `FlowGraph` shows, optimises and runs them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, overload

from hidet.api.flow.operation import Operation, call, device_of, type_of
from hidet.api.flow.text import flow_text, fused_text
from hidet.api.tensors.tensor import Tensor
from hidet.compiler.graphs import compile_graph
from hidet.context import Options, make_context_on, options_from
from hidet.errors import ImportFailed, ShapeError
from hidet.fusion.fuse import fuse
from hidet.graph.builder import GraphBuilder
from hidet.graph.graph import Graph, Value
from hidet.notebook import Shown
from hidet.passes.manager import run_graph_passes
from hidet.plugins.attributes import find, member
from hidet.plugins.host import load_registry

if TYPE_CHECKING:
    from hidet.context import CompileContext
    from hidet.runtime.compiled import CompiledGraph


FORWARD: ContextVar[Callable[[FlowGraph, Sequence[Any]], list[Any]] | None] = ContextVar("hidet_forward", default=None)
"""What runs graphs in the place of their code, for who looks at each operator; None lets them run."""


def import_flow_graph(model: FlowGraph, example_inputs: object, ctx: CompileContext) -> Graph:
    """The graph of a `FlowGraph`, for `hidet.compile`. ImportFailed with example inputs: it has its own."""
    if example_inputs is not None:
        raise ImportFailed("a FlowGraph was given with example inputs: it has inputs", hint="hidet.compile(flow_graph)")
    return model.graph


def device_of_flow_graph(model: FlowGraph, example_inputs: object) -> str:
    """The device of a `FlowGraph`'s tensors."""
    return model.device


def trace_from(tensor: Tensor | Sequence[Tensor], inputs: Tensor | Sequence[Tensor] | None = None) -> FlowGraph:
    """The graph that computes symbolic tensors.

    inputs: symbolic tensors in the order of the graph's arguments; None where there is a single one. Tensors that have
    elements become constants. ShapeError for a tensor that is not symbolic, or whose inputs are not all given.
    """
    outputs = [tensor] if isinstance(tensor, Tensor) else list(tensor)
    for output in outputs:
        if not output.is_symbolic():
            raise ShapeError("trace_from takes symbolic tensors", hint="hidet.symbol_like makes one like a tensor")
    nodes = _operations(outputs)
    free = list(dict.fromkeys(t for t in [*_read(nodes), *outputs] if t.is_symbolic() and t.trace is None))
    if inputs is None:
        if len(free) > 1:
            raise ShapeError(
                f"the graph has {len(free)} inputs, and nothing says their order", hint="trace_from(y, inputs=[a, b])"
            )
        return FlowGraph(free, outputs, nodes)
    given = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    missing = [found for found in free if found not in given]
    if missing:
        raise ShapeError(f"the graph reads a symbolic tensor that is no input: {str(missing[0]).splitlines()[0]}")
    return FlowGraph(given, outputs, nodes)


def _operations(outputs: Sequence[Tensor]) -> tuple[Operation, ...]:
    """What computes tensors, each operation behind those it needs."""
    found: dict[Operation, None] = {}
    stack = [tensor.trace[0] for tensor in outputs if tensor.trace is not None]
    while stack:
        operation = stack[-1]
        needed = [t.trace[0] for t in operation.inputs if t is not None and t.trace is not None]
        waiting = [other for other in needed if other not in found]
        if waiting:
            stack.extend(waiting)
        else:
            found.setdefault(stack.pop())
    return tuple(found)


def _read(nodes: Sequence[Operation]) -> list[Tensor]:
    return [tensor for node in nodes for tensor in node.inputs if tensor is not None]


class FlowGraph(Shown):
    """A graph of symbolic tensors; call it with tensors in the order of its inputs.

    inputs, outputs: symbolic tensors. nodes: operations, in an order in which they can run.
    """

    def __init__(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], nodes: Sequence[Operation]) -> None:
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.nodes = list(nodes)
        self._options: Options | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            # What plug-ins add.
            return member(self, "hidet.FlowGraph", name)

    @functools.cached_property
    def graph(self) -> Graph:
        """The graph in the compiler's representation."""
        builder = GraphBuilder(load_registry().operators, "main")
        known = {tensor: builder.input(type_of(tensor)) for tensor in self.inputs}

        def value(tensor: Tensor | None) -> Value | None:
            if tensor is None:
                return None
            if tensor not in known:
                known[tensor] = builder.constant(tensor.numpy())
            return known[tensor]

        for node in self.nodes:
            results = builder.emit_all(node.op, [value(tensor) for tensor in node.inputs], node.attrs)
            known.update(zip(node.outputs, results, strict=True))
        return builder.build([known[tensor] for tensor in self.outputs])

    @property
    def device(self) -> str:
        """The device of its tensors. LaunchError where they are on several."""
        return device_of([*self.inputs, *self.outputs, *_read(self.nodes)])

    def build(self) -> CompiledGraph:
        """The graph compiled for its device, with the options that hold now, or held at
        `optimize`; for what `hidet.compile` gives."""
        return compile_graph(self.graph, make_context_on(self.device, self._options))

    @functools.cached_property
    def _compiled(self) -> CompiledGraph:
        return self.build()

    @staticmethod
    def load(model_file: str) -> FlowGraph:
        """`hidet.load_graph`, of hidet-compat."""
        loaded: FlowGraph = find("hidet", "load_graph")(model_file)  # type: ignore[operator]  # a function
        return loaded

    def forward(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for inputs: hidet tensors, or tensors of another library, which gives the outputs its kind."""
        run = FORWARD.get()
        if run is not None:
            return run(self, inputs)
        if all(isinstance(tensor, Tensor) for tensor in inputs):
            return list(call(self._compiled, inputs))
        results: Any = self._compiled(*(t.storage if isinstance(t, Tensor) else t for t in inputs))
        return list(results) if isinstance(results, tuple) else [results]

    def __call__(self, *inputs: Any) -> Any:
        """The output, or a list of several. The first call compiles."""
        results = self.forward(inputs)
        return results[0] if len(results) == 1 else results

    def __str__(self) -> str:
        return flow_text(self)

    def __repr__(self) -> str:
        counts = f"{len(self.inputs)} inputs, {len(self.nodes)} operators, {len(self.outputs)} outputs"
        return f"<{type(self).__name__}: {counts}; print it to see them>"


class OptimizedFlowGraph(FlowGraph):
    """A graph that shows the kernels that the compiler makes of it. options: those that it is compiled with."""

    def __init__(self, graph: FlowGraph, options: Options) -> None:
        super().__init__(graph.inputs, graph.outputs, graph.nodes)
        self._options = options
        ctx = make_context_on(graph.device, options)
        self._tasks = fuse(run_graph_passes(graph.graph, ctx), ctx)

    def __str__(self) -> str:
        return fused_text(self._tasks, self.device)


@overload
def optimize(graph: FlowGraph) -> FlowGraph: ...
@overload
def optimize(graph: Graph) -> Graph: ...
def optimize(graph: FlowGraph | Graph) -> FlowGraph | Graph:
    """The graph as the compiler changes it, which running or compiling it does in any case: to look at it.

    Options and settings that hold now hold when it is compiled. What front-ends import (`hidet.onnx.from_onnx`) is
    changed for the CPU.
    """
    if isinstance(graph, Graph):
        return run_graph_passes(graph, make_context_on("cpu"))
    return OptimizedFlowGraph(graph, options_from(None))
