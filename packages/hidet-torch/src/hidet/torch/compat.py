"""Private names of torch: this file and those called `compat_…` touch them, all else in this wheel documented ones.

Checked against torch 2.11 and 2.13; a name that moves is to be followed here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, partial
from importlib import import_module
from operator import attrgetter
from typing import Any

import torch
from torch import fx
from torch.autograd import profiler
from torch.utils._python_dispatch import TorchDispatchMode

INTEGER_RESULTS: Mapping[str, tuple[int, ...]] = {"aten._unique2.default": (1, 2)}
"""Numbers of results that are i64, although torch 2.11 infers the input's type for them."""

READ_ON_HOST: Mapping[str, tuple[tuple[int, ...], int]] = {
    "aten._scaled_dot_product_efficient_attention_backward.default": ((7, 8), 9),
    "aten._efficient_attention_backward.default": ((12, 13), 11),
}
"""CUDA operators that read arguments through pointers of the host, although shape inference says that they are on the
device: the numbers of these, and that of the argument for which nothing is read if it is 0 (seed, offset; dropout)."""

# The tensor whose memory a view is a part of, as autograd knows it; None for tensors that are no views.
base: Callable[[torch.Tensor], torch.Tensor | None] = attrgetter("_base")


DispatchMode: Any = TorchDispatchMode
"""What is asked about every call of an operator while it is active."""


def current_stream(device: int) -> int:
    """Handle of torch's current stream of a CUDA device: a tenth of the time of torch.cuda.current_stream."""
    return int(torch._C._cuda_getCurrentRawStream(device))


def stream_reader(device: int) -> Callable[[], int]:
    """A function that gives the handle of torch's current stream of a CUDA device.

    A torch without CUDA has no such streams, and says so when it is asked for one.
    """
    read: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", current_stream)
    return partial(read, device)


def tensor_guard(tensors: Sequence[torch.Tensor]) -> Callable[..., bool] | None:
    """A test of other tensors, passed one by one, for the types, dtypes, sizes, strides, devices and pending operations
    of these: what dynamo's guards do, in one call. None where this torch has it not."""
    try:
        guards = torch._C._dynamo.guards.TensorGuards(
            *tensors,
            dynamic_dims_sizes=[list(tensor.shape) for tensor in tensors],  # type: ignore[misc]  # torch's stub is wrong
            dynamic_dims_strides=[list(tensor.stride()) for tensor in tensors],  # type: ignore[misc]  # as above
        )
    except (AttributeError, TypeError, RuntimeError, SystemError):
        return None
    check: Callable[..., bool] = guards.check
    return check


def lie_at(tensors: Sequence[torch.Tensor], places: list[int]) -> bool:
    """Whether tensors lie at addresses. A torch with CUDA has a function for many of them."""
    if _LIE_AT is None:
        return list(map(torch.Tensor.data_ptr, tensors)) == places
    return bool(_LIE_AT(list(tensors), places, _numbers(len(places))))


_LIE_AT: Callable[..., bool] | None = getattr(torch._C, "_tensors_data_ptrs_at_indices_equal", None)


@cache
def _numbers(count: int) -> list[int]:
    return list(range(count))


def calling_wrapper() -> object | None:
    """The object, one a model, through which `torch.compile` calls a backend now; None where it does not.

    Nothing that a backend is given tells which model a graph is of.
    """
    frame = sys._getframe(1)
    for _ in range(_NEAR):
        found = frame.f_locals.get("self") if frame.f_code.co_name == "__call__" else None
        if isinstance(found, torch._TorchCompileWrapper):
            return found
        if _is_context(found):
            return _wrapper_behind(getattr(found, "callback", None))
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


_NEAR = 16
"""Frames between torch.compile and a backend, at most."""


def wrapper_of(model: object) -> object | None:
    """The object as of `calling_wrapper` of a module that torch.compile has returned; None for anything else."""
    eval_frame = sys.modules.get("torch._dynamo.eval_frame")
    if eval_frame is None or not isinstance(model, eval_frame.OptimizedModule):
        return None
    return _wrapper_behind(getattr(model.dynamo_ctx, "callback", None))


def _is_context(value: object) -> bool:
    """Whether a value is what torch.compile makes a function's compiled one with, which also reads what was kept."""
    eval_frame = sys.modules.get("torch._dynamo.eval_frame")
    return eval_frame is not None and isinstance(value, eval_frame.OptimizeContext)


