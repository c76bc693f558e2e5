"""What flow graphs of hidet 0.6 had: functions and properties of `hidet.FlowGraph`."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from hidet.api.flow import FlowGraph
from hidet.api.tensors.tensor import Tensor
from hidet.compat.cuda_graph import CudaGraph, zero_inputs
from hidet.compat.tensors import move_to
from hidet.compat.warn import warn_unread
from hidet.errors import LaunchError, UnsupportedOp


def dummy_inputs(graph: FlowGraph) -> list[Tensor]:
    """Tensors of zeros that fit. ShapeError where a size is symbolic."""
    return zero_inputs(graph)


def latency(graph: FlowGraph, warmup: int = 25, repeat: int = 100, dummy_inputs: Sequence[Any] | None = None) -> float:
    """The median of the milliseconds of a call. Results of a device are copied to the host, to wait for them."""
    given = zero_inputs(graph) if dummy_inputs is None else dummy_inputs
    for _ in range(warmup):
        graph.forward(given)
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        results = graph.forward(given)
        if graph.device != "cpu":
            results[0].numpy()
        seconds.append(time.perf_counter() - start)
    return 1e3 * median(seconds)


def cuda_graph(graph: FlowGraph) -> CudaGraph:
    """The graph as one launch. LaunchError for the host's, and ShapeError for symbolic sizes."""
    return CudaGraph(graph)


def hip_graph(graph: FlowGraph) -> CudaGraph:
    """UnsupportedOp: a target is a wheel, and none is for HIP."""
    raise UnsupportedOp("FlowGraph.hip_graph", hint="docs/targets.md says what a wheel for another GPU offers")


def _usage_count(graph: FlowGraph) -> Mapping[Tensor, int]:
    """How many inputs of operators, and outputs of the graph, each tensor is."""
    read = [tensor for node in graph.nodes for tensor in node.inputs if tensor is not None]
    return Counter([*read, *graph.outputs])


usage_count = property(_usage_count)


def _share_map(graph: FlowGraph) -> Mapping[int, int]:
    """Outputs that are inputs, by number: others have memory of their own."""
    places = {tensor: number for number, tensor in enumerate(graph.inputs)}
    return {number: places[tensor] for number, tensor in enumerate(graph.outputs) if tensor in places}


share_map = property(_share_map)


def draw(graph: FlowGraph, filename: str | os.PathLike[str]) -> None:
    """Write a drawing: Graphviz's text for a name that ends in .dot or .gv, else what its program `dot` makes of that.

    LaunchError where that is not installed.
    """
    path, text = Path(filename), dot_text(graph)
    if path.suffix in (".dot", ".gv"):
        path.write_text(text)
        return
    program = shutil.which("dot")
    if program is None:
        raise LaunchError(f"{path.name} is drawn by Graphviz, which is not installed", hint="a name that ends in .dot")
    format_ = path.suffix.removeprefix(".") or "pdf"
    subprocess.run([program, f"-T{format_}", "-o", path.with_suffix(f".{format_}")], input=text, text=True, check=True)


def dot_text(graph: FlowGraph) -> str:
    """A graph in Graphviz's language: a node an operator, an edge a tensor with its type."""
    lines = ["digraph {", "  node [shape=box];"]
    places: dict[Tensor, str] = {}
    for number, tensor in enumerate(graph.inputs):
        places[tensor] = f"input{number}"
        lines.append(f'  input{number} [label="input {number}", shape=ellipse];')
    for number, node in enumerate(graph.nodes):
        lines.append(f'  node{number} [label="{node.name}"];')
        for read in node.inputs:
            if read is not None and read in places:
                lines.append(_edge(places[read], f"node{number}", read))
        places.update(dict.fromkeys(node.outputs, f"node{number}"))
    for number, tensor in enumerate(graph.outputs):
        lines.append(f'  output{number} [label="output {number}", shape=ellipse];')
        lines.append(_edge(places[tensor], f"output{number}", tensor))
    return "\n".join([*lines, "}", ""])


def _edge(source: str, target: str, tensor: Tensor) -> str:
    return f'  {source} -> {target} [label="{tensor.dtype.name}[{", ".join(map(str, tensor.shape))}]"];'


def cuda_(graph: FlowGraph, device: int | str | None = None) -> FlowGraph:
    """Move the graph itself, and the tensors that it holds, to a GPU; None is the first."""
    for tensor in dict.fromkeys([*graph.inputs, *_held(graph), *graph.outputs]):
        move_to(tensor, device if isinstance(device, str) else f"cuda:{device or 0}")
    for name in ("graph", "_compiled"):
        vars(graph).pop(name, None)  # what was made of it on the other device
    return graph


def _held(graph: FlowGraph) -> list[Tensor]:
    return [tensor for node in graph.nodes for tensor in (*node.inputs, *node.outputs) if tensor is not None]


def vcuda_(graph: FlowGraph) -> FlowGraph:
    """Changes nothing, and warns: compiling copies no weights."""
    warn_unread("FlowGraph.vcuda_()", "weights are not copied to compile a graph; graph.cuda_() moves them")
    return graph


def vhip_(graph: FlowGraph) -> FlowGraph:
    """UnsupportedOp, as `hip_graph`."""
    raise UnsupportedOp("FlowGraph.vhip_", hint="docs/targets.md says what a wheel for another GPU offers")
