"""Activation checkpointing: what is computed again for the backward pass draws the numbers of the forward pass.

A random operator that a checkpoint has torch compute again is split in two before AOTAutograd parts forward and
backward: `draw_state`, which is kept, and `seeded`, which is a function of that state and may be computed twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hidet.torch import compat
from hidet.torch.fx_nodes import operator_name
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy


def draw_state(number: int) -> torch.Tensor:
    """Seed and offset for one operator, two i64. number: keeps the operators of a graph apart."""
    return torch.empty(2, dtype=torch.int64, device="cpu").random_()


def seeded(state: torch.Tensor, operator: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a random operator gives from the numbers of `state`; torch's generators are left as they are.

    This is what runs where core has no such operator; else it is compiled.
    """
    devices = [state.device] if state.device.type == "cuda" else []
    seed, offset = state.tolist()
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed ^ offset)
        return operator(*args, **kwargs)


def fix_random_numbers(joint: fx.GraphModule, *, keep: bool = False) -> None:
    """Give every random operator that a checkpoint computes again the same numbers both times.

    joint: forward and backward of one graph, changed in place. keep: keep the results instead, which leaves the
    operators torch's own.
    """
    found = [node for node in joint.graph.nodes if _draws_again(node)]
    for number, node in enumerate(found):
        if keep:
            # Operators with several results are kept result by result.
            for kept in (node, *(user for user in node.users if operator_name(user.target) == "operator.getitem")):
                kept.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        else:
            _split(joint.graph, node, number)
    if found:
        joint.recompile()


def _draws_again(node: fx.Node) -> bool:
    is_random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    return is_random and node.meta.get("recompute") in (
        CheckpointPolicy.MUST_RECOMPUTE,
        CheckpointPolicy.PREFER_RECOMPUTE,
    )


def _split(graph: fx.Graph, node: fx.Node, number: int) -> None:
    example = next(leaf for leaf in compat.leaves(node.meta["val"]) if isinstance(leaf, torch.Tensor))
    with graph.inserting_before(node):
        state = graph.call_function(draw_state, (number,))
        drawn = graph.call_function(seeded, (state, node.target, *node.args), node.kwargs)  # type: ignore[arg-type]  # a function
    drawn.meta = node.meta.copy()
    state.meta = {key: value for key, value in node.meta.items() if key in ("stack_trace", "nn_module_stack")}
    state.meta["val"] = example.new_empty(2, dtype=torch.int64)
    state.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    node.replace_all_uses_with(drawn)
    graph.erase_node(node)
