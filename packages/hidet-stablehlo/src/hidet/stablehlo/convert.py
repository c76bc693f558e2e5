"""`compile` and `from_stablehlo`: modules of StableHLO as graphs, and compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hidet.compiler.graphs import compile as compile_model
from hidet.context import CompileContext, Options, make_context
from hidet.dims import Dim
from hidet.frontend import arrays_by_name
from hidet.plugins.host import load_registry
from hidet.runtime.signature import ModelGraph
from hidet.stablehlo.calls import Model
from hidet.stablehlo.importer import import_model
from hidet.stablehlo.loader import load_model
from hidet.stablehlo.mapping import handlers_of
from hidet.stablehlo.supported import Unsupported, unsupported_of

if TYPE_CHECKING:
    from hidet.runtime.compiled import CompiledGraph


def compile(
    model: Any,
    *,
    target: str = "auto",
    options: Options | Mapping[str, Any] | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    values: Mapping[str, Any] | None = None,
) -> CompiledGraph:
    """Compile a program of StableHLO.

    model: a path; bytes of a portable artifact or of `jax.export`'s serialisation; text; a `jax.export.Exported`.
    target, options: as of `hidet.compile`. shapes, values: of inputs by name, in place of open shapes, and arrays to
    build in.

    What comes back takes what the exported function takes, and returns what it does; saved, it runs without jax.
    """
    return compile_model(from_stablehlo(model, shapes=shapes, values=values), target=target, options=options)


def from_stablehlo(
    model: Any,
    *,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    values: Mapping[str, Any] | None = None,
    ctx: CompileContext | None = None,
) -> ModelGraph:
    """The graph of a program and how it is called, for `hidet.compile`; arguments as of `compile`.

    ctx: None takes the installed plug-ins. Raises ImportFailed for what cannot be read, UnsupportedOp with the list of
    operators that are not known.
    """
    return imported(load_model(model), ctx or make_context(), shapes, values)


def check(model: Any) -> tuple[Unsupported, ...]:
    """The operators of a program that cannot be imported, with the places where they stand; none when all are known."""
    return unsupported_of(load_model(model).module, handlers_of(load_registry()))


def import_for_compile(
    model: Any,
    example_inputs: Any,
    ctx: CompileContext,
    *,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    values: Mapping[str, Any] | None = None,
) -> ModelGraph:
    """What `hidet.compile` calls."""
    return imported(load_model(model), ctx, shapes, values)


def imported(
    model: Model,
    ctx: CompileContext,
    shapes: Mapping[str, Sequence[Dim]] | None,
    values: Mapping[str, Any] | None,
) -> ModelGraph:
    """The graph of a loaded model."""
    return import_model(model, ctx, shapes=shapes, values=arrays_by_name(values))
