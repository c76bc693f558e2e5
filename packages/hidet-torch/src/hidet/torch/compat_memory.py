"""Private names of torch by which AOTAutograd knows what arguments and results have in common in memory, where what it
believes is not so (torch 2.11 and 2.13). See `compat`.

Arguments that share memory, one of which is written, are parts of one argument to it, a base. A result that is a view
of an argument is made outside of the graph, by the same steps or by its place in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from itertools import combinations
from typing import Any

import torch
from hidet.torch import compat
from hidet.torch.fx_nodes import LIKE_FIRST, operator_name
from torch.utils._pytree import tree_leaves


@contextmanager
def correcting_memory_analysis(refuse: Callable[[str], None]) -> Iterator[None]:
    """A context for traces of AOTAutograd. refuse: called with the reason where what it makes of a graph is wrong."""
    with (
        _telling_overlaps(refuse),
        _correcting_functional_form(refuse),
        _guarding_places(),
        _rebuilding_views_of_bases(),
        _keeping_beginnings(),
    ):
        try:
            yield
        finally:  # Guards stay where the graph is left to torch.
            _name_symbols_of_guards()


def forgets_gradients(gm: torch.fx.GraphModule) -> bool:
    """Whether AOTAutograd returns a result of dynamo's graph without the gradient that it has in eager mode: what was
    detached from an argument, and then had values with gradients written to it. It makes such a result anew from the
    argument, to which those values belong as if they had none."""
    values = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
    arguments = [value for value in values if isinstance(value, torch.Tensor)]
    storages = {compat.storage_key(argument) for argument in arguments}
    # To autograd, what is not detached from an argument is a view of it, or of what that is a view of.
    known = {id(_viewed(argument)) for argument in arguments}
    results = (node.meta.get("example_value") for node in gm.graph.output_node().all_input_nodes)
    return any(
        isinstance(result, torch.Tensor)
        and result.requires_grad
        and id(_viewed(result)) not in known
        and compat.storage_key(result) in storages
        for result in results
    )


def _viewed(tensor: torch.Tensor) -> torch.Tensor:
    """What a tensor is a view of; itself where it is none."""
    base = compat.base(tensor)
    return tensor if base is None else base


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
def _guarding_places() -> Iterator[None]:
    """A context in which dynamo compiles anew where arguments that are parts of a base lie elsewhere in it, or in
    another one.

    Their places are numbers in the traced graph. Dynamo compares sizes and strides of arguments alone.
    """

    def guarding(known: Callable[..., Any]) -> Callable[..., Any]:
        def merge_view_inputs(config: Any, arguments: Sequence[Any], *others: Any, **options: Any) -> Any:
            result = known(config, arguments, *others, **options)
            sources = config.aot_autograd_arg_pos_to_source or ()
            for argument, source, entry in zip(arguments, sources, result[2] or (), strict=False):
                if source is not None and not isinstance(entry, int):
                    _guard_place(argument, source)
            return result

        return merge_view_inputs

    wrappers = import_module("torch._functorch._aot_autograd.runtime_wrappers")
    with _patched(wrappers, "merge_view_inputs", guarding):
        yield


def _guard_place(argument: torch.Tensor, source: Any) -> None:
    """Guard where an argument lies in its storage, and what it is a view of; without that, the storage's size.

    source: how dynamo finds the argument in a call.
    """
    sources = import_module("torch._dynamo.source")
    numbers = [(argument.storage_offset(), _calling(source, "storage_offset"))]
    base, place = argument._base, sources.AttrSource(source, "_base")
    if base is None:
        numbers.append((argument.untyped_storage().nbytes(), _calling(_calling(source, "untyped_storage"), "nbytes")))
    else:
        numbers.append((base.storage_offset(), _calling(place, "storage_offset")))
        for name, found in (("size", base.size()), ("stride", base.stride())):
            items = _calling(place, name)
            numbers += [(number, sources.GetItemSource(items, axis)) for axis, number in enumerate(found)]
    _guard(numbers)


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
def _correcting_functional_form(tell: Callable[[str], None]) -> Iterator[None]:
    """A context in which operators that overwrite become others with the same results, or `tell` is called.

    An operator in place gives a new tensor in the traced graph, which is row-major for many, as for `masked_fill`,
    whatever is written. Its views are made by their place in memory where sizes are symbolic, and would have other
    elements than eager mode's: what is written is copied into the argument, which keeps its strides.
    """
    guard_beginnings = cache(_guard_beginnings)

    def correcting(known: Callable[..., Any]) -> Callable[..., Any]:
        def __torch_dispatch__(
            self: Any, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            _tell_writes_to_windows(func, args, kwargs, tell)
            if _takes_a_place(func, args, kwargs):
                guard_beginnings()
                _tell_of_lost_places(args[0], tell)
            function = _out_of_place(func)
            if function is None or not isinstance(args[0], torch.Tensor) or _is_row_major(args[0]):
                result = known(self, func, types, args, kwargs)
                _mark_windows(func, args, result)
                return result
            with self:
                return args[0].copy_(function(*args, **kwargs))

        return __torch_dispatch__

    mode = import_module("torch._subclasses.functional_tensor").FunctionalTensorMode
    with _patched(mode, "__torch_dispatch__", correcting):
        yield


def _tell_writes_to_windows(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], tell: Callable[[str], None]
) -> None:
    """Tell of a write to windows (`unfold`) or to a view of them: the tensor that `unfold` was called on has zeros in
    the traced graph where no window is. Of a view whose elements meet (`as_strided`) the traced graph writes all, those
    that were not overwritten too."""
    for value in _written(func, args, kwargs):
        if any(is_unfold or _meet(*layout) for is_unfold, *layout in getattr(value, "_windows", ())):
            tell("a write to windows, views of unfold or as_strided, would overwrite other elements too")


def _mark_windows(func: Any, args: Sequence[Any], result: Any) -> None:
    """Let each view know of which windows it is one, and their sizes and strides."""
    is_unfold = func is torch.ops.aten.unfold.default
    makes = is_unfold or func is torch.ops.aten.as_strided.default
    known = getattr(args[0], "_windows", ()) if getattr(func, "is_view", False) else ()
    if known or makes:
        for view in tree_leaves(result):
            view._windows = (*known, (is_unfold, view.shape, view.stride())) if makes else known


def _meet(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether two elements of a tensor may be one in memory. What symbols decide is guarded."""
    traced = [stride if isinstance(stride, int) else compat.size_hint(stride) for stride in strides]
    if None in traced or any(isinstance(size, torch.SymInt) and compat.size_hint(size) is None for size in shape):
        return True
    last: Any = 0
    for _, stride, size in sorted(zip(traced, strides, shape, strict=True), key=lambda axis: axis[0]):  # type: ignore[arg-type, return-value]  # no None
        if size != 1:
            if not stride > last:
                return True
            last = last + (size - 1) * stride
    return False


