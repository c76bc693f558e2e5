"""Checking a compiled model kernel by kernel against float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hidet.graph.graph import Value
from hidet.report.accuracy import Accuracy, AccuracyRow, errors_of, problem_of
from hidet.report.origin import OriginPart, origin_of
from hidet.report.places import calling_line, model_line, node_name
from hidet.report.profiling import inputs_of, sizes_of
from hidet.report.reference import Reference, Unknown
from hidet.report.repro import write_repro
from hidet.report.split import Call, SplitGraph, split_graph
from hidet.report.table import Array, Place, places_of, read_tensor
from hidet.runtime.compiled import CompiledGraph
from hidet.schedule.select import ScheduledTask


@dataclass(frozen=True, slots=True)
class WrongKernel:
    """The first kernel that is wrong, with the inputs that it had."""

    scheduled: ScheduledTask
    inputs: Sequence[Array]


def check_accuracy(compiled: CompiledGraph, *inputs: Any, repro: str | Path | None = None, **named: Any) -> Accuracy:
    """Compare each kernel of a compiled model with float64, as it runs on these inputs.

    A kernel is right where it is about as near to float64 as numpy is, which computes the same operators in the types
    of the model on the inputs that the kernel had (`hidet.report.accuracy.limit_of`). Results of random operators, of
    operators without a definition, and inside of branches and loops are not checked. repro: a script to write, which
    runs the first wrong kernel alone, with its inputs beside it. HidetError where the model was not compiled by this
    process, and the errors of a call.
    """
    origin = origin_of(compiled.report())
    given = inputs_of(compiled, inputs, named)
    split = split_graph(compiled, origin)
    check = _Check(split, origin.parts[0], sizes_of(compiled, given))
    split.callable(check.functions()).call_on_inputs(given)
    found = Accuracy(origin.graph.name, tuple(check.rows))
    if repro is None or check.wrong is None:
        return found
    first = found.first_wrong
    assert first is not None
    write_repro(Path(repro), check.wrong.scheduled.task, check.wrong.inputs, origin.ctx, first)
    return replace(found, repro=str(repro))


class _Check:
    """Looks at each task of a graph while it runs."""

    def __init__(self, split: SplitGraph, part: OriginPart, sizes: Mapping[str, int]) -> None:
        self.rows: list[AccuracyRow] = []
        self.wrong: WrongKernel | None = None
        self._split = split
        self._sizes = sizes
        self._memory = split.origin.ctx.target.memory
        self._graph = part.scheduled.task_graph.graph
        self._own = {symbol for segment in part.segments for symbol in split.pieces[segment]}
        self._exact = Reference(self._graph, sizes, is_wide=True)
        self._plain = Reference(self._graph, sizes, is_wide=False)

    def functions(self) -> dict[str, Call]:
        """Segments that are looked at; those of sub-graphs as they are."""
        tasks = self._split.tasks
        return {
            symbol: self._watched(symbol, task) if symbol in self._own else self._split.functions[symbol]
            for symbol, task in tasks.items()
        }

    def _watched(self, symbol: str, scheduled: ScheduledTask) -> Call:
        call = self._split.functions[symbol]
        task = scheduled.task
        places = places_of(self._split.modules[symbol], task)
        count = len(task.inputs)

        def watched(table: int, *stream: int) -> None:
            inputs = [self._read(table, *pair, stream) for pair in zip(places, task.inputs, strict=False)]
            call(table, *stream)
            results = [self._read(table, *pair, stream) for pair in zip(places[count:], task.outputs, strict=True)]
            self._judge(scheduled, inputs, results)

        return watched

    def _read(self, table: int, place: Place, tensor: Any, stream: tuple[int, ...]) -> Array:
        return read_tensor(table, place, tensor, self._sizes, self._memory, stream)

    def _judge(self, scheduled: ScheduledTask, inputs: Sequence[Array], results: Sequence[Array]) -> None:
        task = scheduled.task
        exact, plain = (Reference(self._graph, self._sizes, is_wide=is_wide) for is_wide in (True, False))
        for tensor, array in zip(task.inputs, inputs, strict=True):
            exact.give(tensor.value, array)
            plain.give(tensor.value, array)
            for total in (self._exact, self._plain):
                # What no operator has computed, or none that numpy knows, is as it was found.
                _known_or(total, tensor.value, array)
        for tensor, array in zip(task.outputs, results, strict=True):
            row = AccuracyRow(
                title=f"{task.op_name} + {len(task.nodes) - 1}" if len(task.nodes) > 1 else task.op_name,
                kernel=scheduled.symbol,
                node=node_name(task.loc),
                line=calling_line(task.loc) or model_line(task.loc),
                dtype=tensor.type.dtype.short,
            )
            try:
                right, other = exact.value(tensor.value), plain.value(tensor.value)
            except Unknown:
                self.rows.append(row)
                self._exact.give(tensor.value, array)
                self._plain.give(tensor.value, array)
                continue
            own, own_plain, limit, problem = problem_of(array, right, other, tensor.type.dtype)
            _known_or(self._exact, tensor.value, array)
            _known_or(self._plain, tensor.value, array)
            whole = self._exact.value(tensor.value)
            row = replace(
                row,
                own=own,
                own_plain=own_plain,
                limit=limit,
                total=errors_of(array, whole),
                total_plain=errors_of(self._plain.value(tensor.value), whole),
                problem=problem,
            )
            self.rows.append(row)
            if problem and self.wrong is None:
                self.wrong = WrongKernel(scheduled, inputs)


def _known_or(reference: Reference, value: Value, found: Array) -> None:
    """Have a reference know a value: as it computes it, else as it was found."""
    if reference.knows(value):
        return
    try:
        reference.value(value)
    except Unknown:
        reference.give(value, found)
