"""torch's flex_attention: attention whose scores a function of the user's changes, and another one hides.

Both functions take places (batch, head, row, key) and tensors of the user's, and are traced for all places at once.
Where the function adds to a score what does not depend on it, attention is one operator with a mask; else it is taken
apart into products and a softmax, as where autograd records it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from hidet.torch import compat
from hidet.torch.fx_nodes import function_name
from torch import fx

Function = Callable[..., torch.Tensor]


def flex_attention(
    attend: Function,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Function,
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: Mapping[str, Any],
    score_mod_buffers: tuple[Any, ...] = (),
    mask_mod_buffers: tuple[Any, ...] = (),
) -> tuple[torch.Tensor, ...]:
    """Result, logsumexp and largest score of each row (the last two in base 2), by operators that are compiled.

    attend: `scaled_dot_product_attention`. The others are those of torch's operator: score_mod takes a score, four
    places and its buffers, the last item of block_mask four places and its buffers. Blocks only tell torch's own kernel
    what it need not compute.
    """
    kind = query.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        query, key, value = (tensor.to(dtype) if _follows(tensor) else tensor for tensor in (query, key, value))
    with torch.autocast(kind, enabled=False):
        parts = compat.flex_attention_parts(
            query, key, value, score_mod, block_mask, scale, kernel_options, score_mod_buffers, mask_mod_buffers
        )
        recorded = (query, key, value, *score_mod_buffers)
        is_recorded = torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in recorded)
        if is_recorded or not _adds_to_score(score_mod):
            return parts
        # What is not read of the parts is dropped with the rest of the dead code.
        rows = query.shape[0], query.shape[1], query.shape[2], key.shape[2]
        mask = _mask(rows, query, score_mod, score_mod_buffers, block_mask[-1], mask_mod_buffers)
        shared = (query.shape[0], *key.shape[1:]), (query.shape[0], *value.shape[1:])
        result = attend(
            query,
            *(tensor.expand(shape) for tensor, shape in zip((key, value), shared, strict=True)),
            attn_mask=mask,
            scale=scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return torch.empty_like(parts[0]).copy_(result), *parts[1:]


def _follows(tensor: torch.Tensor) -> bool:
    """Whether autocast changes the type of an operand of a product."""
    return tensor.is_floating_point() and tensor.dtype != torch.float64


def _mask(
    shape: Sequence[int],
    query: torch.Tensor,
    score_mod: Function,
    score_mod_buffers: tuple[Any, ...],
    mask_mod: Function,
    mask_mod_buffers: tuple[Any, ...],
) -> torch.Tensor | None:
    """What stands for both functions: booleans, or numbers to add; None where nothing is hidden or added."""
    places = [torch.arange(extent, device=query.device) for extent in shape]
    is_shown = None if _shows_all(mask_mod) else _at_all_places(mask_mod, 0)(*places, *mask_mod_buffers)
    if _is_unchanged(score_mod):
        return is_shown
    zero = torch.zeros((), dtype=torch.promote_types(query.dtype, torch.float32), device=query.device)
    added = _at_all_places(score_mod, 1)(zero, *places, *score_mod_buffers)
    return added if is_shown is None else torch.where(is_shown, added, -torch.inf)


def _at_all_places(function: Function, given: int) -> Function:
    """`function` of `given` arguments, four vectors of places and buffers: a result with an axis for each vector."""

    def over(inner: Function, axis: int) -> Function:
        def call(*arguments: Any) -> torch.Tensor:
            dims = tuple(0 if number == given + axis else None for number in range(len(arguments)))
            found: torch.Tensor = torch.vmap(inner, dims)(*arguments)
            return found

        return call

    for axis in (3, 2, 1, 0):
        function = over(function, axis)
    return function


def _adds_to_score(score_mod: Function) -> bool:
    """Whether a function is known to give its score plus what does not depend on the score, or -inf."""
    if not isinstance(score_mod, fx.GraphModule):
        return False
    score, *_ = (node for node in score_mod.graph.nodes if node.op == "placeholder")
    (output,) = (node for node in score_mod.graph.nodes if node.op == "output")
    dependent = {score}
    for node in score_mod.graph.nodes:
        if dependent & set(node.all_input_nodes):
            dependent.add(node)
    returned = output.args[0]
    return _adds(returned[0] if isinstance(returned, tuple | list) else returned, score, dependent)


def _adds(node: Any, score: fx.Node, dependent: set[fx.Node]) -> bool:
    if node is score:
        return True
    if not isinstance(node, fx.Node) or node not in dependent or node.kwargs:
        return False
    name = function_name(node).strip("_")
    used = [argument in dependent for argument in node.args]
    if name in ("add", "iadd", "radd") and sum(used) == 1:
        return _adds(node.args[used.index(True)], score, dependent)
    if name in ("sub", "isub") and used == [True, False]:
        return _adds(node.args[0], score, dependent)
    if name == "where" and used == [False, True, False]:
        return bool(node.args[2] == -torch.inf) and _adds(node.args[1], score, dependent)
    return False


def _is_unchanged(score_mod: Function) -> bool:
    """Whether a function gives its score."""
    assert isinstance(score_mod, fx.GraphModule)
    return not any(node.op in ("call_function", "call_method") for node in score_mod.graph.nodes)


def _shows_all(mask_mod: Function) -> bool:
    """Whether a function is torch's own for no mask: a new True."""
    if not isinstance(mask_mod, fx.GraphModule):
        return False
    made = [node for node in mask_mod.graph.nodes if node.op in ("call_function", "call_method")]
    return [function_name(node) for node in made] == ["new_ones"]
