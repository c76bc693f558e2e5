"""Running passes: order, verification, dumps, timing, and the pass's name on errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from hidet.errors import PluginError, VerifyError
from hidet.graph.graph import Graph
from hidet.graph.printer import print_graph
from hidet.graph.verify import verify_graph
from hidet.ir.func import Module
from hidet.ir.printer import print_module
from hidet.ir.verify import verify_module
from hidet.passes.dump import dump
from hidet.passes.local import rewrite_locally
from hidet.passes.pipeline import make_pass
from hidet.plugins.specs import Level, PassSpec, RewriteSpec

if TYPE_CHECKING:
    from hidet.context import CompileContext

Subject = TypeVar("Subject", bound=Graph | Module)


class GraphPass(Protocol):
    """A frozen dataclass whose fields are its options (`hidet.passes.pipeline`); pure: same object when nothing
    changed."""

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
        graph = run_pass(spec, graph, ctx)
        dump(ctx, f"{folder}{number + 1:02}_{spec.name}.hir", partial(print_graph, graph))
    return graph


def run_late_pass(graph_pass: GraphPass, graph: Graph, ctx: CompileContext, folder: str = "") -> Graph:
    """What a pass makes of a graph that the passes of the registry are done with: one whose options come from what
    follows them, tasks or the host program. It is verified, dumped where it changes something, and reported like them.

    folder: of its dump, "" or the name of a sub-graph with a slash.
    """
    start = time.perf_counter()
    result = graph_pass.run(graph, ctx)
    seconds = time.perf_counter() - start
    if result is not graph:
        if ctx.options.verify:
            verify(result, f"after graph pass {graph_pass.name!r}")
        dump(ctx, f"{folder}late_{graph_pass.name.replace('-', '_')}.hir", partial(print_graph, result))
    ctx.registry.pass_done(graph_pass.name, "graph", graph, result, seconds)
    return result


def run_program_passes(module: Module, ctx: CompileContext) -> Module:
    """Every program pass that applies to the target, in dependency order."""
    if ctx.options.verify:
        verify(module, "as its schedule built it")
    for spec in ctx.registry.passes_for("program", ctx.target.name):
        module = run_pass(spec, module, ctx)
    dump(ctx, f"program_{module.entry}.hir", partial(print_module, module))
    return module


def run_pass(
    spec: PassSpec, subject: Subject, ctx: CompileContext, options: Mapping[str, Any] = MappingProxyType({})
) -> Subject:
    """What a pass, and the rewrites of plug-ins that follow it, make of a graph or module of its level.

    options: values of the pass's fields by name; those left out have their defaults.
    """
    result: Any = _run(spec, partial(make_pass, spec, options), subject, ctx)
    if spec.level == "graph":
        for rewrite in ctx.registry.rewrites_for(spec.name, ctx.target.name):
            result = _run(rewrite, partial(_rewrite, rewrite), result, ctx)
    made: Subject = result
    return made


def verify(subject: Graph | Module, when: str) -> None:
    """Raise VerifyError where a graph or module breaks a rule of its IR. when: for the message, "after pass 'fuse'"."""
    what = "" if isinstance(subject, Graph) else f"program {subject.entry} "
    try:
        if isinstance(subject, Graph):
            verify_graph(subject)
        else:
            verify_module(subject)
    except VerifyError as error:
        raise VerifyError(f"{what}{when}: {error.message}", loc=error.loc, hint=error.hint) from error


@dataclass(frozen=True)
class _Rewrite:
    """A plug-in's rules as a pass."""

    rules: Any

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        return rewrite_locally(graph, ctx.registry.operators, self.rules)


def _rewrite(spec: RewriteSpec) -> _Rewrite:
    return _Rewrite(spec.resolve())


def _run(spec: PassSpec | RewriteSpec, make: Callable[[], Any], subject: Subject, ctx: CompileContext) -> Subject:
    """What a pass, or the rewrites of a spec, make of a graph or module. What foreign ones make is always verified.

    make: loads it. Errors name the pass and the plug-in that it is of.
    """
    kind = "passes" if isinstance(spec, PassSpec) else "rewrites"
    level: Level = "graph" if isinstance(subject, Graph) else "program"
    what = f"{level} pass {spec.name!r} of {ctx.registry.owners[kind, spec.name]}"
    start = time.perf_counter()
    try:
        result: Any = make().run(subject, ctx)
        if not isinstance(result, type(subject)):
            raise PluginError(f"it returned a {type(result).__name__}, expected a {type(subject).__name__}")
    except Exception as error:
        error.add_note(f"while running {what}")
        raise
    seconds = time.perf_counter() - start
    if result is not subject and (spec.is_foreign or ctx.options.verify):
        verify(result, f"after {what}")
    ctx.registry.pass_done(spec.name, level, subject, result, seconds)
    made: Subject = result
    return made
