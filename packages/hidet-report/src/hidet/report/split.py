"""A compiled graph once more, with each of its tasks as a function that Python calls: to time it, to name it for other
profilers, to look at what it makes. Kernels are the same machine code; only the functions that call them differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from hidet import dtypes
from hidet.compiler.binaries import compile_modules
from hidet.graph.graph import Node, subgraphs_of
from hidet.host.program import HostCode, InnerProgram, build_host_program
from hidet.host.units import CompileUnit, compile_units, merge_modules
from hidet.ir.build import seq
from hidet.ir.expr import Var
from hidet.ir.func import Function, Module
from hidet.ir.structural import structural_hash
from hidet.ir.types import PointerType
from hidet.report.origin import Origin, OriginPart
from hidet.runtime.compiled import CompiledGraph
from hidet.runtime.program import ForeignCall, HostProgram, Segment, Step, map_subprograms
from hidet.schedule.select import ScheduledGraph, ScheduledTask
from hidet.schedule.task import ForeignStep
from hidet.target import Binary

IDLE = "idle_segment"
"""A segment that does nothing: what a call costs by itself."""

Call = Callable[..., object]
"""A segment: takes the address of the slot table, and on a device a stream."""


@dataclass(frozen=True, slots=True, eq=False)
class SplitGraph:
    """A compiled graph by its tasks.

    program: that of the compiled graph with a segment for each task. functions: of these segments, and `IDLE`. tasks:
    what they compute, in order. foreign: operators that run outside of compiled code, by names of their own. pieces:
    tasks by the segment of the compiled graph that runs them. modules: the code of each segment. code: keeps the
    functions loaded.
    """

    compiled: CompiledGraph
    origin: Origin
    program: HostProgram
    functions: Mapping[str, Call]
    tasks: Mapping[str, ScheduledTask]
    foreign: Mapping[str, ForeignStep]
    pieces: Mapping[str, tuple[str, ...]]
    modules: Mapping[str, Module]
    code: object

    @property
    def follows(self) -> frozenset[tuple[str, str]]:
        """Pairs of tasks of which the second comes right after the first in compiled code."""
        return frozenset(pair for names in self.pieces.values() for pair in pairwise(names))

    def with_foreign(self, change: Callable[[str, Call], Call]) -> HostProgram:
        """The program with the functions of operators outside of compiled code changed. change: is given the name that
        the operator has in `foreign`, and its function."""
        names = {id(step.node.op.call): name for name, step in self.foreign.items()}

        def changed(program: HostProgram) -> HostProgram:
            steps: list[Step] = []
            for step in program.steps:
                name = names.get(id(step.call)) if isinstance(step, ForeignCall) else None
                if isinstance(step, ForeignCall) and name is not None:
                    step = replace(step, call=change(name, step.call))
                steps.append(step)
            return replace(program, steps=tuple(steps))

        return changed(map_subprograms(self.program, changed))

    def callable(self, functions: Mapping[str, Call], program: HostProgram | None = None) -> CompiledGraph:
        """A graph on the same constants whose segments are these functions.

        program: instead of the own one, with the same segments.
        """
        bundle = replace(self.compiled.bundle, program=program or self.program)
        return CompiledGraph(bundle, functions, self.compiled.report(), self, self.origin.ctx.target.memory)


def split_graph(compiled: CompiledGraph, origin: Origin) -> SplitGraph:
    """Each task of a compiled graph by itself. Compiles host code alone, unless the graph is small."""
    ctx = origin.ctx
    parts: list[tuple[ScheduledGraph, HostCode]] = []
    tasks: dict[str, ScheduledTask] = {}
    pieces: dict[str, tuple[str, ...]] = {}
    modules: dict[str, Module] = {}
    for number, part in enumerate(origin.parts):
        code = _split_code(part, f"task_of_{number}")
        parts.append((part.scheduled, code))
        modules.update(code.modules)
        found = [step for step in part.scheduled.steps if isinstance(step, ScheduledTask)]
        tasks.update(zip(code.modules, found, strict=True))
        pieces.update(zip(part.segments, _by_segment(part, code.modules), strict=True))
    binaries = _binaries(compiled, parts, origin)
    loaded = ctx.target.load(binaries, ctx.cache)
    functions = {symbol: loaded.function(symbol, ctx.options.threads) for symbol in (*tasks, IDLE)}

    def split(program: HostProgram) -> HostProgram:
        steps: list[Step] = []
        for step in program.steps:
            steps += map(Segment, pieces[step.symbol]) if isinstance(step, Segment) else [step]
        return replace(program, steps=tuple(steps))

    program = split(map_subprograms(compiled.bundle.program, split))
    steps = [step for part in origin.parts for step in part.scheduled.steps if isinstance(step, ForeignStep)]
    called = {id(step.node.op.call): step for step in steps if step.node.op.call is not None}
    foreign = {f"{step.node.op.name}_{number}": step for number, step in enumerate(called.values())}
    return SplitGraph(compiled, origin, program, functions, tasks, foreign, pieces, modules, loaded)


def _split_code(part: OriginPart, name: str) -> HostCode:
    """Segments of a task each. Their slots are those of the program that runs: both are numbered in the same order."""
    graph = part.scheduled.task_graph.graph
    controls = [node for node in graph.nodes if node.op.kind == "control"]
    return build_host_program(part.scheduled, name, split_tasks=True, inner={node: _inner(node) for node in controls})


def _inner(node: Node) -> tuple[InnerProgram, ...]:
    """Stand-ins for the programs of sub-graphs: the steps that run these are those of the program that runs."""
    return tuple(InnerProgram(HostProgram(slots=0, inputs=(), outputs=(), steps=()), ()) for _ in subgraphs_of(node))


def _by_segment(part: OriginPart, symbols: Iterable[str]) -> list[tuple[str, ...]]:
    """The segments of a task each that stand for each segment of the program: runs of tasks between foreign steps."""
    runs: list[list[str]] = []
    names = iter(symbols)
    is_open = False
    for step in part.scheduled.steps:
        if not isinstance(step, ScheduledTask):
            is_open = False
            continue
        if not is_open:
            runs.append([])
            is_open = True
        runs[-1].append(next(names))
    return [tuple(run) for run in runs]


def _binaries(compiled: CompiledGraph, parts: list[tuple[ScheduledGraph, HostCode]], origin: Origin) -> list[Binary]:
    """Machine code: that of kernels as it is, and host functions anew."""
    ctx = origin.ctx
    known = {binary.name: binary for binary in compiled.bundle.binaries}
    units = compile_units(parts, kernel_asserts_reach_host=ctx.target.device == "cpu")
    if "graph" not in known and "graph" in units:
        # With what prepares constants the graph was not small: its kernels are there, each by itself.
        units = {"host": _host_unit(parts, known)}
    units["idle"] = _idle_unit()
    new = {name: unit for name, unit in units.items() if name not in known or name in ("graph", "host")}
    binaries, _ = compile_modules(new, ctx)
    kernels = {name for scheduled, _ in parts for name in scheduled.modules}
    libraries = {name for name in known if name not in ("graph", "host") and name not in new}
    needed = [known[name] for name in libraries if name in units or name in kernels or "graph" not in known]
    return [*binaries, *needed]


def _host_unit(parts: list[tuple[ScheduledGraph, HostCode]], known: Mapping[str, Binary]) -> CompileUnit:
    segments = {name: module for _, code in parts for name, module in code.modules.items()}
    missing = [m for scheduled, _ in parts for name, m in scheduled.modules.items() if name not in known]
    module = merge_modules([*segments.values(), *missing], segments)
    return CompileUnit(module, structural_hash(module), effort=3 if missing else 0)


def _idle_unit() -> CompileUnit:
    function = Function(IDLE, (Var("table", PointerType(dtypes.i64)),), seq([]), kind="host")
    module = Module((function,), IDLE)
    return CompileUnit(module, structural_hash(module), effort=0)
