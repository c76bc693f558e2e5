"""Gradients: when the backward graph is built, and how a forward without one still gives gradients.

User scripts often run a model in eval mode without `torch.no_grad()`. Their parameters require gradients that nobody
asks for, so the forward is compiled as an inference graph inside an autograd function. The first backward compiles the
joint graph, recomputes the forward with it, and from then on forward calls use it too.

The joint graph is compiled at once where waiting would be wrong or useless: in training mode (dropout, batch norm),
when an input that is no parameter requires a gradient, and when a forward cannot simply be repeated: random numbers,
inputs that are overwritten, results that share memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from hidet.torch import compat
from hidet.torch.fx_nodes import function_name
from hidet.torch.imported import ImportedGraph
from torch import fx

# Functions with a training mode, which is on when an argument of theirs is True.
_WITH_TRAINING_MODE = ("dropout", "batch_norm", "instance_norm", "rrelu")


class NeedsJointGraph(Exception):
    """An inference graph cannot stand for the forward of this model."""


def records_gradients(example_inputs: Sequence[Any]) -> bool:
    """Whether autograd would record this call."""
    if not torch.is_grad_enabled():
        return False
    return any(isinstance(value, torch.Tensor) and value.requires_grad for value in example_inputs)


def may_wait(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    """Whether nothing seen in dynamo's graph speaks against compiling the backward when it is asked for."""
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for node, value in zip(placeholders, example_inputs, strict=True):
        if isinstance(value, torch.Tensor) and value.requires_grad and not compat.is_static_placeholder(node):
            return False
    return not any(_needs_joint_graph(node) for node in gm.graph.nodes)


def _needs_joint_graph(node: fx.Node) -> bool:
    if node.op not in ("call_function", "call_method"):
        return False
    if node.target is compat.set_grad_enabled():
        return True
    if node.target is torch.amp.autocast_mode._enter_autocast and not compat.is_traced(node.target):
        # A backward that waits is made of this graph, traced once more.
        return True
    has_mode = any(part in function_name(node) for part in _WITH_TRAINING_MODE)
    return has_mode and (node.kwargs.get("training") is True or True in [a for a in node.args if isinstance(a, bool)])


def require_repeatable(imported: ImportedGraph) -> None:
    """NeedsJointGraph unless running the graph twice on the same arguments is the same as running it once."""
    numbers = Counter(plan.number for plan in imported.outputs if plan.source == "result")
    shares = any(plan.source == "argument" for plan in imported.outputs) or any(n > 1 for n in numbers.values())
    is_random = imported.random_inputs or any(node.op.is_random for node in imported.graph.nodes)
    has_effect = any(node.op.has_effect for node in imported.graph.nodes)
    if shares or is_random or has_effect or imported.graph.mutates:
        raise NeedsJointGraph


class WaitingGraph:
    """A forward compiled for inference, and the joint graph as soon as a backward has asked for it.

    inference: takes and returns what `gm` does. compile_joint: compiles `gm` with its backward; its result is called
    with gradients enabled.
    """

    def __init__(
        self, gm: fx.GraphModule, inference: Callable[..., Any], compile_joint: Callable[[], Callable[..., Any]]
    ) -> None:
        self.inference = inference
        self.differentiable = _differentiable_outputs(gm)
        self.is_read = _read_inputs(gm, self.differentiable)
        self._compile_joint = compile_joint
        self._joint: Callable[..., Any] | None = None

    def joint(self) -> Callable[..., Any]:
        """The joint graph, compiled at the first call."""
        if self._joint is None:
            self._joint = self._compile_joint()
        return self._joint

    def __call__(self, *inputs: Any) -> Any:
        """The results of `gm`, connected to autograd."""
        if self._joint is not None:
            return self._joint(*inputs)
        return _Forward.apply(self, *inputs)  # type: ignore[no-untyped-call]  # torch's own class has no annotations


