"""Private names of torch by which AOTAutograd knows what arguments and results have in common in memory, where what it
believes is not so (torch 2.11 and 2.13). See `compat`.

Arguments that share memory, one of which is written, are parts of one argument to it, a base. A result that is a view
of an argument is made outside of the graph, by the same steps or by its place in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import combinations
from typing import Any

import torch
from hidet.torch import compat
from torch.utils._pytree import tree_leaves


@contextmanager
def correcting_memory_analysis(refuse: Callable[[str], None]) -> Iterator[None]:
    """A context for traces of AOTAutograd. refuse: called with the reason where what it makes of a graph is wrong."""
    with (
        _telling_overlaps(refuse),
        _telling_writes_to_windows(refuse),
        _rebuilding_views_of_bases(),
        _keeping_strides(),
    ):
        try:
            yield
        finally:  # Guards stay where the graph is left to torch.
            _name_symbols_of_guards()


@contextmanager
def _patched(owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> Iterator[None]:
    """A context in which a function of torch's is what `make` makes of it."""
    known = getattr(owner, name)
    setattr(owner, name, make(known))
    try:
        yield
    finally:
        setattr(owner, name, known)


@contextmanager
def _telling_overlaps(tell: Callable[[str], None]) -> Iterator[None]:
    """A context in which `tell` is called when AOTAutograd is about to take arguments for apart that overlap.

    Of two matrices with equal strides torch asks whether rows of the second end before the next row of the first
    begins, and not whether they begin behind the end of this one: `x[::2]` and `x[::2][1:]` are apart to it. It looks
    for symbols among sizes, and finds none where guards have made numbers of all, whose tensors it refuses to read.
    """

    def telling(known: Callable[..., set[int]]) -> Callable[..., set[int]]:
        def compute_overlapping_tensors(tensors: list[torch.Tensor], symbolic: bool) -> set[int]:
            # torch's stub knows no such attribute.
            had_symbols = any(getattr(tensor, "_has_symbolic_sizes_strides", False) for tensor in tensors)
            found = known(tensors, symbolic=symbolic or had_symbols)
            apart = [tensor for number, tensor in enumerate(tensors) if number not in found]
            if any(_rows_meet(*sorted(pair, key=torch.Tensor.storage_offset)) for pair in combinations(apart, 2)):
                tell("AOTAutograd takes arguments for apart that overlap, one of which is overwritten")
            return found

        return compute_overlapping_tensors

    analysis = import_module("torch._functorch._aot_autograd.input_output_analysis")
    with _patched(analysis, "compute_overlapping_tensors", telling):
        yield


