"""Measure where the time of a compilation goes: milliseconds by hand-over, and what they are for one graph node.

    python benchmarks/compile_time.py                        three models, kernel cache empty and filled
    python benchmarks/compile_time.py --models gpt2,bert --repeat 3

The hand-overs are called here one after the other, as `compile_graph` does. All of it is hidet's own part: torch has
traced the model before. LLVM compiles in this process only, and times are those of this thread on its CPU, so that
neither the number of CPUs nor what else they do counts, nor threads of torch that still wait for work.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
import torch
from rich.console import Console
from rich.table import Table
from torch import fx

from benchmarks.options import names_from, report_console
from hidet.compiler.graphs import compile_graph, paused_gc
from hidet.context import CompileContext, make_context
from hidet.fusion.fuse import fuse
from hidet.graph.graph import Graph
from hidet.graph.verify import verify_graph
from hidet.host.program import build_host_program
from hidet.host.units import compile_units
from hidet.passes.manager import run_graph_passes, run_program_passes
from hidet.schedule.select import ScheduledTask, select_schedules
from tests.models.zoo import MODELS

PHASES = ("import", "verify", "passes", "fuse", "select", "host", "injective", "template", "llvm", "load")
"""import: fx to graph. select: what is left of it without building programs. host: the host program and its code.

