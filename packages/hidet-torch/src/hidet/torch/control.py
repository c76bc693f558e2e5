"""torch.cond and torch.while_loop: graphs inside the graph become branches and loops of core."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hidet import dtypes
from hidet.dims import DimExpr
from hidet.errors import UnsupportedOp
from hidet.graph import Graph, GraphBuilder, TensorType, Value
from hidet.graph.control import emit_while
from hidet.graph.types import same_shape
from hidet.torch.emitter import Scalar, TorchEmitter
from torch import fx

if TYPE_CHECKING:
    from hidet.torch.importer import Importer

Types = Sequence[TensorType | None]


def _cond(importer: Importer, node: fx.Node, types: Types) -> tuple[Value, ...]:
    """One of two graphs on the same operands."""
    predicate, *branches, operands = (_value(importer, argument) for argument in node.args)
    flag = _flag(importer.emitter, predicate)
    captured = [operand for operand in operands if isinstance(operand, Value)]
    then, otherwise = (
        _subgraph(importer, graph, name, operands) for graph, name in zip(branches, ("then", "otherwise"), strict=True)
    )
    results = [_required(type_) for type_ in types]
    sizes = dict.fromkeys(extent for type_ in results for extent in type_.shape if isinstance(extent, DimExpr))
    defines = [size for size in sizes if str(size) in importer.data_sizes.fresh([size])]
    attrs = {"then": then, "otherwise": otherwise, "types": results, "defines": defines}
    return importer.builder.emit_all("if", [flag, *captured], attrs)


def _while(importer: Importer, node: fx.Node, types: Types) -> tuple[Value, ...]:
    """A loop: a graph that tells whether to go on, and one that makes the next values."""
    condition, step, carried, further = (_value(importer, argument) for argument in node.args)
    for operand, type_ in zip(carried, types, strict=True):
        wanted = _required(type_)
        if not isinstance(operand, Value) or not same_shape(operand.tensor.shape, wanted.shape):
            raise UnsupportedOp("a loop that carries numbers, or tensors that change their shape")
    builder = importer.builder.nested("body")
    builder.input(TensorType(dtypes.i64, ()))
    state = [builder.input(_plain(value)) for value in carried]
    inner = _inputs(builder, further)
    after = _tensors(importer.nested(step, builder, [*state, *inner]))
    (more,) = importer.nested(condition, builder, [*after, *inner])
    body = builder.build([_flag(importer.emitter.nested(builder), more), *after])
    (first,) = importer.nested(condition, importer.builder, [*carried, *further])
    captured = [operand for operand in further if isinstance(operand, Value)]
    start = _flag(importer.emitter, first)
    return emit_while(importer.builder, body, condition=start, carried=carried, captures=captured, tests=True)


CONTROL: Mapping[str, Callable[[Importer, fx.Node, Types], tuple[Value, ...]]] = {
    "torch.ops.higher_order.cond": _cond,
    "torch.ops.higher_order.while_loop": _while,
}
"""Operators that hold graphs. Each raises a HidetError for what core cannot express, which then runs in torch."""


def _subgraph(importer: Importer, gm: fx.GraphModule, name: str, operands: Sequence[Any]) -> Graph:
    builder = importer.builder.nested(name)
    return builder.build(_tensors(importer.nested(gm, builder, _inputs(builder, operands))))


def _inputs(builder: GraphBuilder, operands: Sequence[Any]) -> list[Any]:
    """Tensors as inputs of a graph; sizes and numbers are known inside as they are outside."""
    return [builder.input(_plain(operand)) if isinstance(operand, Value) else operand for operand in operands]


def _plain(value: Value) -> TensorType:
    return TensorType(value.tensor.dtype, value.tensor.shape)


def _value(importer: Importer, argument: Any) -> Any:
    if isinstance(argument, tuple | list):
        return [_value(importer, item) for item in argument]
    return importer.values[argument] if isinstance(argument, fx.Node) else argument


def _flag(emitter: TorchEmitter, value: Any) -> Value:
    """A condition as a bool without axes."""
    if not isinstance(value, Value | Scalar | bool):
        raise UnsupportedOp(f"a condition that is a {type(value).__name__}, no tensor and no truth")
    flag = emitter.operand(value, dtypes.boolean)
    return emitter.reshape(flag, ())


def _tensors(items: Sequence[Any]) -> list[Value]:
    for item in items:
        if not isinstance(item, Value):
            raise UnsupportedOp("a branch or loop that returns a number")
    return list(items)


def _required(type_: TensorType | None) -> TensorType:
    if type_ is None:
        raise UnsupportedOp("a branch or loop that returns a number")
    return type_
