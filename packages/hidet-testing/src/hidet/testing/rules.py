"""`check_rule`: whether a schedule rule matches, builds valid programs, and computes what the operators mean."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any, Literal

import numpy as np

from hidet import dims, dtypes
from hidet.compiler.modules import compile_module
from hidet.compute.definition import Scan, Scatter
from hidet.context import CompileContext, Options, make_context
from hidet.dims import Symbol
from hidet.errors import HidetError, PluginError, ScheduleError, suggestion
from hidet.fusion.fuse import fuse
from hidet.graph.assumptions import assumptions
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.parser import parse_graph
from hidet.graph.types import TensorType, dims_of
from hidet.ir.expr import Const, Reduce, Size
from hidet.ir.func import Module
from hidet.ir.interpret import run_module
from hidet.ir.types import element_dtype
from hidet.ir.visit import walk
from hidet.passes.manager import run_graph_passes
from hidet.plugins import PLUGIN_API, ScheduleSpec, use
from hidet.plugins.specs import CHECKED_PRIORITY
from hidet.runtime.module import CompiledModule
from hidet.schedule.claims import Claim, claims
from hidet.schedule.rule import Choice, Program
from hidet.schedule.select import ScheduledGraph, ScheduledTask, select_schedules
from hidet.schedule.shared_programs import build, verify_program
from hidet.schedule.shortlist import space_of
from hidet.schedule.task import TaskKey
from hidet.testing.float64 import interpret_in_float64
from hidet.testing.interpret import interpret
from hidet.testing.numerics import Sample, Verdict, check_output
from hidet.testing.scheduled import Run, run_scheduled

Array = np.ndarray[Any, Any]
Sizes = Mapping[str, int]

DEFAULT_SIZES = (1, 2, 7, 33)
"""What symbols are tried as: the smallest, and odd ones below and above common tile sizes."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run. params: of the rule, by task; empty for what it takes by default. sizes: of the graph's symbols."""

    params: tuple[tuple[str, object], ...]
    sizes: Sizes
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True)
class RuleReport:
    """What `check_rule` has found in order.

    rule: its name. tasks: those that it took ("softmax(f32[8, 8])"). trials: its runs. impossible: points of its space
    for which it raised ScheduleError.
    """

    rule: str
    tasks: tuple[str, ...]
    trials: tuple[Trial, ...]
    impossible: tuple[str, ...] = ()

    def __str__(self) -> str:
        points = len({repr(trial.params) for trial in self.trials})
        return f"{self.rule} takes {', '.join(self.tasks)}: {len(self.trials)} runs with {points} choices of parameters"


def check_rule(
    rule: object,
    graph: Graph | str,
    target: str = "cpu",
    *,
    options: Options | Mapping[str, Any] | None = None,
    inputs: Mapping[str, Array] | None = None,
    sizes: Sequence[Sizes] | None = None,
    points: int = 8,
    seeds: int = 2,
    where: Literal["interpreter", "target"] = "interpreter",
) -> RuleReport:
    """Compile a graph with a schedule rule and compare what it computes with numpy in float64.

    The rule is asked before all others, after the passes and the fusion that every graph goes through. Its programs are
    verified, and run with its default parameters and with others of its `space`, on memory that holds NaN (for integers
    all bits) where nothing was written. Results are judged as `hidet.testing.numerics` says, with numpy in the graph's
    own types as the yardstick and an allowance for the order of sums.

    rule: a `ScheduleSpec`, which need not be registered; or a rule, or its class, which is then asked for every task of
        the graph, with nothing fused to it.
    graph: a graph, or its text.
    target: "cpu", or a machine such as "cuda:sm_90a", which need not be there unless `where` is "target".
    inputs: arrays for the graph's inputs by name; others are random: normal floats, small integers, positions that
        exist.
    sizes: values of the graph's symbols to try; None tries 1, 2, 7 and 33, as far as the symbols allow it.
    points: how many points of the rule's space to try at most, besides the default.
    seeds: how many random inputs are tried with the default parameters; other points get one.
    where: "interpreter" runs programs by numpy, with blocks of threads as a GPU has them, and finds accesses outside
        of memory and races; "target" compiles them and runs them on this machine.

    PluginError that names rule, task, parameters and sizes for the first thing that is wrong.
    """
    spec = _spec_of(rule)
    with _asked_first(spec, target, options) as ctx:
        parsed = parse_graph(graph, ctx.registry.operators) if isinstance(graph, str) else graph
        scheduled = _scheduled(parsed, spec, ctx)
        mine = [step for step in _tasks(scheduled) if step.rule_name == spec.name]
        for step in mine:
            with _blamed(spec, f"the program for {step.task.summary}"):
                verify_program(step.program, step.task)
        run = _compiled_run(ctx) if where == "target" else _interpreted_run(spec.name)
        trial = partial(_try, spec, parsed, inputs or {}, run)
        tried = [trial(scheduled, (), each, range(seeds)) for each in _sizes(parsed, sizes)]
        impossible: list[str] = []
        for params, other in _other_points(scheduled, spec, ctx, points, impossible):
            tried += [trial(other, params, each, range(1)) for each in _sizes(parsed, sizes)]
    return RuleReport(spec.name, tuple(step.task.summary for step in mine), tuple(tried), tuple(impossible))


