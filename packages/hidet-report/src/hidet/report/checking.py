"""Checking a compiled model kernel by kernel against float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hidet import dims
from hidet.errors import HidetError
from hidet.graph.graph import Value
from hidet.report.accuracy import Accuracy, AccuracyRow, errors_of, problem_of
from hidet.report.node_text import task_title
from hidet.report.origin import OriginPart, origin_of
from hidet.report.places import calling_line, model_line, node_name
from hidet.report.profiling import inputs_of, sizes_of
from hidet.report.reference import Reference, Unknown
from hidet.report.repro import write_repro
from hidet.report.split import Call, SplitGraph, split_graph
from hidet.report.table import Array, Place, places_of, read_tensor
from hidet.runtime.compiled import CompiledGraph
from hidet.schedule.select import ScheduledTask
from hidet.schedule.task import TaskTensor


@dataclass(frozen=True, slots=True)
class WrongKernel:
    """The first kernel that is wrong, with the inputs that it had."""

    scheduled: ScheduledTask
    inputs: Sequence[Array]


def check_accuracy(compiled: CompiledGraph, *inputs: Any, repro: str | Path | None = None, **named: Any) -> Accuracy:
    """Compare each kernel of a compiled model with float64, as it runs on these inputs.

    A kernel is right where it is about as near to float64 as numpy is, which computes the same operators in the types
    of the model on the inputs that the kernel had (`hidet.report.accuracy.limit_of`). Results of random operators, of
    operators without a definition, and of sizes that a call finds out are not checked. repro: a script to write, which
    runs the first wrong kernel alone, with its inputs beside it. HidetError where the model was not compiled by this
    process, and the errors of a call.
    """
    origin = origin_of(compiled.report())
    given = inputs_of(compiled, inputs, named)
    split = split_graph(compiled, origin)
    sizes, findings = sizes_of(compiled, given), _Findings()
    functions: dict[str, Call] = {}
    for number, part in enumerate(origin.parts):
        functions |= _Check(findings, split, part, sizes, is_inner=number > 0).functions()
    split.callable(functions).call_on_inputs(given)
    found = Accuracy(origin.graph.name, tuple(findings.rows.values()))
    if repro is None or findings.wrong is None:
        return found
    first = found.first_wrong
    assert first is not None
    write_repro(Path(repro), findings.wrong.scheduled.task, findings.wrong.inputs, origin.ctx, first)
    return replace(found, repro=str(repro))


class _Findings:
    """Rows of results by segment and number, in the order in which they were computed first, and the first wrong
    kernel."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], AccuracyRow] = {}
        self.wrong: WrongKernel | None = None

    def add(self, key: tuple[str, int], row: AccuracyRow, kernel: WrongKernel) -> None:
        """A result of a run of a kernel. Of several runs, in a loop, the first wrong one counts, else the worst."""
        former = self.rows.get(key)
        if former is None or (not former.problem and (bool(row.problem), _own(row)) > (False, _own(former))):
            self.rows[key] = row
        if row.problem and self.wrong is None:
            self.wrong = kernel


def _own(row: AccuracyRow) -> float:
    return -1.0 if row.own is None else row.own.rms


class _Check:
    """Looks at each task of a graph, or of a sub-graph of it, while it runs."""

    def __init__(
        self, findings: _Findings, split: SplitGraph, part: OriginPart, sizes: Mapping[str, int], *, is_inner: bool
    ) -> None:
        self._findings = findings
        self._split = split
        self._sizes = sizes
        self._is_inner = is_inner
        self._memory = split.origin.ctx.target.memory
        self._graph = part.scheduled.task_graph.graph
        self._own = [symbol for segment in part.segments for symbol in split.pieces[segment]]
        self._exact = Reference(self._graph, sizes, is_wide=True)
        self._plain = Reference(self._graph, sizes, is_wide=False)

    def functions(self) -> dict[str, Call]:
        """The segments, looked at."""
        return {symbol: self._watched(symbol, self._split.tasks[symbol]) for symbol in self._own}

    def _watched(self, symbol: str, scheduled: ScheduledTask) -> Call:
        call = self._split.functions[symbol]
        task = scheduled.task
        places = places_of(self._split.modules[symbol], task)
        count = len(task.inputs)

        def watched(table: int, *stream: int) -> None:
            if not all(map(self._has_known_size, (*task.inputs, *task.outputs))):
                call(table, *stream)
                for number, tensor in enumerate(task.outputs):
                    self._findings.rows.setdefault((symbol, number), _row(scheduled, tensor))
                return
            inputs = [self._read(table, *pair, stream) for pair in zip(places, task.inputs, strict=False)]
            call(table, *stream)
            results = [self._read(table, *pair, stream) for pair in zip(places[count:], task.outputs, strict=True)]
            self._judge(symbol, scheduled, inputs, results)

        return watched

    def _has_known_size(self, tensor: TaskTensor) -> bool:
        try:
            for extent in (*tensor.type.shape, *tensor.type.element_strides):
                dims.evaluate(extent, self._sizes)
        except HidetError:
            return False
        return True

    def _read(self, table: int, place: Place, tensor: TaskTensor, stream: tuple[int, ...]) -> Array:
        return read_tensor(table, place, tensor, self._sizes, self._memory, stream)

    def _judge(self, symbol: str, scheduled: ScheduledTask, inputs: Sequence[Array], results: Sequence[Array]) -> None:
        task = scheduled.task
        exact, plain = (Reference(self._graph, self._sizes, is_wide=is_wide) for is_wide in (True, False))
        # What comes into a sub-graph is another tensor in each of its runs: nothing is known of it before.
        totals = () if self._is_inner else (self._exact, self._plain)
        for tensor, array in zip(task.inputs, inputs, strict=True):
            exact.give(tensor.value, array)
            plain.give(tensor.value, array)
            for total in totals:
                # What no operator has computed, or none that numpy knows, is as it was found.
                _known_or(total, tensor.value, array)
        for number, (tensor, array) in enumerate(zip(task.outputs, results, strict=True)):
            row = _row(scheduled, tensor)
            try:
                right, other = exact.value(tensor.value), plain.value(tensor.value)
            except Unknown:
                for total in totals:
                    total.give(tensor.value, array)
            else:
                own, own_plain, limit, problem = problem_of(array, right, other, tensor.type.dtype)
                row = replace(row, own=own, own_plain=own_plain, limit=limit, problem=problem)
                if totals:
                    row = self._with_totals(row, tensor.value, array)
            self._findings.add((symbol, number), row, WrongKernel(scheduled, inputs))

    def _with_totals(self, row: AccuracyRow, value: Value, array: Array) -> AccuracyRow:
        _known_or(self._exact, value, array)
        _known_or(self._plain, value, array)
        whole = self._exact.value(value)
        total, total_plain = errors_of(array, whole), errors_of(self._plain.value(value), whole)
        return replace(row, total=total, total_plain=total_plain)


def _row(scheduled: ScheduledTask, tensor: TaskTensor) -> AccuracyRow:
    """A result of a task, of which nothing is known yet."""
    task = scheduled.task
    return AccuracyRow(
        title=task_title(task),
        kernel=scheduled.symbol,
        node=node_name(task.loc),
        line=calling_line(task.loc) or model_line(task.loc),
        dtype=tensor.type.dtype.short,
    )


def _known_or(reference: Reference, value: Value, found: Array) -> None:
    """Have a reference know a value: as it computes it, else as it was found."""
    if reference.knows(value):
        return
    try:
        reference.value(value)
    except Unknown:
        reference.give(value, found)
