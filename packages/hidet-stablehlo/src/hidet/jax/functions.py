"""Functions of jax as graphs: traced, exported with their constants as arguments, imported with these bound again.

A constant that went through the exported bytes would be copied into them and out of them. So it is an argument there,
and in the graph the array that jax holds, in the same memory.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy

from hidet.compiler.graphs import compile as compile_model
from hidet.context import CompileContext, Options, make_context
from hidet.errors import ImportFailed
from hidet.runtime.signature import GraphInput, GraphOutput, Items, ModelGraph
from hidet.stablehlo.convert import imported
from hidet.stablehlo.exported import Exported
from hidet.stablehlo.loader import form_of_tree, model_of_export

if TYPE_CHECKING:
    from hidet.runtime.compiled import CompiledGraph


def compile(
    fn: Callable[..., Any],
    *avals: Any,
    target: str = "auto",
    options: Options | Mapping[str, Any] | None = None,
    **named: Any,
) -> CompiledGraph:
    """Compile a function of jax, or what is called as one: a bound `apply` of Flax, an `nnx.Module`.

    avals, named: its arguments: arrays or `jax.ShapeDtypeStruct`, and tuples, lists and dictionaries of them. Extents
    of `jax.export.symbolic_shape` stay open. Arrays that the function closes over become constants of the compiled
    graph, which shares their memory. target, options: as of `hidet.compile`.

    What comes back takes the same arguments, and returns what the function does: jax's arrays for jax's, numpy's for
    others. Saved, it runs without jax.
    """
    return compile_model(from_jax(fn, *avals, **named), target=target, options=options)


def from_jax(fn: Callable[..., Any], *avals: Any, ctx: CompileContext | None = None, **named: Any) -> ModelGraph:
    """The graph of a function of jax and how it is called, for `hidet.compile`; arguments as of `compile`.

    ctx: None takes the installed plug-ins. ImportFailed where jax is not installed, UnsupportedOp with the list of
    operators that are not known. What jax raises while it traces is left as it is.
    """
    try:
        import jax
        from jax import export
    except ImportError as error:
        raise ImportFailed(
            "hidet.jax needs jax where functions are compiled", hint="pip install hidet-stablehlo[jax]"
        ) from error
    traced = jax.jit(fn).trace(*avals, **named)
    closed = traced.jaxpr
    leaves, tree = jax.tree_util.tree_flatten_with_path((avals, named))

    def with_constants(constants: Sequence[Any], *arguments: Any) -> Any:
        return jax.core.eval_jaxpr(closed.jaxpr, constants, *arguments)

    spec: Any = jax.ShapeDtypeStruct
    specs = [spec(aval.shape, aval.dtype) for aval in closed.in_avals]
    held = [spec(numpy.shape(constant), constant.dtype) for constant in closed.consts]
    try:
        exported = export.export(jax.jit(with_constants), platforms=("cpu",))(held, *specs)
    except ValueError as error:
        # Products with an algorithm that jax has for GPUs alone, such as its attention in f16 asks for.
        if "is not supported by dot_general on CPU" not in str(error):
            raise
        exported = export.export(jax.jit(with_constants), platforms=("cuda",))(held, *specs)
    count = len(closed.consts)
    names = _parameter_names(fn, len(avals))
    numbers, results = iter(range(count, count + len(leaves))), iter(range(len(exported.out_avals)))
    given = form_of_tree(tree, lambda: GraphInput(next(numbers)))
    assert isinstance(given, Items)
    positional, by_name = given.items
    export_ = Exported(
        getattr(fn, "__name__", type(fn).__name__),
        memoryview(exported.mlir_module_serialized),
        tuple(tuple(str(extent) for extent in aval.shape) for aval in exported.in_avals),
        tuple(exported.module_kept_var_idx),
        positional.items if isinstance(positional, Items) else (),
        tuple((str(name), form) for name, form in getattr(by_name, "entries", ())),
        form_of_tree(jax.tree_util.tree_structure(traced.out_info), lambda: GraphOutput(next(results))),
        tuple(exported.platforms),
    )
    spelled = [_spelled(path, names) for path, _ in leaves]
    model = model_of_export(
        export_, names=names, constants=[numpy.asarray(constant) for constant in closed.consts], leaf_names=spelled
    )
    if any(isinstance(leaf, jax.Array) for _, leaf in leaves):
        model = replace(model, tensor_type="jaxlib._jax.ArrayImpl")
    return imported(model, ctx or make_context(), None, None)


def _parameter_names(fn: Callable[..., Any], count: int) -> list[str]:
    """How the function calls its positional arguments."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return []
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return plain[:count]


def _spelled(path: Sequence[Any], names: Sequence[str]) -> str:
    """A leaf of the arguments as code spells it: "params['w']"."""
    (group, first), rest = path[:2], path[2:]
    if group.idx == 1:
        root = str(first.key)
    else:
        root = names[first.idx] if first.idx < len(names) else f"arg{first.idx}"
    return root + "".join(str(step) for step in rest)