injective, template: all of Python's work on kernels of element-wise tasks, and of those around an anchor: building,
hashing, program passes and LLVM text. llvm: from there to objects.
"""

BUDGETS = {"node": 0.1, "injective": 3.0, "template": 15.0}
"""Milliseconds of Python for a graph node and for a kernel of either kind."""


@dataclass(frozen=True, slots=True)
class CompileTimes:
    """Seconds by phase, cold, of all graphs of a model; `warm`: all of `compile_graph` with every kernel cached.

    injective, template: how many distinct kernels of either kind there are.
    """

    name: str
    nodes: int
    tasks: int
    modules: int
    injective: int
    template: int
    cold: Mapping[str, float]
    warm: float


@dataclass(slots=True)
class _Clock:
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start = time.thread_time()
        yield
        self.add(phase, time.thread_time() - start)

    def add(self, phase: str, seconds: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds


@click.command()
@click.option("--models", callback=names_from(tuple(MODELS)), default="minilm,resnet50,gpt2", show_default=True)
@click.option("--repeat", default=3, show_default=True, help="Each phase is the fastest of this many runs.")
def main(models: tuple[str, ...], repeat: int) -> None:
    """Measure where the time of a compilation goes."""
    os.environ["HIDET_NUM_WORKERS"] = "0"
    console = report_console()
    rows = [measure(name, repeat, Console(stderr=True)) for name in models]
    print_times(console, rows if len(rows) == 1 else [*rows, together(rows)])


def measure(name: str, repeat: int, progress: Console) -> CompileTimes:
    """Compile a model of the zoo `repeat` times without cached kernels and as often with them."""
    clocks: list[_Clock] = []
    for number in range(repeat):
        progress.print(f"{name}: {number + 1} of {repeat}")
        clocks.append(_Clock())
        graphs, counts = _compile_stepwise(name, clocks[-1])
    cold = {phase: min(clock.seconds.get(phase, 0.0) for clock in clocks) for phase in PHASES}
    with tempfile.TemporaryDirectory(prefix="hidet-compile-time-") as folder:
        os.environ["HIDET_CACHE_DIR"] = folder
        ctx = make_context("cpu")
        for graph in graphs:
            compile_graph(graph, ctx)
        warm = min(_seconds(graphs, ctx) for _ in range(repeat))
    return CompileTimes(name, *counts, cold=cold, warm=warm)


def together(rows: Sequence[CompileTimes]) -> CompileTimes:
    """All models as one: what a node or a kernel takes on average."""
    return CompileTimes(
        "all",
        *(sum(getattr(row, name) for row in rows) for name in ("nodes", "tasks", "modules", "injective", "template")),
        cold={phase: sum(row.cold[phase] for row in rows) for phase in PHASES},
        warm=sum(row.warm for row in rows),
    )


def _seconds(graphs: Sequence[Graph], ctx: CompileContext) -> float:
    start = time.process_time()
    for graph in graphs:
        report = compile_graph(graph, ctx).report()
        assert report.cached_modules == report.modules
    return time.process_time() - start


def _compile_stepwise(name: str, clock: _Clock) -> tuple[list[Graph], list[int]]:
    from hidet.torch import compat
    from hidet.torch.decompositions import decompositions
    from hidet.torch.importer import import_fx

    ctx = make_context("cpu", {"cache": False})
    graphs: list[Graph] = []
    counts = [0] * 5

    def compile_aten(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        with compat.real_tensors(), paused_gc():
            with clock("import"):
                graph = import_fx(gm, ctx, parameters=compat.static_input_indices()).graph
            graphs.append(graph)
            sizes = _compile_one(graph, ctx, clock)
        counts[:] = [a + b for a, b in zip(counts, sizes, strict=True)]
        return gm.forward

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        return compat.run_aot(
            gm,
            example_inputs,
            inference_compiler=compile_aten,
            forward_compiler=compile_aten,
            backward_compiler=compile_aten,
            decompositions=decompositions(),
            before_partition=lambda joint: None,
            after_partition=lambda forward, outputs: None,
        )

    torch._dynamo.reset()
    entry = MODELS[name]
    with torch.no_grad():
        torch.compile(entry.build(), backend=backend)(**entry.inputs(0))
    return graphs, counts


def _compile_one(graph: Graph, ctx: CompileContext, clock: _Clock) -> tuple[int, ...]:
    """The hand-overs of `compile_graph`, and numbers of nodes, tasks, modules, injective and template kernels."""
    from hidet.cpu.arch import host_arch
    from hidet.cpu.codegen import emit_module
    from hidet.cpu.toolchain import compile_object
    from hidet.target import Binary

    with clock("verify"):
        verify_graph(graph)
    with clock("passes"):
        optimized = run_graph_passes(graph, ctx)
    parts = []
    kinds = {"host": "host"}
    for number, part in enumerate([optimized, *([optimized.prepare.graph] if optimized.prepare else [])]):
        with clock("fuse"):
            task_graph = fuse(part, ctx)
        with clock("select"):
            scheduled = select_schedules(task_graph, ctx)
        for kind, seconds in scheduled.build_seconds.items():
            clock.add("select", -sum(seconds))
            clock.add(kind, sum(seconds))
        with clock("host"):
            parts.append((scheduled, build_host_program(scheduled, ("main", "prepare")[number])))
        tasks = [step for step in scheduled.steps if isinstance(step, ScheduledTask)]
        kinds.update({step.symbol: "injective" if step.task.anchor is None else "template" for step in tasks})
    with clock("host"):
        units = compile_units(parts[:1], parts[1:])
    texts = {}
    for name, unit in units.items():
        # A template's tiles are modules of their own; so is all of a small graph.
        with clock(kinds.get(name, "template")):
            texts[name] = emit_module(run_program_passes(unit.module, ctx), host_arch()), unit.effort
    with clock("llvm"):
        objects = {name: compile_object(text, host_arch(), effort) for name, (text, effort) in texts.items()}
    with clock("load"):
        ctx.target.load([Binary(name, data) for name, data in objects.items()])
    kernels = list(kinds.values())
    tasks_in_all = sum(len(scheduled.steps) for scheduled, _ in parts)
    return len(graph.nodes), tasks_in_all, len(units), kernels.count("injective"), kernels.count("template")


def print_times(console: Console, rows: Sequence[CompileTimes]) -> None:
    """One column a model: counts, milliseconds by phase, and what they are for a node and for a module."""
    table = Table(title="CPU milliseconds with no kernel cached; `warm`: all of it with every kernel cached")
    table.add_column("")
    for row in rows:
        table.add_column(row.name, justify="right")

    def add(label: str, value: Callable[[CompileTimes], float], digits: int = 0) -> None:
        table.add_row(label, *(f"{value(row):.{digits}f}" for row in rows))

    def total(row: CompileTimes, *phases: str) -> float:
        return sum(row.cold[phase] for phase in phases) * 1e3

    add("nodes", lambda row: row.nodes)
    add("tasks", lambda row: row.tasks)
    add("modules", lambda row: row.modules)
    add("kernels: injective", lambda row: row.injective)
    add("kernels: template", lambda row: row.template)
    table.add_section()
    for phase in PHASES:
        table.add_row(phase, *(f"{total(row, phase):.0f}" for row in rows))
    table.add_section()
    add("sum", lambda row: total(row, *PHASES))
    add("warm", lambda row: row.warm * 1e3)
    table.add_section()
    node, injective, template = (f"at most {BUDGETS[name]:g}" for name in ("node", "injective", "template"))
    add(f"verify to host, a node ({node})", lambda row: total(row, *PHASES[1:6]) / row.nodes, 2)
    add("of which verify, passes and fuse", lambda row: total(row, *PHASES[1:4]) / row.nodes, 2)
    add(f"an injective kernel ({injective})", lambda row: total(row, "injective") / max(row.injective, 1), 1)
    add(f"a template kernel ({template})", lambda row: total(row, "template") / max(row.template, 1), 1)
    console.print(table)


if __name__ == "__main__":
    main()
