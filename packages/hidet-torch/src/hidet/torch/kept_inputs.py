"""Inputs that a training graph overwrites, and that its backward pass reads as they were.

AOTAutograd may keep an input for the backward pass and compute again what was made of it. Where the forward graph ends
by writing to that input (`aten.copy_`), the backward pass would read what was written: it gets a copy made before.
"""

from __future__ import annotations

import torch
from torch import fx


def keep_overwritten(forward: fx.GraphModule, first: int) -> None:
    """Let outputs from number `first` on be copies where they lie in inputs that the graph overwrites.

    forward: changed in place.
    """
    graph = forward.graph
    written = {node.args[0] for node in graph.nodes if node.target is torch.ops.aten.copy_.default}
    if not written:
        return
    (ending,) = graph.find_nodes(op="output")
    outputs = list(ending.args[0])
    copies: dict[fx.Node, fx.Node] = {}
    for number, node in enumerate(outputs):
        if number < first or not isinstance(node, fx.Node) or _base(node) not in written:
            continue
        if node not in copies:
            with graph.inserting_after(node):
                copy = copies[node] = graph.call_function(torch.ops.aten.clone.default, (node,))
            copy.meta = node.meta.copy()
            copy.meta["val"] = node.meta["val"].clone()
        outputs[number] = copies[node]
    if copies:
        ending.args = (tuple(outputs),)
        forward.recompile()


def _base(node: fx.Node) -> fx.Node:
    """The node in whose memory a chain of views lies; the node itself where it is no view."""
    while (schema := getattr(node.target, "_schema", None)) is not None:
        is_view = any(result.alias_info is not None for result in schema.returns)
        if not is_view or not node.args or not isinstance(node.args[0], fx.Node):
            break
        node = node.args[0]
    return node
