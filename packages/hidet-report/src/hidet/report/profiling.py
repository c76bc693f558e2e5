"""Measuring a compiled model task by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hidet.ir.stmt import Launch
from hidet.ir.visit import walk
from hidet.report.memory import memory_use
from hidet.report.origin import Origin, origin_of
from hidet.report.places import calling_line, model_line, node_name
from hidet.report.profile import SHORTEST, Profile, ProfileRow
from hidet.report.roofline import Roofline, roofline_of, work_of
from hidet.report.split import split_graph
from hidet.report.times_device import device_times
from hidet.report.times_host import host_times
from hidet.runtime.compiled import CompiledGraph
from hidet.runtime.symbol_values import symbol_reader
from hidet.schedule.device_constants import known_constants
from hidet.schedule.select import ScheduledTask
from hidet.schedule.task import ForeignStep

SECONDS = 1.0
"""How long a profile measures by default."""


def profile(compiled: CompiledGraph, *inputs: Any, seconds: float = SECONDS, **named: Any) -> Profile:
    """Measure each kernel of a compiled model as it runs in calls on these inputs, for about `seconds`.

    inputs, named: as the model is called. What it overwrites is overwritten by many calls; random operators draw.
    HidetError where the model was not compiled by this process, and the errors of a call. A call that is not profiled
    pays nothing: what is timed is a second graph on the same kernels and weights.
    """
    origin = origin_of(compiled.report())
    given = inputs_of(compiled, inputs, named)
    compiled.call_on_inputs(given)
    split = split_graph(compiled, origin)
    sizes = sizes_of(compiled, given)
    on_device = origin.ctx.target.memory is not None
    times = (device_times if on_device else host_times)(split, given, seconds)
    roof = roofline_of(origin.ctx)
    rows: list[ProfileRow] = []
    numbers: dict[str, int] = {}
    # As they ran, those in the end that did not.
    for name in dict.fromkeys((*(name for name, _, _ in times.timeline), *times.seconds)):
        taken = times.seconds[name]
        numbers[name] = len(rows)
        task = split.tasks.get(name)
        if task is None:
            rows.append(_foreign_row(split.foreign[name], taken, times.runs[name]))
        else:
            rows.append(_row(task, taken, times.runs[name], sizes, roof))
    return Profile(
        model=origin.graph.name,
        rows=tuple(rows),
        seconds=times.call,
        host_seconds=times.host,
        device=_device(origin),
        threads=None if on_device else origin.ctx.options.threads,
        calls=times.calls,
        timeline=tuple((numbers[name], begin, end) for name, begin, end in times.timeline),
        memory=memory_use(split.program, compiled.bundle.constants, sizes),
        roofline=roof,
    )


def inputs_of(compiled: CompiledGraph, inputs: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
    """Inputs of the graph in order, from arguments of the model that it was."""
    count = len(compiled.bundle.program.inputs)
    if not named and len(inputs) == compiled.signature.direct(count):
        return inputs
    arranged: Sequence[Any] = compiled.signature.arranged(tuple(inputs), named, count)
    return arranged


def sizes_of(compiled: CompiledGraph, inputs: Sequence[Any]) -> dict[str, int]:
    """Values of the symbols that the shapes of inputs tell."""
    sources = compiled.bundle.program.symbols
    values = symbol_reader(sources)(inputs)
    return dict(zip((source.name for source in sources), map(int, values), strict=True))


def _row(
    scheduled: ScheduledTask, seconds: float, runs: int, sizes: Mapping[str, int], roof: Roofline | None
) -> ProfileRow:
    task, program = scheduled.task, scheduled.program
    work = work_of(task, sizes)
    least = None
    if roof is not None and seconds >= SHORTEST:
        least = roof.least_seconds(work.flops * runs, work.nbytes * runs, work.dtype)
    params = scheduled.decision.params
    launches = sum(isinstance(node, Launch) for function in program.module.functions for node in walk(function.body))
    return ProfileRow(
        kernel=scheduled.symbol,
        operator=task.summary,
        node=node_name(task.loc),
        place=model_line(task.loc),
        seconds=seconds,
        call=calling_line(task.loc),
        operators=tuple(node.op.name for node in task.nodes),
        rule=scheduled.rule_name,
        params="" if params is None else repr(params),
        reason=scheduled.decision.reason,
        runs=runs,
        launches=launches,
        flops=work.flops * runs,
        nbytes=work.nbytes * runs,
        dtype=work.dtype,
        workspace=sum(nbytes for nbytes in program.scratch if isinstance(nbytes, int)),
        roof=least / seconds if least else None,
    )


def _foreign_row(step: ForeignStep, seconds: float, runs: int) -> ProfileRow:
    node = step.node
    types = ", ".join(str(value.type) for value in node.values)
    return ProfileRow(
        kernel=node.op.name,
        operator=f"{node.op.name}({types})",
        node=node_name(node.loc),
        place=model_line(node.loc),
        seconds=seconds,
        kind=node.op.kind,
        call=calling_line(node.loc),
        operators=(node.op.name,),
        runs=runs,
        launches=0,
    )


def _device(origin: Origin) -> str:
    memory = origin.ctx.target.memory
    if memory is not None:
        return memory.description
    constants = known_constants(origin.ctx)
    return origin.ctx.target.name if constants is None else constants.device