@dataclass(frozen=True, slots=True, kw_only=True)
class _SpecOfRule(ScheduleSpec):
    """A spec of a rule that is at hand."""

    rule: object

    def resolve(self) -> object:
        return self.rule


def _spec_of(rule: object) -> ScheduleSpec:
    if isinstance(rule, ScheduleSpec):
        return rule
    kind = rule if isinstance(rule, type) else type(rule)
    missing = [name for name in ("match", "space", "default", "build") if not callable(getattr(rule, name, None))]
    if missing:
        raise PluginError(
            f"check_rule takes a ScheduleSpec, or a rule or its class, got {rule!r}, which has no {missing[0]}()",
            hint="the methods of a rule are those of hidet.schedule.rule.ScheduleRule",
        )
    return _SpecOfRule(name=kind.__name__, ops=("*",), targets=("*",), load="rule:at_hand", rule=rule)


@contextmanager
def _asked_first(
    spec: ScheduleSpec, target: str, options: Options | Mapping[str, Any] | None
) -> Iterator[CompileContext]:
    """A context in which a rule is asked before all others, and its failures are raised."""
    plugin: Any = ModuleType("check_rule")
    plugin.HIDET_API = PLUGIN_API
    plugin.hidet_schedules = lambda: [replace(spec, priority=CHECKED_PRIORITY, replaces=spec.name)]
    with use(plugin) as registry:
        ctx = make_context(target, options)
        cache = make_context(target, {"cache": False}).cache
        yield replace(ctx, registry=replace(registry, is_strict=True), cache=cache)


def _scheduled(graph: Graph, spec: ScheduleSpec, ctx: CompileContext) -> ScheduledGraph:
    """The graph with the programs that the compiler chooses. PluginError where none is the rule's."""
    scheduled = select_schedules(fuse(run_graph_passes(graph, ctx), ctx), ctx)
    tasks = list(_tasks(scheduled))
    if any(step.rule_name == spec.name for step in tasks):
        return scheduled

    def says(step: ScheduledTask) -> str:
        asked = [other.name for other in ctx.registry.schedules_for(step.task.op_name, ctx.target.name)]
        fate = "is refused by its match()" if spec.name in asked else "is none that it is asked for"
        return f"{step.task.summary} with {len(step.task.nodes)} operators {fate} and goes to {step.rule_name}"

    found = "; ".join(map(says, tasks)) or "there are none"
    notes = "".join(f"; {note}" for note in scheduled.notes)
    raise PluginError(
        f"schedule {spec.name!r} takes none of the graph's tasks on {ctx.target.name}: {found}{notes}",
        hint=f"it is for operators {', '.join(spec.ops)} on {', '.join((*spec.targets, *spec.kinds))}; it gets fused "
        f"operators as prologue={spec.prologue!r} and epilogue={spec.epilogue!r} say; passes may change operators",
    )


def _tasks(scheduled: ScheduledGraph) -> Iterator[ScheduledTask]:
    return (step for step in scheduled.steps if isinstance(step, ScheduledTask))


@contextmanager
def _blamed(spec: ScheduleSpec, what: str) -> Iterator[None]:
    """Turn errors into PluginErrors that name the rule."""
    try:
        yield
    except PluginError:
        raise
    except Exception as error:
        reason = error.message if isinstance(error, HidetError) else f"{type(error).__name__}: {error}"
        raise PluginError(f"schedule {spec.name!r}: {what}: {reason}") from error