_AT_PLACES = {"aten.as_strided.default": 3, "aten.as_strided_.default": 3, "aten.as_strided_scatter.default": 4}
"""Operators that take a place in memory by its number, and which argument that is."""


def _takes_a_place(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    number = _AT_PLACES.get(str(func))
    return number is not None and (args[number] if number < len(args) else kwargs.get("storage_offset")) is not None


def _guard_beginnings() -> None:
    """Guard where all arguments of the graph begin in their storage."""
    arguments = [entry for entry in _tracked() if isinstance(entry.fake, torch.Tensor)]
    _guard((entry.fake.storage_offset(), _calling(entry.source, "storage_offset")) for entry in arguments)


def _tell_of_lost_places(tensor: Any, tell: Callable[[str], None]) -> None:
    """Tell of a place in what was overwritten: in the traced graph that is a new tensor, which begins at 0."""
    stored = getattr(tensor, "elem", None)
    if stored is not None:
        # torch's stub knows neither name.
        functional: Any = torch
        functional._sync(tensor)
        begin = functional._from_functional_tensor(stored).storage_offset()
        if str(begin) != str(tensor.storage_offset()):
            tell("as_strided of what was overwritten, from a place in its storage on that the traced graph lacks")


@contextmanager
def _keeping_beginnings() -> Iterator[None]:
    """A context in which traced copies begin as far behind the beginning of their storage as eager mode's do.

    Torch's cache of traced results gives those that are no views from the beginning on, where the operators that write
    into a copy of their first operand keep its place. Places in memory (`as_strided`) go by that.
    """

    def keeping(known: Callable[..., Any]) -> Callable[..., Any]:
        def _cached_dispatch_impl(
            self: Any, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]
        ) -> Any:
            begin = args[0].storage_offset() if operator_name(func) in LIKE_FIRST else 0
            # A question whether a symbol is 0 would make a guard.
            is_moved = isinstance(begin, torch.SymInt) or begin
            return (self._dispatch_impl if is_moved else partial(known, self))(func, types, args, kwargs)

        return _cached_dispatch_impl

    traced = import_module("torch._subclasses.fake_tensor").FakeTensorMode
    with _patched(traced, "_cached_dispatch_impl", keeping):
        yield


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

    Torch knows it, and fails (`sources must not be empty`) where it is to write the guard; where guards have made a
    number of such a symbol, it writes none.
    """
    environment, tracked = _traced_sizes(), _tracked()
    if not tracked:
        return
    known = set().union(*(_symbols(entry.fake) for entry in tracked))
    for guard in environment.guards:
        if guard.expr.free_symbols <= known:
            continue
        named = environment.simplify(guard.expr).free_symbols
        for symbol in sorted((guard.expr.free_symbols | named) - known, key=str):
            known.add(symbol)
            for source in environment.var_to_sources.get(symbol, ())[:1]:
                if symbol in named:
                    hint = compat.expression_hint(environment, symbol)
                    _guard([(environment.create_symintnode(symbol, hint=hint, source=source), source)])
                elif (size := environment.simplify(symbol)).is_Integer and hasattr(source, "prop"):
                    _guard([(int(size), _property(source))])


def _traced_sizes() -> Any:
    """What dynamo knows of the sizes of the graph that it traces; None outside of it, and where it knows nothing."""
    context = torch._guards.TracingContext.try_get()
    return context and context.fake_mode and context.fake_mode.shape_env


def _tracked() -> list[Any]:
    """Tensors and numbers that dynamo guards, each with where a call has it; what is added is guarded too."""
    environment = _traced_sizes()
    return (environment and environment.tracked_fakes) or []


def _guard(numbers: Iterable[tuple[Any, Any]]) -> None:
    """Let dynamo compile anew where one of these numbers is another; each comes with where a call has it."""
    make = import_module("torch.fx.experimental.symbolic_shapes").TrackedFake
    _tracked().extend([make(number, source, None) for number, source in numbers])


def guards_places() -> bool:
    """Whether the graph that is traced is right for arguments at some places in memory alone. All other numbers without
    symbols are compared by dynamo by itself."""
    return any(isinstance(entry.fake, int) for entry in _tracked())


def _property(source: Any) -> Any:
    """Where a call has a property of a tensor, as something that dynamo guards, as in `_calling`."""
    found = _calling(source.base, source.prop.name.lower())
    return found if source.idx is None else import_module("torch._dynamo.source").GetItemSource(found, source.idx)


def _calling(source: Any, name: str) -> Any:
    """Where a call has what a method gives. Dynamo writes no guard on a number of whose source it knows that it is a
    property of a tensor, as it compares these itself; it does not compare all."""
    sources = import_module("torch._dynamo.source")
    return sources.CallFunctionNoArgsSource(sources.AttrSource(source, name))


def _symbols(traced: Any) -> set[Any]:
    """Those that are sizes, strides or the place of a tensor, or a number."""
    is_tensor = isinstance(traced, torch.Tensor)
    numbers = (*traced.shape, *traced.stride(), traced.storage_offset()) if is_tensor else (traced,)
    return {number.node.expr for number in numbers if isinstance(number, torch.SymInt)}