def _wrapper_behind(found: object) -> object | None:
    while found is not None and not isinstance(found, torch._TorchCompileWrapper):
        # Before torch 2.13 another name.
        found = getattr(found, "_torchdynamo_orig_backend", None) or getattr(found, "_torchdynamo_orig_callable", None)
    return found


def asked_of_torch() -> tuple[str | None, str | None, Any]:
    """What the `torch.compile` that is running was given: the module of its backend's function, the mode, and options;
    None for what it was not."""
    wrapper: Any = calling_wrapper()
    if wrapper is None:
        return None, None, None
    return wrapper.compiler_fn.__module__, wrapper.kwargs.get("mode"), wrapper.kwargs.get("options")


def precompile_name(gm: fx.GraphModule) -> str | None:
    """What torch's caching precompile calls a graph of dynamo's; None where it keeps none, and for a part of one."""
    name: str | None = getattr(gm, "_backend_id", None)
    return name


def without_precompile() -> AbstractContextManager[object]:
    """A context in which `torch.compile` reads and keeps nothing for other processes: it finds that by the name of a
    function, and all graphs share one."""
    import torch._dynamo

    context: AbstractContextManager[object] = torch._dynamo.config.patch(caching_precompile=False)
    return context


def mark_boxed(function: object) -> None:
    """Tell torch that a callable takes its arguments in a list, which it may clear.

    torch copies attributes of the object, not of its class, to its wrappers.
    """
    function._boxed_call = True  # type: ignore[attr-defined]  # torch's own protocol


