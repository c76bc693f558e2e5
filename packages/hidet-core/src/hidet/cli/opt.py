"""`hidet opt`: named passes over the text of a graph or of thread IR."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

import click

from hidet.cli.model import target_option
from hidet.context import make_context
from hidet.errors import OptionError
from hidet.graph.graph import Graph
from hidet.graph.parser import parse_graph
from hidet.graph.printer import print_graph
from hidet.ir.parser import parse_module
from hidet.ir.printer import print_module
from hidet.passes.manager import run_pass, verify
from hidet.passes.pipeline import parse_pipeline, pass_doc, pass_options
from hidet.plugins.host import load_registry

if TYPE_CHECKING:
    from hidet.graph.graph import Graph
    from hidet.ir.func import Module
    from hidet.plugins.registry import Registry
    from hidet.plugins.specs import Level, PassSpec


@click.command("opt")
@click.argument("file", type=click.File("r", encoding="utf-8"), default="-")
@click.option("-p", "--passes", default="", metavar="PASSES", help="name{option=value,...},name,...")
@click.option("--list", "is_list", is_flag=True, help="List passes and their options, and do nothing else.")
@target_option
def opt(file: IO[str], passes: str, is_list: bool, target: str) -> None:
    """Run PASSES over the graph or the thread IR in FILE (- for stdin), and print what comes out.

    The text is what HIDET_DUMP writes (.hir). It is verified before the first pass and after each; without passes it is
    only verified. Rewrites of plug-ins that follow a pass run with it.
    """
    if is_list:
        _print_passes()
        return
    ctx = make_context(target, {"verify": True, "cache": False})
    calls = parse_pipeline(passes, ctx.registry)
    text = file.read()
    level: Level = "program" if text.lstrip().startswith("module(") else "graph"
    for call in calls:
        name, wanted = call.spec.name, call.spec.level
        if wanted != level:
            raise OptionError(f"pass {name!r} takes {_NOUNS[wanted]}, and {file.name} is the text of {_NOUNS[level]}")
        if call.spec not in ctx.registry.passes_for(level, ctx.target.name):
            hint = "--target names the target, and the machine where that is not this one: cuda:sm_90a"
            raise OptionError(f"pass {name!r} is for {_served(call.spec)}, not for {ctx.target.name}", hint=hint)
    subject = _parse(text, level, ctx.registry)
    verify(subject, f"as {file.name} has it")
    for call in calls:
        subject = run_pass(call.spec, subject, ctx, call.options)
    click.echo(print_graph(subject) if isinstance(subject, Graph) else print_module(subject), nl=False)


_NOUNS: dict[Level, str] = {"graph": "a graph", "program": "thread IR"}


def _parse(text: str, level: Level, registry: Registry) -> Graph | Module:
    if level == "graph":
        return parse_graph(text, registry.operators)
    return parse_module(text, registry.intrinsic_rows())


def _served(spec: PassSpec) -> str:
    """The targets that a pass is for."""
    return ", ".join([*spec.targets, *(f"every {kind}" for kind in spec.kinds)]) or "all"


def _print_passes() -> None:
    """A line a pass: name, level, targets, options with defaults, and what it does."""
    rows = []
    for spec in load_registry().passes.values():
        options = ",".join(map(str, pass_options(spec)))
        name = f"{spec.name}{{{options}}}" if options else spec.name
        rows.append((name, spec.level, _served(spec), pass_doc(spec)))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)]
        click.echo("  ".join([*cells, row[3]]))