def _other_points(
    scheduled: ScheduledGraph, spec: ScheduleSpec, ctx: CompileContext, count: int, impossible: list[str]
) -> Iterator[tuple[tuple[tuple[str, object], ...], ScheduledGraph]]:
    """The graph with programs by other parameters of the rule's space, at most `count` times.

    impossible: receives those that the rule cannot build.
    """
    offers: dict[TaskKey, tuple[Claim, list[object]]] = {}
    for step in _tasks(scheduled):
        if step.rule_name == spec.name and step.task.key not in offers:
            (claim,) = itertools.islice(claims(step.task, ctx, []), 1)
            with _blamed(spec, f"space() for {step.task.summary}"):
                default = claim.rule.default(claim.match, ctx)
                space = space_of(claim.rule, claim.match, ctx)
                points = list(space)
                if space and default not in points:
                    raise PluginError(
                        f"schedule {spec.name!r}: its default for {step.task.summary}, {default}, is no point of its "
                        "space",
                        hint="a space has everything that may be chosen, the default among it; Space.empty() where "
                        "nothing may be",
                    )
                others = [params for params in _some(points, count) if params != default]
                offers[step.task.key] = (claim, others)
    for number in range(max(len(found) for _, found in offers.values())):
        chosen: dict[TaskKey, object] = {
            key: found[number] for key, (_, found) in offers.items() if number < len(found)
        }
        steps: list[Any] = []
        try:
            for each in scheduled.steps:
                steps.append(each)
                if not isinstance(each, ScheduledTask) or each.task.key not in chosen:
                    continue
                task = each.task
                claim, params = offers[task.key][0], chosen[task.key]
                choice = Choice(spec.name, claim.rule, claim.match, params)
                with _blamed_unless_impossible(spec, f"build() for {task.summary} with {params}"):
                    program = build(choice, ctx).program
                    verify_program(program, task)
                steps[-1] = replace(each, program=program)
        except ScheduleError as error:
            impossible.append(f"{list(chosen.values())}: {error.message}")
            continue
        named = tuple((offers[key][0].match.task.summary, params) for key, params in chosen.items())
        yield named, replace(scheduled, steps=tuple(steps))


@contextmanager
def _blamed_unless_impossible(spec: ScheduleSpec, what: str) -> Iterator[None]:
    with _blamed(spec, what):
        try:
            yield
        except ScheduleError as error:
            impossible = error
        else:
            return
    raise impossible


def _some(points: list[object], count: int) -> list[object]:
    """At most `count` points: all of them, or some at random, always the same ones."""
    return points if len(points) <= count else random.Random(0).sample(points, count)


def _sizes(graph: Graph, given: Sequence[Sizes] | None) -> list[Sizes]:
    """Values of a graph's symbols: those given, else sizes that are as unlike as what operators assume allows."""
    if given is not None:
        return list(given)
    symbols = sorted({s for value in graph.inputs for dim in dims_of(value.type) for s in dims.symbols(dim)}, key=str)
    if not symbols:
        return [{}]
    apart = 0 if assumptions(graph) else 1
    chosen = [
        {symbol.name: _fitting(symbol, size + apart * place) for place, symbol in enumerate(symbols)}
        for size in DEFAULT_SIZES
    ]
    return [each for number, each in enumerate(chosen) if each not in chosen[:number]]


