"""How far results of every operator of a model are from torch's own, printed at the first call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from hidet.torch.fx_nodes import function_name
from torch import fx

Run = Callable[..., Any]


def reporting(gm: fx.GraphModule, run: Run, compile_graph: Callable[[fx.GraphModule, Sequence[Any]], Run]) -> Run:
    """`run` with a report at its first call, on the tensors of that call. compile_graph: what made `run` of `gm`."""
    waiting = [True]

    def call(*arguments: Any) -> Any:
        if waiting:
            waiting.clear()
            print(correctness_report(gm, arguments, compile_graph))
        return run(*arguments)

    return call


def correctness_report(
    gm: fx.GraphModule, arguments: Sequence[Any], compile_graph: Callable[[fx.GraphModule, Sequence[Any]], Run]
) -> str:
    """A table of the nodes that give tensors: the largest |ours - torch's| / (|torch's| + 1) of each."""
    observed, nodes = _with_every_value(gm)
    with torch.no_grad():
        ours = compile_graph(observed, _copies(arguments))(*_copies(arguments))
        right = observed(*_copies(arguments))
    rows = [("", "kind", "operator", "dtype", "error")]
    for number, (node, found, expected) in enumerate(zip(nodes, ours, right, strict=True)):
        rows.append(
            (str(number), node.op, _shown(node), str(expected.dtype).removeprefix("torch."), _error(found, expected))
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _with_every_value(gm: fx.GraphModule) -> tuple[fx.GraphModule, list[fx.Node]]:
    """The graph with a copy of every tensor, as it is when it is made, as its results; and the nodes that make them."""
    graph = fx.Graph()
    kept: list[fx.Node] = []
    made: list[fx.Node] = []
    known: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        if node.op == "output":
            break
        known[node] = graph.node_copy(node, known.__getitem__)
        if isinstance(node.meta.get("example_value", node.meta.get("val")), torch.Tensor):
            kept.append(graph.call_method("clone", (known[node],)))
            made.append(node)
    graph.output(tuple(kept))
    return fx.GraphModule(gm, graph), made


def _copies(arguments: Sequence[Any]) -> list[Any]:
    """The arguments with memory of their own: graphs may write to them."""
    return [given.detach().clone() if isinstance(given, torch.Tensor) else given for given in arguments]


def _shown(node: fx.Node) -> str:
    if node.op == "placeholder":
        return str(node.target)
    arguments = ", ".join(str(argument) for argument in node.args)
    shown = f"{function_name(node)}({arguments})"
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def _error(found: torch.Tensor, expected: torch.Tensor) -> str:
    """The harmonic mean of absolute and relative error, the largest of all elements."""
    if expected.numel() == 0:
        return "0.0e+00"
    wide = torch.complex128 if expected.is_complex() else torch.float64
    ours, right = found.to(wide), expected.to(wide)
    same = (ours == right) | (ours.isnan() & right.isnan())
    difference = torch.where(same, 0.0, (ours - right).abs() / (right.abs() + 1))
    return f"{difference.max().item():.1e}"
