"""Running passes: order, verification, dumps, timing, and the pass's name on errors."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from hidet.errors import PluginError
from hidet.graph.graph import Graph
from hidet.graph.printer import print_graph
from hidet.ir.func import Module
from hidet.ir.printer import print_module
from hidet.passes.dump import dump
from hidet.passes.local import rewrite_locally
from hidet.plugins.specs import Level, PassSpec, RewriteSpec

if TYPE_CHECKING:
    from hidet.context import CompileContext


class GraphPass(Protocol):
    """A frozen dataclass whose fields are its options; pure: same object when nothing changed."""

    name: ClassVar[str]

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """The transformed graph."""


class ProgramPass(Protocol):
    """As `GraphPass`, on thread-IR modules."""

    name: ClassVar[str]

    def run(self, module: Module, ctx: CompileContext) -> Module:
        """The transformed module."""


def run_graph_passes(graph: Graph, ctx: CompileContext, subgraph: str | None = None) -> Graph:
    """Every graph pass of the registry that applies to the target, in dependency order, with the rewrites after it.

    subgraph: the name of a sub-graph, whose dumps lie in a folder of this name; None for the graph that is compiled.
    """
    folder = "" if subgraph is None else f"{subgraph}/"
    dump(ctx, f"{folder}00_import.hir", partial(print_graph, graph))
    for number, spec in enumerate(ctx.registry.passes_for("graph", ctx.target.name)):
        graph = _run(spec, graph, "graph", ctx)
        for rewrite in ctx.registry.rewrites_for(spec.name, ctx.target.name):
            graph = _run(rewrite, graph, "graph", ctx)
        dump(ctx, f"{folder}{number + 1:02}_{spec.name}.hir", partial(print_graph, graph))
    return graph


def run_program_passes(module: Module, ctx: CompileContext) -> Module:
    """Every program pass that applies to the target, in dependency order."""
    if ctx.options.verify:
        _verify_module(module, "as its schedule built it")
    for spec in ctx.registry.passes_for("program", ctx.target.name):
        module = _run(spec, module, "program", ctx)
    dump(ctx, f"program_{module.entry}.hir", partial(print_module, module))
    return module


@dataclass(frozen=True)
class _Rewrite:
    """A plug-in's rules as a pass."""

    rules: Any

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        return rewrite_locally(graph, ctx.registry.operators, self.rules)


def _run(spec: PassSpec | RewriteSpec, subject: Any, level: Level, ctx: CompileContext) -> Any:
    """What a pass, or the rewrites of a spec, make of a graph or module. What foreign ones make is always verified.

    Errors name the pass and the plug-in that it is of.
    """
    kind = "passes" if isinstance(spec, PassSpec) else "rewrites"
    what = f"{level} pass {spec.name!r} of {ctx.registry.owners[kind, spec.name]}"
    start = time.perf_counter()
    try:
        loaded: Any = spec.resolve()
        if isinstance(spec, RewriteSpec):
            loaded = _Rewrite(loaded)
        instance = loaded() if isinstance(loaded, type) else loaded
        result = instance.run(subject, ctx)
        if not isinstance(result, type(subject)):
            raise PluginError(f"it returned a {type(result).__name__}, expected a {type(subject).__name__}")
    except Exception as error:
        error.add_note(f"while running {what}")
        raise
    seconds = time.perf_counter() - start
    if result is not subject and (spec.is_foreign or ctx.options.verify):
        if level == "graph":
            _verify_graph(result, what)
        else:
            _verify_module(result, f"after {what}")
    ctx.registry.pass_done(spec.name, level, subject, result, seconds)
    return result


def _verify_graph(graph: Graph, after: str) -> None:
    from hidet.errors import VerifyError
    from hidet.graph.verify import verify_graph

    try:
        verify_graph(graph)
    except VerifyError as error:
        raise VerifyError(f"after {after}: {error.message}", loc=error.loc) from error


def _verify_module(module: Module, when: str) -> None:
    from hidet.errors import VerifyError
    from hidet.ir.verify import verify_module

    try:
        verify_module(module)
    except VerifyError as error:
        raise VerifyError(f"program {module.entry} {when}: {error.message}", loc=error.loc, hint=error.hint) from error