def _differentiable_outputs(gm: fx.GraphModule) -> tuple[bool, ...]:
    """For each output of dynamo's graph, whether eager mode would give it a gradient function."""
    (output,) = [node for node in gm.graph.nodes if node.op == "output"]
    values = [item.meta.get("example_value") if isinstance(item, fx.Node) else item for item in output.args[0]]
    return tuple(isinstance(value, torch.Tensor) and value.requires_grad for value in values)


def _read_inputs(gm: fx.GraphModule, differentiable: Sequence[bool]) -> tuple[bool, ...]:
    """For each input of dynamo's graph, whether a result with a gradient may depend on it. Callers may change one that
    does not matter before they ask for gradients, as in eager mode, which saves nothing of it."""
    *nodes, output = gm.graph.nodes
    returned = zip(output.args[0], differentiable, strict=True)
    read = {item for item, has_gradient in returned if has_gradient and isinstance(item, fx.Node)}
    for node in reversed(nodes):
        if node in read or (node.op != "placeholder" and _may_write(node)):
            read.update(node.all_input_nodes)
    return tuple(node in read for node in nodes if node.op == "placeholder")


def _may_write(node: fx.Node) -> bool:
    """Whether something else than the result of a node may be different after it."""
    name = node.target if isinstance(node.target, str) else function_name(node)
    is_function = node.op in ("call_function", "call_method", "get_attr")
    return not is_function or name.endswith("_") or name in _WRITING or "out" in node.kwargs


_WRITING = (
    *("setitem", "iadd", "isub", "imul", "imatmul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor"),
)
"""Functions of Python's `operator` that write to their first argument."""


class _Forward(torch.autograd.Function):
    """Forward by the inference graph, backward by recomputation with the joint graph."""

    @staticmethod
    def forward(ctx: Any, waiting: WaitingGraph, *inputs: Any) -> Any:
        results = tuple(waiting.inference(*inputs))
        ctx.waiting = waiting
        saved = [isinstance(value, torch.Tensor) and read for value, read in zip(inputs, waiting.is_read, strict=True)]
        ctx.others = [
            None if is_saved else value.detach() if isinstance(value, torch.Tensor) else value
            for value, is_saved in zip(inputs, saved, strict=True)
        ]
        kind = next((value.device.type for value in inputs if isinstance(value, torch.Tensor)), "cpu")
        ctx.autocast = kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        ctx.save_for_backward(*[value for value, is_saved in zip(inputs, saved, strict=True) if is_saved])
        ctx.mark_non_differentiable(
            *[
                result
                for result, is_differentiable in zip(results, waiting.differentiable, strict=True)
                if isinstance(result, torch.Tensor) and not is_differentiable
            ]
        )
        return results

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        saved = iter(ctx.saved_tensors)
        kind, is_enabled, dtype = ctx.autocast
        leaves = [
            _leaf(next(saved), needed) if other is None else other
            for other, needed in zip(ctx.others, ctx.needs_input_grad[1:], strict=True)
        ]
        with torch.enable_grad(), torch.autocast(kind, dtype=dtype, enabled=is_enabled):
            results = ctx.waiting.joint()(*leaves)
        pairs = [
            (result, gradient)
            for result, gradient in zip(results, gradients, strict=True)
            if isinstance(result, torch.Tensor) and result.requires_grad and gradient is not None
        ]
        wanted = [value for value in leaves if isinstance(value, torch.Tensor) and value.requires_grad]
        found = iter(
            torch.autograd.grad(
                [result for result, _ in pairs], wanted, [gradient for _, gradient in pairs], allow_unused=True
            )
        )
        return None, *[
            next(found) if isinstance(value, torch.Tensor) and value.requires_grad else None for value in leaves
        ]


def _leaf(tensor: torch.Tensor, needs_gradient: bool) -> torch.Tensor:
    """The same data outside of the caller's autograd graph; parameters stay parameters, as dynamo guards it."""
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(tensor.detach(), requires_grad=needs_gradient)
    return tensor.detach().requires_grad_(needs_gradient)
