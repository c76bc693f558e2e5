"""One operator on tensors: run at once, or remembered by its symbolic results."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hidet import dtypes
from hidet.api.tensors import create
from hidet.api.tensors.tensor import Tensor, is_array
from hidet.compiler.graphs import compile_graph
from hidet.context import make_context_on, options_from
from hidet.errors import DTypeError, LaunchError, UnsupportedOp, suggestion
from hidet.graph.attrs import Attrs
from hidet.graph.builder import GraphBuilder, node_meaning
from hidet.graph.graph import Graph, Value
from hidet.graph.types import TensorType
from hidet.plugins.host import load_registry

if TYPE_CHECKING:
    from hidet.dtypes import DType
    from hidet.graph.operator import OperatorSpec
    from hidet.runtime.compiled import CompiledGraph


class Operation:
    """An operator applied to tensors of which some are symbolic; its results are what `Tensor.trace` leads from.

    inputs: None for an optional one that is absent.
    """

    def __init__(self, op: OperatorSpec, inputs: Sequence[Tensor | None], attrs: Attrs) -> None:
        self.op = op
        self.inputs = tuple(inputs)
        self.attrs = attrs
        given = [None if tensor is None else Value("x", type_of(tensor)) for tensor in inputs]
        _, results = node_meaning(op, given, attrs)
        device = device_of(inputs)
        self.outputs = tuple(
            Tensor(None, device, (result.shape, result.dtype), (self, number))
            for number, result in enumerate(results)
            if isinstance(result, TensorType)
        )

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.op.name

    def __repr__(self) -> str:
        return f"<{self.name} {self.attrs}>" if self.attrs else f"<{self.name}>"


def apply(name: str, inputs: Sequence[Any], attributes: Mapping[str, Any] | None = None) -> tuple[Tensor, ...]:
    """The results of an operator of the graph IR on tensors, numbers and None for absent inputs.

    Runs on the device of the tensors, compiled once for each kind of them; gives symbolic tensors where one of the
    inputs is. UnsupportedOp for an unknown operator, LaunchError for tensors of several devices.
    """
    operators = load_registry().operators
    op = operators.get(name)
    if op is None:
        raise UnsupportedOp(f"operator {name!r} is unknown", hint=suggestion(name, operators))
    given = as_tensors(inputs)
    op.check_inputs(len(given))
    return _applied(op, given, op.attrs(attributes or {}))


def apply_graph(graph: Graph, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of a graph for tensors as its inputs, one operator after the other: symbolic where what they read is.

    UnsupportedOp for operators on anything but tensors.
    """
    device = device_of(tensors)
    known = dict(zip(graph.inputs, tensors, strict=True))
    known.update((value, create.asarray(data.numpy(), device=device)) for value, data in graph.constants.items())
    for node in graph.nodes:
        others = [value for value in (*node.values, *node.outputs) if not isinstance(value.type, TensorType)]
        if others:
            raise UnsupportedOp(f"operator {node.op.name} on a {others[0].type}, which is no tensor", loc=node.loc)
        results = _applied(node.op, [None if value is None else known[value] for value in node.inputs], node.attrs)
        known.update(zip(node.outputs, results, strict=True))
    return [known[value] for value in graph.outputs]


def _applied(op: OperatorSpec, given: Sequence[Tensor | None], attrs: Attrs) -> tuple[Tensor, ...]:
    if any(tensor is not None and tensor.is_symbolic() for tensor in given):
        return Operation(op, given, attrs).outputs
    types = tuple(None if tensor is None else type_of(tensor) for tensor in given)
    return call(_program(op, attrs, types, device_of(given)), [tensor for tensor in given if tensor is not None])


def apply_one(name: str, *inputs: Any, **attributes: Any) -> Tensor:
    """`apply` of an operator with one result."""
    (result,) = apply(name, inputs, attributes)
    return result


def as_tensors(inputs: Sequence[Any]) -> list[Tensor | None]:
    """Tensors as they are; numbers as tensors of the type that they have beside the first tensor, on its device.

    A condition, as `where` has, says nothing about types where there are other tensors. Arrays of other libraries are
    tensors over their memory.
    """
    inputs = [create.asarray(x) if is_array(x) else x for x in inputs]
    given = [tensor for tensor in inputs if isinstance(tensor, Tensor)]
    first = min(given, key=lambda tensor: tensor.dtype.is_bool, default=None)
    return [x if x is None or isinstance(x, Tensor) else _number(x, first) for x in inputs]


def _number(given: Any, beside: Tensor | None) -> Tensor:
    if not isinstance(given, bool | int | float):
        raise DTypeError(f"an operator got a {type(given).__name__}", hint="hidet.asarray makes a tensor of an array")
    dtype = dtypes.f32 if beside is None else beside.dtype
    if not dtype.is_float and isinstance(given, float):
        dtype = dtypes.f32
    return create.full((), given, dtype, "cpu" if beside is None else beside.device)


def type_of(tensor: Tensor) -> TensorType:
    """The type of a tensor in graphs."""
    return TensorType(tensor.dtype, tuple(tensor.shape))


def device_of(given: Sequence[Tensor | None]) -> str:
    """The device that all tensors are on. LaunchError where they are on several."""
    devices = list(dict.fromkeys(tensor.device for tensor in given if tensor is not None))
    if len(devices) > 1:
        raise LaunchError(f"an operator got tensors on {' and '.join(devices)}", hint="move them to one device first")
    return devices[0] if devices else "cpu"


@functools.lru_cache(maxsize=1024)
def _program(op: OperatorSpec, attrs: Attrs, types: tuple[TensorType | None, ...], device: str) -> CompiledGraph:
    """A graph of one operator, compiled."""
    builder = GraphBuilder(load_registry().operators, op.name)
    values = [None if type_ is None else builder.input(type_) for type_ in types]
    # Nobody waits a minute for an operator, which runs as it is written whatever is set for graphs.
    ctx = make_context_on(device, replace(options_from({"search_space": 0}), plugin_options={}))
    return compile_graph(builder.build(builder.emit_all(op, values, attrs)), ctx)


def call(compiled: CompiledGraph, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The results of a compiled graph as tensors; it runs where the given ones are."""
    results: Any = compiled(*(tensor.storage for tensor in given))
    device = device_of(given)
    return tuple(Tensor(result, device) for result in (results if isinstance(results, tuple) else (results,)))


def number_dtype(given: Any) -> DType:
    """An element type from its name, or from what scripts and `hidet.float16` call it."""
    return dtypes.dtype(getattr(given, "type", given))
