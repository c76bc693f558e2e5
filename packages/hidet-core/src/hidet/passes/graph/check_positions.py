"""Putting checks before operators that read or write at computed positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hidet import dims, dtypes
from hidet.graph.attrs import Attrs
from hidet.graph.control import defined_sizes
from hidet.graph.graph import Constant, Graph, Node, Value
from hidet.graph.operator import Position
from hidet.graph.position import LOWEST
from hidet.passes.graph.fold_constants import FoldConstants
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.context import CompileContext

_CHECKS = ("require_positions", "assert_positions")


Emit = Callable[[GraphRewriter, Node, Value, Position, str], None]
"""Writes the check of a tensor of positions before a node; the text names operator and input."""


@dataclass(frozen=True)
class CheckPositions:
    """Positions are checked before anything reads or writes there, whatever the target is.

    Of a target in the host's memory by the host: each tensor of positions is reduced to its worst, which a
    `require_positions` node compares with the extent. Of others, for which the host does not wait, by the device: an
    `assert_positions` node looks at every position.
    """

    name: ClassVar[str] = "check-positions"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk."""
        graph = _with_sure_rows(graph)
        return _with_checks(graph, ctx, _require if ctx.target.device == "cpu" else _assert)


def _with_sure_rows(graph: Graph) -> Graph:
    """`graph` with loops that read the row of their iteration from tensors that have as many, which needs no check."""
    nodes = tuple(_reading_sure_rows(node) if node.op.name == "while" else node for node in graph.nodes)
    return graph if nodes == graph.nodes else replace(graph, nodes=nodes)


def _reading_sure_rows(node: Node) -> Node:
    count, body = node.attrs["count"], node.attrs["body"]
    if count is None:
        return node
    numbers = {body.inputs[0]}
    nodes: list[Node] = []
    for inner in body.nodes:
        if inner.op.name == "cast" and inner.values[0] in numbers and inner.outputs[0].tensor.dtype.is_int:
            numbers.add(inner.outputs[0])
        if inner.op.name == "index_select" and inner.values[1] in numbers:
            x = inner.values[0].tensor
            if dims.prove_le(count, x.shape[inner.attrs["axis"] % x.rank]) is True:
                inner = replace(inner, attrs=Attrs({**inner.attrs, "is_inside": True}))
        nodes.append(inner)
    if tuple(nodes) == body.nodes:
        return node
    return replace(node, attrs=Attrs({**node.attrs, "body": replace(body, nodes=tuple(nodes))}))


def _with_checks(graph: Graph, ctx: CompileContext, emit: Emit) -> Graph:
    """`graph` with its positions checked; equal checks are made once.

    Checks of the graph's own inputs come first, so that nothing is overwritten by a call that fails, but for those of
    which only a node tells the extent. What constants determine is checked here: only wrong positions keep their
    check, which fails where the operator would run.
    """
    if any(node.op.name in _CHECKS for node in graph.nodes):
        return graph
    wanted = _wanted(graph)
    if not wanted:
        return graph
    rewriter = GraphRewriter(graph, ctx.registry.operators)
    given = set(graph.inputs)
    done: set[tuple[Value, Position]] = set()
    told_later = {str(size) for node in graph.nodes for size in defined_sizes(node)}

    def may_be_first(source: Value, position: Position) -> bool:
        return source in given and not any(symbol.name in told_later for symbol in dims.symbols(position.extent))

    def check(node: Node, only_inputs: bool) -> None:
        for source, position in wanted[node]:
            if (source, position) not in done and (not only_inputs or may_be_first(source, position)):
                done.add((source, position))
                part = source
                if position.level is not None:
                    part = rewriter.emit("select", source, axis=-1, index=position.level, at=node)
                what = f"operator {node.op.name}: input {_input_name(node.op.inputs, position.input)}"
                emit(rewriter, node, part, position, what)

    for node in wanted:
        check(node, only_inputs=True)
    for node in graph.nodes:
        if node in wanted:
            check(node, only_inputs=False)
        rewriter.keep(node)
    return rewriter.finish(graph.outputs)


def _wanted(graph: Graph) -> dict[Node, list[tuple[Value, Position]]]:
    """The tensors of positions that may be wrong, by the nodes that read them."""
    read: list[tuple[Node, Value, Position]] = []
    for node in graph.nodes:
        if node.op.positions is None:
            continue
        types = [None if value is None else value.type for value in node.inputs]
        for position in node.op.positions(types, node.attrs):
            source = node.inputs[position.input]
            if source is not None:
                read.append((node, source, position))
    # Frameworks count positions up where nothing else gives them.
    known = FoldConstants().values(graph, [source for _, source, _ in read]) if read else {}
    found: dict[Node, list[tuple[Value, Position]]] = {}
    for node, source, position in read:
        if not _is_right(source, position, known.get(source)):
            found.setdefault(node, []).append((source, position))
    return found


def _is_right(source: Value, position: Position, constant: Constant | None) -> bool:
    """Whether positions are known to exist: there are none, or they are constants on an axis of known extent."""
    if 0 in source.tensor.shape:
        return True
    if constant is None or not isinstance(position.extent, int):
        return False
    data = constant.numpy() if position.level is None else constant.numpy()[..., position.level]
    lowest = -position.extent if position.wraps else 0
    return bool(data.min() >= lowest and data.max() < position.extent)


def _require(rewriter: GraphRewriter, node: Node, source: Value, position: Position, what: str) -> None:
    value = source
    if value.tensor.dtype != dtypes.i64:
        value = rewriter.emit("cast", value, dtype=dtypes.i64, at=node)
    wraps = position.wraps and source.tensor.dtype.is_signed
    if wraps:
        mask = rewriter.emit("shift_right", value, rewriter.constant(63, value), at=node)
    else:
        mask = rewriter.constant(LOWEST, value)
    folded = rewriter.emit("bitwise_xor", value, mask, at=node)
    worst = rewriter.emit("amax", folded, at=node)
    rewriter.emit(
        "require_positions",
        worst,
        extent=position.extent,
        count=dims.product(source.tensor.shape),
        wraps=wraps,
        what=what,
        at=node,
    )


def _assert(rewriter: GraphRewriter, node: Node, source: Value, position: Position, what: str) -> None:
    place = "" if node.loc is None else f" at {node.loc}"
    wraps = position.wraps and source.tensor.dtype.is_signed
    rewriter.emit("assert_positions", source, extent=position.extent, wraps=wraps, what=f"{what}{place}", at=node)


def _input_name(names: Sequence[str], number: int) -> str:
    """The operator's name of an input; those of a list are numbered."""
    last = len(names) - 1
    return f"{names[last][:-1]}[{number - last}]" if names[min(number, last)].endswith("*") else names[number]
