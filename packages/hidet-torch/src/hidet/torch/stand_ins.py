"""Functions, methods and modules of torch that users write in operators of hidet.

What stands for one is called with tensors of hidet where it is traced, and its operators are put into the graph. In
between it is one operator of torch, `hidet::call`, which AOTAutograd and torch.export leave whole. Functions and
methods are found in graphs of torch.compile, modules in those that `hidet.frontend.from_torch` is given: dynamo takes
modules apart itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from hidet.api.flow import trace_from
from hidet.api.flow.operation import as_tensors
from hidet.api.tensors.create import asarray, symbol
from hidet.api.tensors.tensor import Tensor
from hidet.graph import Value
from hidet.graph.inline import inline
from hidet.torch import compat
from hidet.torch.emitter import TorchEmitter
from hidet.torch.tensors import dtype_of, torch_dtype
from torch import fx
from torch.utils import _pytree as pytree

Function = Callable[..., Any]

FUNCTIONS: dict[Any, Function] = {}
"""Functions of torch, or methods of its tensors, and what is called instead, with tensors of hidet."""
MODULES: dict[type[torch.nn.Module], Callable[[torch.nn.Module], Function]] = {}
"""Classes of modules, and what makes of a module the function that stands for it."""
REFUSED: set[Any] = set()
"""Functions and methods that are not compiled."""


def with_stand_ins(gm: fx.GraphModule) -> fx.GraphModule:
    """A graph of torch.compile with what stands for functions and methods in their places; itself where there is
    nothing to change. NotImplementedError names those that are refused."""
    if not FUNCTIONS and not REFUSED:
        return gm
    called = {node: _called(node) for node in gm.graph.nodes if node.op in ("call_function", "call_method")}
    refused = list(dict.fromkeys(_shown(target) for target in called.values() if target in REFUSED))
    if refused:
        raise NotImplementedError(
            f"these functions of torch are not supported: {', '.join(refused)}; "
            "register_function and register_method of hidet.graph.frontend.torch.registry say what they are made of"
        )
    if not any(target in FUNCTIONS for target in called.values()):
        return gm
    changed = copy.copy(gm)
    changed.graph = copy.deepcopy(gm.graph)
    for node in changed.graph.nodes:
        target: Any = _called(node) if node.op in ("call_function", "call_method") else None
        if target in FUNCTIONS:
            node.op, node.target = "call_function", partial(call_in_torch, FUNCTIONS[target], target)
    changed.recompile()
    return changed


def with_stand_in_modules(module: torch.nn.Module) -> torch.nn.Module:
    """A module with what stands for modules of registered classes in their places; the same where there is none."""
    make = MODULES.get(type(module))
    if make is not None:
        return _StandIn(make(module), module)
    parts = {name: part for name, part in module._modules.items() if part is not None}
    changed = {name: with_stand_in_modules(part) for name, part in parts.items()}
    if all(changed[name] is part for name, part in parts.items()):
        return module
    made = copy.copy(module)
    made._modules = {**module._modules, **changed}
    return made


class _StandIn(torch.nn.Module):
    """Calls what stands for a module."""

    def __init__(self, function: Function, module: torch.nn.Module) -> None:
        super().__init__()
        self._function = function
        self._original = module.forward  # no part of this one: its parameters are the function's business

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        return call_in_torch(self._function, self._original, *arguments, **keywords)


def call_in_torch(function: Function, original: Function, *arguments: Any, **keywords: Any) -> Any:
    """What a function of tensors of hidet gives for tensors of torch. Where autograd records them, the original of
    torch is called."""
    leaves, structure = pytree.tree_flatten((arguments, keywords))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return original(*arguments, **keywords)
    fixed = [None if isinstance(leaf, torch.Tensor) else _number(leaf) for leaf in leaves]
    places = [number for number, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def apply(given: Sequence[Tensor]) -> list[Tensor]:
        filled = list(fixed)
        for place, tensor in zip(places, given, strict=True):
            filled[place] = tensor
        args, named = pytree.tree_unflatten(filled, structure)
        with compat.real_tensors():
            results = function(*args, **named)
        listed = as_tensors(results if isinstance(results, list | tuple) else [results])
        apply.is_single = not isinstance(results, list | tuple)  # type: ignore[attr-defined]  # told to the caller
        return [tensor for tensor in listed if tensor is not None]

    number = _number_of((function, structure, *((type(value), value) for value in fixed)), apply)
    results = _operator()(tensors, number)
    return results[0] if _CALLS[number].is_single else tuple(results)  # type: ignore[attr-defined]  # it has run


_CALLS: list[Callable[[Sequence[Tensor]], list[Tensor]]] = []
"""What calls of the operator do, by the number that they are given."""
_NUMBERS: dict[object, int] = {}
"""The numbers of calls that were seen before: tracing a function again makes no further one."""


def _number_of(key: object, apply: Callable[[Sequence[Tensor]], list[Tensor]]) -> int:
    try:
        known = _NUMBERS.get(key)
    except TypeError:  # an argument has no hash
        known = None
    else:
        if known is None:
            _NUMBERS[key] = len(_CALLS)
    if known is None:
        _CALLS.append(apply)
    return len(_CALLS) - 1 if known is None else known


@cache
def _operator() -> Any:
    """The operator `hidet::call`."""
    library = compat.operator_library("hidet", "call")
    library.define("call(Tensor[] tensors, int number) -> Tensor[]")
    library.impl("call", _run, "CompositeExplicitAutograd")
    torch.library.register_fake("hidet::call", _outline, lib=library)
    return torch.ops.hidet.call.default


def _run(tensors: Sequence[torch.Tensor], number: int) -> list[torch.Tensor]:
    results = _CALLS[number]([asarray(tensor.contiguous()) for tensor in tensors])
    # Results of operators of torch have memory of their own.
    return [result.torch().clone() for result in results]


def _outline(tensors: Sequence[torch.Tensor], number: int) -> list[torch.Tensor]:
    device = str(tensors[0].device) if tensors else "cpu"
    results = _CALLS[number](_symbols([(t.shape, dtype_of(t.dtype)) for t in tensors], device))
    return [torch.empty(tuple(r.shape), dtype=torch_dtype(r.dtype.name), device=device) for r in results]


def emit_call(e: TorchEmitter, tensors: Sequence[Value], number: int) -> tuple[Value, ...]:
    """The operators of a call, in a graph."""
    symbols = _symbols([(value.tensor.shape, value.tensor.dtype) for value in tensors], e.place)
    results = _CALLS[number](symbols)
    return inline(e.builder, trace_from(results, symbols).graph, tensors)


def _symbols(kinds: Sequence[tuple[Sequence[Any], Any]], device: str) -> list[Tensor]:
    """Symbolic tensors on a device; sizes that torch knows as symbols are those of the example."""
    return [symbol([_number(extent) for extent in shape], dtype, device) for shape, dtype in kinds]


def _number(given: Any) -> Any:
    return int(given) if isinstance(given, torch.SymInt) else given


def _called(node: fx.Node) -> Any:
    if node.op == "call_method":
        return getattr(torch.Tensor, str(node.target), None)
    return node.target


def _shown(target: Any) -> str:
    owner = "torch.Tensor" if hasattr(torch.Tensor, getattr(target, "__name__", "")) and _is_method(target) else None
    return f"{owner or getattr(target, '__module__', None) or 'torch'}.{getattr(target, '__name__', target)}"


def _is_method(target: Any) -> bool:
    return getattr(torch.Tensor, getattr(target, "__name__", ""), None) is target
