"""How far results of every operator of a model are from torch's own, printed at the first call."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hidet.torch.fx_nodes import function_name
from torch import fx

Run = Callable[..., Any]


def reporting(
    gm: fx.GraphModule,
    run: Run,
    compile_graph: Callable[[fx.GraphModule, Sequence[Any]], Run],
    rounds_to_tf32: bool,
) -> Run:
    """`run` with a report at its first call, on the tensors of that call. compile_graph: what made `run` of `gm`.

    rounds_to_tf32: whether products or convolutions of f32 may round their factors to tf32 where a GPU computes them.
    """
    waiting = [True]

    def call(*arguments: Any) -> Any:
        if waiting:
            waiting.clear()
            print(correctness_report(gm, arguments, compile_graph, rounds_to_tf32))
        return run(*arguments)

    return call


def correctness_report(
    gm: fx.GraphModule,
    arguments: Sequence[Any],
    compile_graph: Callable[[fx.GraphModule, Sequence[Any]], Run],
    rounds_to_tf32: bool = False,
) -> str:
    """A table of what gives tensors, inputs, modules and functions: the largest |ours - torch's| / (|torch's| + 1) of
    each, with a mark where it is more than rounding explains. Weights are left out. The worst five stand at the end.

    rounds_to_tf32: as `reporting` takes it.
    """
    observed, nodes = _with_every_value(gm)
    with torch.no_grad():
        ours = compile_graph(observed, _copies(arguments))(*_copies(arguments))
        right = observed(*_copies(arguments))
    places, modules = _modules_of(nodes), _living_modules()
    rows: list[_Row] = []
    for number, (node, found, expected) in enumerate(zip(nodes, ours, right, strict=True)):
        place = places[number]
        is_inner = place is not None and place == (*places, None)[number + 1]
        if is_inner or _is_weight(node):
            continue
        kind = node.op if place is None else "call_module"
        shown = _function(node) if place is None else _module(place, modules)
        limit = _explained_error(expected, rounds_to_tf32)
        rows.append(_Row(str(len(rows)), kind, shown, _dtype(expected), _error(found, expected), limit))
    outputs = set(gm.graph.output_node().all_input_nodes)
    results = [(found, expected) for node, found, expected in zip(nodes, ours, right, strict=True) if node in outputs]
    if results:
        error = max(_error(*pair) for pair in results)
        limit = _explained_error(results[0][1], rounds_to_tf32)
        rows.append(_Row(str(len(rows)), "output", "", _dtype(results[0][1]), error, limit))
    worst = sorted((row for row in rows if row.kind != "output"), key=lambda row: -row.error)[:5]
    told = ", ".join(f"{row.number} ({row.error:.1e})" for row in worst if row.error)
    return _table(rows) + (f"\nworst: {told}" if told else "")


@dataclass(frozen=True, slots=True)
class _Row:
    """error: the largest of all elements. limit: up to which rounding may explain it."""

    number: str
    kind: str
    operator: str
    dtype: str
    error: float
    limit: float

    @property
    def cells(self) -> tuple[str, ...]:
        """As columns."""
        attention = "<------" if self.error > self.limit else ""
        return self.number, self.kind, self.operator, self.dtype, f"{self.error:.1e}", attention


_EXPLAINED = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 1e-1}
"""Errors up to which rounding may explain them."""


def _explained_error(tensor: torch.Tensor, rounds_to_tf32: bool) -> float:
    # Factors of tf32 keep as many bits as numbers of f16 have. On a processor nothing is rounded to it.
    kept = torch.float16 if rounds_to_tf32 and tensor.is_cuda and tensor.dtype == torch.float32 else tensor.dtype
    return _EXPLAINED.get(kept, _EXPLAINED[torch.float32])


def _table(rows: Sequence[_Row]) -> str:
    cells = [("", "kind", "operator", "dtype", "error", "attention"), *(row.cells for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


Place = tuple[str, str, type]
"""A module of torch: its key in the stack of a node, its path, and its class."""


def _modules_of(nodes: Sequence[fx.Node]) -> list[Place | None]:
    """The module of torch's own that each node is part of, None for other nodes."""
    found: list[Place | None] = []
    for node in nodes:
        stack = node.meta.get("nn_module_stack", {}) if node.op != "placeholder" else {}
        places = [(str(key), path, kind) for key, (path, kind) in stack.items() if isinstance(kind, type)]
        own = [place for place in places if _is_operator(place[2])]
        found.append(own[0] if own else None)
    return found


def _is_operator(kind: type) -> bool:
    return kind.__module__.startswith("torch.nn.modules.") and kind.__module__ != "torch.nn.modules.container"


def _living_modules() -> dict[str, torch.nn.Module]:
    """All modules by what stacks of nodes call them."""
    return {str(id(found)): found for found in gc.get_objects() if issubclass(type(found), torch.nn.Module)}


def _module(place: Place, modules: Mapping[str, torch.nn.Module]) -> str:
    """A module as torch prints it, without those in it; its class and path where it is not to be found."""
    key, path, kind = place
    module = modules.get(key.partition("@")[0])  # later calls of a module have a number behind
    if module is None or type(module) is not kind:
        return _short(f"{kind.__name__} {path}")
    return _short(f"{kind.__name__}({module.extra_repr()})")


def _is_weight(node: fx.Node) -> bool:
    value = node.meta.get("example_value", node.meta.get("val"))
    is_weight = isinstance(value, torch.nn.Parameter) or "_parameters_" in node.name or "_buffers_" in node.name
    return node.op == "get_attr" or (node.op == "placeholder" and is_weight)


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


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


def _function(node: fx.Node) -> str:
    """What a node calls: "operator.iadd", "torch.flatten"; nothing for an input."""
    if node.op == "placeholder":
        return ""
    if node.op == "call_method":
        return f"torch.Tensor.{node.target}"
    module = str(getattr(node.target, "__module__", None) or "torch").removeprefix("_")
    return _short(f"{'torch' if module.startswith('C') else module}.{function_name(node)}")


def _short(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


_WIDEST = 100


def _error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The harmonic mean of absolute and relative error, the largest of all elements."""
    if expected.numel() == 0:
        return 0.0
    wide = torch.complex128 if expected.is_complex() else torch.float64
    ours, right = found.to(wide), expected.to(wide)
    same = (ours == right) | (ours.isnan() & right.isnan())
    difference = torch.where(same, 0.0, (ours - right).abs() / (right.abs() + 1))
    return float(difference.max().item())