def with_code(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The module, with the code of its graph, which may be written when it is first called: dynamo does not trace that
    and, within a region of autocast, fails."""
    from torch.fx._lazy_graph_module import _LazyGraphModule

    _LazyGraphModule.force_recompile(gm)
    return gm


def is_traced(function: Callable[..., Any]) -> bool:
    """Whether dynamo looks into a function of torch. Others stand in its graphs as they are, and those that return no
    tensor break them: regions of autocast, once they are nodes of a graph, before torch 2.13."""
    from torch._dynamo import trace_rules

    name = f"{function.__module__}.{function.__name__}"
    return name not in trace_rules.torch_non_c_binding_in_graph_functions


def is_operator(target: object) -> bool:
    """Whether an fx target is an operator of torch.ops, whose name `str` gives."""
    return isinstance(target, torch._ops.OpOverload)


def run_aot(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    inference_compiler: Callable[..., Any],
    forward_compiler: Callable[..., Any],
    backward_compiler: Callable[..., Any],
    decompositions: Mapping[Any, Callable[..., Any]],
    before_partition: Callable[[fx.GraphModule], None],
    after_partition: Callable[[fx.GraphModule, int], None],
) -> Callable[..., Any]:
    """Functionalise and decompose a dynamo graph with AOTAutograd and hand the pieces to the compilers.

    Mutations of inputs stay in graphs as trailing `aten.copy_` nodes. before_partition: may change the joint graph of
    forward and backward before it is parted. after_partition: may change the forward graph, whose outputs from this
    number on are kept for the backward graph. The result takes what `gm` takes.
    """
    # torch's backend around this function imports all of Inductor to log what it traces.
    from torch._dynamo.utils import flatten_graph_inputs
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    disable: Any = torch.compiler.disable
    compile_simplified: Any = import_module("torch._functorch.aot_autograd").aot_module_simplified

    def partition(joint: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        before_partition(joint)
        forward, backward = min_cut_rematerialization_partition(joint, *args, **kwargs)
        after_partition(forward, kwargs["num_fwd_outputs"])
        return forward, backward

    def compile_backward(*arguments: Any) -> Any:
        # Dynamo may be active where gradients are computed, and is to trace neither the compiler nor what it makes.
        compile_untraced = disable(backward_compiler, reason="hidet's compiler is not traced")
        return disable(compile_untraced(*arguments), reason="hidet has compiled the backward graph")

    def compile_flat(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        compiled: Callable[..., Any] = compile_simplified(
            gm,
            inputs,
            fw_compiler=forward_compiler,
            bw_compiler=compile_backward,
            inference_compiler=inference_compiler,
            decompositions=dict(decompositions),
            partition_fn=partition,
            keep_inference_input_mutations=True,
        )
        return compiled

    if any(isinstance(value, list | tuple | dict) for value in example_inputs):
        compiled = flatten_graph_inputs(gm, example_inputs, compile_flat)
    else:
        compiled = compile_flat(gm, example_inputs)
    untraced: Callable[..., Any] = disable(compiled, reason="hidet has compiled the graph")
    return untraced


def boxed(run: Callable[..., Any]) -> Callable[..., Any]:
    """A callable as AOTAutograd takes it: with all arguments in one list, which it empties."""

    def run_boxed(args: list[Any]) -> Any:
        given = tuple(args)
        args.clear()
        return run(*given)

    mark_boxed(run_boxed)
    return run_boxed


def static_input_indices() -> frozenset[int]:
    """Which inputs of the graph being compiled are parameters or buffers of modules; empty outside of dynamo."""
    metadata = traced_metadata()
    return frozenset(() if metadata is None else metadata.static_input_indices)


def traced_metadata() -> Any:
    """What AOTAutograd knows of the arguments and results of the graph being compiled; None outside of it."""
    context = torch._guards.TracingContext.try_get()
    return None if context is None else context.fw_metadata


def first_saved_output() -> int | None:
    """Number of the first result of the forward graph being compiled that its backward graph reads; None if unknown."""
    metadata = traced_metadata()
    return None if metadata is None else int(metadata.num_forward)


def is_static_placeholder(node: fx.Node) -> bool:
    """Whether dynamo recognised this input of its graph as a parameter or buffer of a module."""
    return bool(node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type"))


def set_grad_enabled() -> Callable[..., Any]:
    """What dynamo's graphs call where the user switches recording of gradients on or off."""
    function: Callable[..., Any] = torch._C._set_grad_enabled
    return function


def calls_of_graphs() -> list[Callable[..., Any]]:
    """Operators that call a graph with the arguments behind it, marked for torch's own compiler."""
    return list(operators_of(("higher_order.invoke_quant", "higher_order.invoke_quant_packed")).values())


def flex_attention_operator() -> Callable[..., Any]:
    """What dynamo's graphs call for flex_attention."""
    from torch._higher_order_ops.flex_attention import flex_attention

    operator: Callable[..., Any] = flex_attention
    return operator


def flex_attention_parts(*arguments: Any) -> tuple[torch.Tensor, ...]:
    """What that operator gives, by products and a softmax of torch."""
    from torch._higher_order_ops.flex_attention import sdpa_dense

    parts: tuple[torch.Tensor, ...] = sdpa_dense(*arguments)
    return parts


def core_decompositions() -> dict[Any, Callable[..., Any]]:
    """torch's decompositions into core aten operators; of those that tracing takes apart anyway it lists none."""
    from torch import _decomp

    return dict(getattr(_decomp, "_core_aten_decompositions_post_autograd", _decomp.core_aten_decompositions)())


def operators_of(names: Iterable[str]) -> dict[str, Any]:
    """The operators of these names, "aten.add.Tensor" or "aten._foreach_add" with all its overloads, that this torch
    has: every release adds some."""
    found: dict[str, Any] = {}
    for name in names:
        with suppress(AttributeError):
            found[name] = attrgetter(name)(torch.ops)
    return found


def decompositions_of(names: Sequence[str]) -> dict[Any, Callable[..., Any]]:
    """torch's decompositions of operators, by their names; those that this torch has none of are left out."""
    from torch._decomp import decomposition_table

    operators = operators_of(names).values()
    return {operator: decomposition_table[operator] for operator in operators if operator in decomposition_table}


def symbolic_expression(size: torch.SymInt | torch.SymBool) -> tuple[Any, Any]:
    """The sympy expression of a symbolic integer or truth, and the ShapeEnv that its symbols belong to."""
    return size.node.expr, size.node.shape_env


def symbol_bounds(shape_env: Any, symbol: Any) -> tuple[int | None, int | None]:
    """Smallest and largest value of a symbol, None where there is none."""
    span = shape_env.var_to_range.get(symbol)
    return (None, None) if span is None else _ends(span)


def _ends(span: Any) -> tuple[int | None, int | None]:
    lower, upper = (int(end) if end.is_Integer else None for end in (span.lower, span.upper))
    return lower, upper


def expression_bounds(shape_env: Any, expression: Any) -> tuple[int | None, int | None]:
    """Smallest and largest value of an expression of whole numbers that torch can tell; None where it can tell none."""
    span = shape_env.bound_sympy(expression)
    return tuple(int(end) if end.is_Integer else None for end in (span.lower, span.upper))  # type: ignore[return-value]  # two


def expression_hint(shape_env: Any, expression: Any) -> int | None:
    """The value that an expression had when it was traced; None for one that depends on data or counts ragged rows."""
    values = getattr(shape_env, "backed_var_to_val", None)
    if values is None:
        values = shape_env.var_to_val
    hint = expression.xreplace({symbol: values[symbol] for symbol in expression.free_symbols if symbol in values})
    return int(hint) if hint.is_Integer else None


def is_guarded_one(shape_env: Any, expression: Any) -> bool:
    """Whether guards so far ensure that an expression of sizes is 1, as they do where torch has broadcast an axis."""
    sympy = import_module("sympy")

    if expression_hint(shape_env, expression) != 1:
        return False
    return bool(shape_env._maybe_evaluate_static(sympy.Eq(expression, 1)) == sympy.true)


def program_bounds(program: Any) -> dict[str, tuple[int | None, int | None]]:
    """Smallest and largest value of each symbol of an exported program, None where there is none."""
    return {str(symbol): _ends(span) for symbol, span in program.range_constraints.items()}


def export_errors() -> tuple[type[Exception], ...]:
    """What torch.export raises where it cannot do what its user asked for."""
    from torch._dynamo.exc import UserError
    from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

    return UserError, ConstraintViolationError


def size_hint(size: torch.SymInt) -> int | None:
    """The value that a size had when it was traced; None for one that depends on data."""
    expression, shape_env = symbolic_expression(size)
    return expression_hint(shape_env, expression)


def known_divisible(shape_env: Any) -> list[tuple[Any, int]]:
    """Pairs (expression, divisor) that guards ensure."""
    found = []
    for remainder in shape_env.divisible:
        base, divisor = remainder.args
        if divisor.is_Integer:
            found.append((base, int(divisor)))
    return found


def is_known_nonzero(shape_env: Any, symbol: Any) -> bool:
    """Whether a guard ensures that a symbol is not 0."""
    guarded = (guard.expr for guard in shape_env.guards)
    return any(type(expr).__name__ == "Unequality" and set(expr.args) == {symbol, 0} for expr in guarded)


def storage_key(tensor: torch.Tensor) -> int:
    """A number that tensors share exactly when they lie in one storage; works for fake tensors."""
    from torch.multiprocessing.reductions import StorageWeakRef

    # The class has no annotations.
    make: Callable[..., Any] = StorageWeakRef
    key: int = make(tensor.untyped_storage()).cdata
    return key


def leaves(tree: Any) -> list[Any]:
    """What containers of any class that torch can take apart hold, however deep."""
    from torch.utils._pytree import tree_leaves

    found: list[Any] = tree_leaves(tree)
    return found


def map_tensors(function: Callable[[torch.Tensor], torch.Tensor], tree: Any) -> Any:
    """The same containers, of any class that torch can take apart, with other tensors in them."""
    from torch.utils._pytree import tree_map_only

    return tree_map_only(torch.Tensor, function, tree)


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """The same containers, of any class that torch can take apart, with other things in them."""
    from torch.utils._pytree import tree_map

    return tree_map(function, tree)


def is_fake(value: object) -> bool:
    """Whether a tensor has a type and layout but no data."""
    from torch._subclasses import FakeTensor

    return isinstance(value, FakeTensor)


def fake_mode_of(values: Sequence[Any]) -> AbstractContextManager[object]:
    """The context in which the fake tensors among `values` were made."""
    mode: AbstractContextManager[object] = next(value.fake_mode for value in values if is_fake(value))
    return mode


def shows_memory(operator: Any) -> bool:
    """Whether an operator returns its argument's memory under another shape."""
    returns = operator._schema.returns
    return bool(returns) and all(each.alias_info is not None and not each.alias_info.is_write for each in returns)


def is_plain_class(kind: type[torch.Tensor]) -> bool:
    """Whether operators treat tensors of a class as torch.Tensor: results of theirs are plain."""
    follows = kind.__torch_function__ in (torch.nn.Parameter.__torch_function__, torch._C._disabled_torch_function_impl)
    return kind is torch.Tensor or (follows and kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__)


def is_traceable_subclass(tensor: torch.Tensor) -> bool:
    """Whether a tensor is of a subclass that AOTAutograd takes apart into plain tensors."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    return bool(is_traceable_wrapper_subclass(tensor))


def operator_library(namespace: str, name: str) -> Any:
    """A `torch.library.Library` for one operator, kept until an operator of that name is registered again.

    torch itself has one table of operators for the process, and forgets them with their library.
    """
    key = f"{namespace}::{name}"
    earlier = _LIBRARIES.pop(key, None)
    if earlier is not None:
        earlier._destroy()
    make: Callable[..., Any] = torch.library.Library
    library = _LIBRARIES[key] = make(namespace, "FRAGMENT")
    return library


_LIBRARIES: dict[str, Any] = {}


def below_autograd(operator: Any, keys: Any, arguments: Sequence[Any]) -> Any:
    """What an operator of torch.ops gives where autograd has been passed. keys: what its autograd kernel was given."""
    with torch._C._AutoDispatchBelowAutograd():
        return operator.redispatch(keys & torch._C._after_autograd_keyset, *arguments)


def is_profiling() -> bool:
    """Whether torch.profiler records at the moment."""
    return profiler._is_profiler_enabled


def recompile_reason() -> str | None:
    """Why dynamo compiles again what it is compiling now: "tensor 'x' size mismatch at index 0. expected 3, actual 4".

    None for what it compiles for the first time, outside of a compilation, and where this torch does not say.
    """
    with suppress(ImportError, AttributeError):
        from torch._dynamo.utils import get_metrics_context

        reason = get_metrics_context()._metrics.get("recompile_reason")
        # It begins with the number of the compilation whose guard has failed.
        return None if reason is None else str(reason).partition(": ")[2] or str(reason)
    return None


def trace_artifact(name: str, text: Callable[[], str]) -> None:
    """Put a text into torch's structured trace (TORCH_TRACE), where tlparse shows it beside the graph that dynamo is
    compiling. text: is called where somebody traces. Nothing, where dynamo compiles nothing."""
    with suppress(ImportError, AttributeError):
        from torch._guards import CompileContext
        from torch._logging._internal import trace_structured

        if CompileContext.current_compile_id() is not None:
            named = {"name": name, "encoding": "string"}
            trace_structured("artifact", metadata_fn=lambda: named, payload_fn=text)


def count(name: str, amount: int = 1) -> None:
    """Add to `torch._dynamo.utils.counters["hidet"]`, where torch's own tools look."""
    from torch._dynamo.utils import counters

    counters["hidet"][name] += amount


def real_tensors() -> AbstractContextManager[object]:
    """A context in which tensor operations compute, although the caller traces with fake tensors."""
    from torch.utils._python_dispatch import _disable_current_modes

    context: AbstractContextManager[object] = _disable_current_modes()
    return context


@contextmanager
def closing_autocast() -> Iterator[None]:
    """A context at whose end the regions of autocast are open that were so at its beginning.

    A trace that fails inside of a region leaves it open, and torch keeps weights as it has cast them once until the
    last region is closed: whatever they are changed to, products would go on with those.
    """
    before = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    accelerator = torch.accelerator.current_accelerator()
    devices = ("cpu",) if accelerator is None else ("cpu", accelerator.type)
    states = [(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in devices]
    is_cached = torch.is_autocast_cache_enabled()
    try:
        yield
    finally:
        for device, is_enabled, dtype in states:
            torch.set_autocast_enabled(device, is_enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(is_cached)
        left = torch.autocast_increment_nesting()
        while left >= before:
            left = torch.autocast_decrement_nesting()
        if not left:
            torch.clear_autocast_cache()


def operator_infos(database: str) -> Sequence[Any]:
    """One of the tables of torch's own tests: "op" (operators), "hop" (operators that take functions), "module" or
    "optim" (optimisers)."""
    from torch.testing._internal import common_methods_invocations, common_modules, common_optimizers, hop_db

    # Sets the seed inside of operators that draw numbers, which dynamo does not trace.
    vars(common_methods_invocations)["wrapper_set_seed"] = _call
    found: dict[str, Sequence[Any]] = {
        "op": common_methods_invocations.op_db,
        "hop": hop_db.hop_db,
        "module": common_modules.module_db,
        "optim": common_optimizers.optim_db,
    }
    return found[database]


def _call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    return function(*arguments, **named)


def tracing_everything() -> AbstractContextManager[object]:
    """A context in which dynamo traces sizes that depend on data and numbers read from tensors, too."""
    from torch._dynamo import config

    context: AbstractContextManager[object] = config.patch(
        capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True
    )
    return context


def graph_breaks() -> list[str]:
    """Why dynamo left code to Python since `forget_graph_breaks`."""
    from torch._dynamo.utils import counters

    return list(counters["graph_break"])


def forget_graph_breaks() -> None:
    """Start anew with counting."""
    from torch._dynamo.utils import counters

    counters["graph_break"].clear()