def _rows_meet(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether the second of two matrices with equal strides begins within a row of the first that is not its first."""
    if first.dim() != 2 or second.dim() != 2 or first.stride() != second.stride() or first.stride(1) != 1:
        return False
    if first.numel() == 0 or second.numel() == 0:
        return False
    behind = second.storage_offset() - first.storage_offset()
    row = behind // max(first.stride(0), 1)
    return bool(row < first.shape[0] and behind - row * first.stride(0) < first.shape[1])


@contextmanager
def _rebuilding_views_of_bases() -> Iterator[None]:
    """A context in which results that are views of a part of a base are made by their place in memory.

    Else the steps that led from the argument to the result are made on the base, which has another shape or begins
    elsewhere.
    """

    def rebuilding(known: Callable[..., Any]) -> Callable[..., Any]:
        def create_synthetic_base_metadata(metadata: Any, bases_of: Sequence[Any], *arguments: Any) -> Any:
            changed, others = known(metadata, bases_of, *arguments)
            bases = {entry[0] for entry in bases_of if not isinstance(entry, int)}
            for number, info in enumerate(changed.output_info):
                if info.output_type.name == "alias_of_input" and info.base_idx in bases:
                    changed.output_info[number] = replace(info, view_meta_sequence=None)
            return changed, others

        return create_synthetic_base_metadata

    wrappers = import_module("torch._functorch._aot_autograd.runtime_wrappers")
    with _patched(wrappers, "create_synthetic_base_metadata", rebuilding):
        yield


@contextmanager
def _telling_writes_to_windows(tell: Callable[[str], None]) -> Iterator[None]:
    """A context in which `tell` is called when something is written to what `unfold` gave, or to a view of it.

    In the traced graph the tensor that `unfold` was called on has zeros then where no window is.
    """

    def telling(known: Callable[..., Any]) -> Callable[..., Any]:
        def __torch_dispatch__(
            self: Any, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
        ) -> Any:
            result = known(self, func, types, args, kwargs)
            if any(getattr(value, "_is_of_windows", False) for value in _written(func, args, kwargs or {})):
                tell("a write to windows, the views of unfold, would overwrite what lies between them")
            if func is torch.ops.aten.unfold.default or (
                getattr(func, "is_view", False) and getattr(args[0], "_is_of_windows", False)
            ):
                for view in tree_leaves(result):
                    view._is_of_windows = True
            return result

        return __torch_dispatch__

    with _patched(_functional_mode(), "__torch_dispatch__", telling):
        yield


@contextmanager
def _keeping_strides() -> Iterator[None]:
    """A context in which what an operator in place writes keeps its strides in the traced graph.

    There the operator gives a new tensor, which is row-major for many, as for `masked_fill`, whatever is written. Its
    views are made by their place in memory where sizes are symbolic, and would have other elements than eager mode's.
    """

    def keeping(known: Callable[..., Any]) -> Callable[..., Any]:
        def __torch_dispatch__(
            self: Any, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
        ) -> Any:
            function = _out_of_place(func)
            if function is None or not isinstance(args[0], torch.Tensor) or _is_row_major(args[0]):
                return known(self, func, types, args, kwargs)
            with self:
                return args[0].copy_(function(*args, **(kwargs or {})))

        return __torch_dispatch__

    with _patched(_functional_mode(), "__torch_dispatch__", keeping):
        yield


def _functional_mode() -> Any:
    return import_module("torch._subclasses.functional_tensor").FunctionalTensorMode


@cache
def _out_of_place(func: Any) -> Any:
    """The operator that gives what `func` writes into its first argument; None where it keeps strides, as operators on
    elements do, and for what writes nothing, or into others."""
    name = str(func)
    if not isinstance(func, torch._ops.OpOverload) or not name.startswith("aten.") or {*func.tags} & _KEEPS_STRIDES:
        return None
    operator, _, overload = name.removeprefix("aten.").partition(".")
    numbers = [number for number, _ in _places_written(func)]
    if numbers != [0] or not operator.endswith("_") or operator == "copy_":
        return None
    return getattr(getattr(torch.ops.aten, operator[:-1], None), overload, None)


@cache
def _places_written(func: torch._ops.OpOverload) -> tuple[tuple[int, str], ...]:
    """Numbers and names of the arguments that an operator writes into."""
    arguments = enumerate(func._schema.arguments)
    return tuple((number, argument.name) for number, argument in arguments if argument.is_write)


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The tensors that a call writes into."""
    if not isinstance(func, torch._ops.OpOverload):
        return []
    places = _places_written(func)
    return tree_leaves([args[number] if number < len(args) else kwargs.get(name) for number, name in places])


_KEEPS_STRIDES = {torch.Tag.pointwise, torch.Tag.inplace_view}


def _is_row_major(tensor: torch.Tensor) -> bool:
    """Whether axes lie in order, as far as the sizes that are traced with tell."""
    # torch's stub knows whole numbers only.
    traced: tuple[Any, Any] = (tensor.shape, tensor.stride())
    shape, strides = (
        [number if isinstance(number, int) else compat.size_hint(number) for number in numbers] for numbers in traced
    )
    if None in shape or None in strides:
        return False
    counted = [stride for extent, stride in zip(shape, strides, strict=True) if extent != 1 and stride is not None]
    return counted == sorted(counted, reverse=True)


def _name_symbols_of_guards() -> None:
    """Let dynamo know where the symbols of guards come from that are sizes of no argument, but of a base of one.

    Torch knows it, and fails (`sources must not be empty`) where it is to write the guard.
    """
    context = torch._guards.TracingContext.try_get()
    environment: Any = context and context.fake_mode and context.fake_mode.shape_env
    tracked = environment and environment.tracked_fakes
    if not tracked:
        return
    known = set().union(*(_symbols(entry.fake) for entry in tracked))
    for guard in environment.guards:
        if guard.expr.free_symbols <= known:
            continue
        for symbol in sorted(environment.simplify(guard.expr).free_symbols - known, key=str):
            known.add(symbol)
            for source in environment.var_to_sources.get(symbol, ())[:1]:
                hint = compat.expression_hint(environment, symbol)
                size = environment.create_symintnode(symbol, hint=hint, source=source)
                tracked.append(type(tracked[0])(size, source, None))


def _symbols(traced: Any) -> set[Any]:
    """Those that are sizes, strides or the place of a tensor, or a number."""
    is_tensor = isinstance(traced, torch.Tensor)
    numbers = (*traced.shape, *traced.stride(), traced.storage_offset()) if is_tensor else (traced,)
    return {number.node.expr for number in numbers if isinstance(number, torch.SymInt)}