def _fitting(symbol: Symbol, size: int) -> int:
    """The value of a symbol that is nearest to a size."""
    least = max(symbol.lower, size)
    value = -(-least // symbol.divisor) * symbol.divisor
    return value if symbol.upper is None else min(value, symbol.upper // symbol.divisor * symbol.divisor)


def _try(
    spec: ScheduleSpec,
    graph: Graph,
    inputs: Mapping[str, Array],
    run: Run,
    scheduled: ScheduledGraph,
    params: tuple[tuple[str, object], ...],
    sizes: Sizes,
    seeds: Sequence[int],
) -> Trial:
    """Run a graph and judge its outputs. PluginError for what is wrong."""
    chosen = ", ".join(f"{task} with {each}" for task, each in params) or "its default parameters"
    what = f"{chosen}{', sizes ' + str(dict(sizes)) if sizes else ''}"
    samples: list[list[Sample]] = [[] for _ in graph.outputs]
    for seed in seeds:
        arrays = _arrays(graph, inputs, sizes, seed)
        eager = interpret(graph, arrays, sizes)
        exact = interpret_in_float64(graph, arrays, sizes)
        with _blamed(spec, what):
            results = run_scheduled(scheduled, arrays, sizes=sizes, run=run)
        for collected, ours, theirs, right in zip(samples, results, eager, exact, strict=True):
            collected.append(Sample(ours, np.asarray(theirs), right))
    allowance = _sum_error(graph, sizes)
    named = zip(graph.outputs, samples, strict=True)
    verdicts = [check_output(f"output %{value.name}", each, allowance(value)) for value, each in named]
    for verdict in verdicts:
        if not verdict.correct:
            raise PluginError(f"schedule {spec.name!r}: {what}: {verdict}")
    return Trial(params, sizes, tuple(verdicts))


def _sum_error(graph: Graph, sizes: Sizes) -> Callable[[Value], float]:
    """Relative error that adding up in any order may have: the root of the number of terms, by the type that sums are
    in, which is float32 at least."""
    terms = sum(_terms(node, sizes) for node in graph.nodes)

    def of(value: Value) -> float:
        is_wide = value.tensor.dtype == dtypes.f64
        unit = (dtypes.f64 if is_wide else dtypes.f32).unit_roundoff
        return unit * math.sqrt(terms) if value.tensor.dtype.is_float else 0.0

    return of


def _terms(node: Node, sizes: Sizes) -> int:
    """How many terms the longest sum of an operator has."""
    found = 0
    for stage in () if node.definition is None else node.definition.stages:
        if isinstance(stage, Scan):
            found = max(found, dims.evaluate(stage.results[0].shape[stage.axis], sizes))
        elif isinstance(stage, Scatter):
            found = max(found, math.prod(dims.evaluate(extent, sizes) for extent in stage.extents))
        values = getattr(stage, "values", (getattr(stage, "value", None),))
        for reduction in (n for value in values if value is not None for n in walk(value) if isinstance(n, Reduce)):
            found = max(found, math.prod(_extent(extent, sizes) for extent in reduction.extents))
    return found


def _extent(extent: object, sizes: Sizes) -> int:
    """A reduction's extent; 1 where it differs from element to element."""
    if isinstance(extent, Const):
        return int(extent.value)  # type: ignore[arg-type]  # extents are integers
    return dims.evaluate(extent.dim, sizes) if isinstance(extent, Size) else 1


def _arrays(graph: Graph, given: Mapping[str, Array], sizes: Sizes, seed: int) -> list[Array]:
    """The graph's inputs: those given by name, others at random."""
    names = [value.name for value in graph.inputs]
    for name in given:
        if name not in names:
            raise PluginError(f"the graph has no input {name!r}", hint=suggestion(name, names))
    bounds = _position_bounds(graph, sizes)
    generator = np.random.default_rng(seed)
    return [
        np.asarray(given[value.name]) if value.name in given else _random(value, sizes, bounds.get(value), generator)
        for value in graph.inputs
    ]


def _position_bounds(graph: Graph, sizes: Sizes) -> dict[Value, int]:
    """The extents that inputs of the graph are positions in."""
    bounds: dict[Value, int] = {}
    for node in graph.nodes:
        types = [None if value is None else value.type for value in node.inputs]
        for position in () if node.op.positions is None else node.op.positions(types, node.attrs):
            value = node.inputs[position.input]
            if value is not None:
                extent = dims.evaluate(position.extent, sizes)
                bounds[value] = min(extent, bounds.get(value, extent))
    return bounds


def _random(value: Value, sizes: Sizes, bound: int | None, generator: np.random.Generator) -> Array:
    type_ = value.type
    if not isinstance(type_, TensorType):
        raise PluginError(f"input %{value.name} is a {type_}, not a tensor", hint="pass it in `inputs`")
    shape = tuple(dims.evaluate(extent, sizes) for extent in type_.shape)
    if type_.dtype.is_float:
        return generator.standard_normal(shape).astype(type_.dtype.numpy())
    limit = 2 if type_.dtype.is_bool else 4 if bound is None else max(bound, 1)
    return generator.integers(0, limit, shape).astype(type_.dtype.numpy())


def _interpreted_run(rule: str) -> Run:
    """Runs programs by numpy; those of the rule must not write to their inputs."""

    def run(step: ScheduledTask, module: Module, arguments: Sequence[Any]) -> None:
        written = {source for _, source in step.task.in_place}
        before = {n: arguments[n].tobytes() for n in range(len(step.task.inputs)) if n not in written}
        run_module(module, arguments)
        for number, content in before.items() if step.rule_name == rule else ():
            if arguments[number].tobytes() != content:
                raise PluginError(f"schedule {rule!r}: the program for {step.task.summary} writes to input {number}")

    return run


def _compiled_run(ctx: CompileContext) -> Run:
    """Runs programs on this machine."""
    compiled: dict[Program, CompiledModule] = {}

    def run(step: ScheduledTask, module: Module, arguments: Sequence[Any]) -> None:
        if step.program not in compiled:
            compiled[step.program] = compile_module(module, ctx)
        types = [param.type for param in module.function(module.entry).params]
        arrays = [
            given.view(element_dtype(type_).numpy())
            for given, type_ in zip(arguments, types, strict=True)
            if isinstance(given, np.ndarray)
        ]
        numbers = arguments[len(arrays) :]
        memory = ctx.target.memory
        if memory is None:
            compiled[step.program](*arrays, *numbers)
            return
        placed = [memory.place(array) for array in arrays]
        compiled[step.program](*placed, *numbers)
        memory.synchronize()
        for array, other in zip(arrays, placed, strict=True):
            array[...] = memory.download(other)

    return run
