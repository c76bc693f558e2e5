"""Kernels of a compiled model as ranges of another profiler: torch.profiler, NVTX."""

from __future__ import annotations

from collections.abc import Callable

from hidet.report.node_text import task_title
from hidet.report.origin import origin_of
from hidet.report.places import node_name
from hidet.report.split import Call, split_graph
from hidet.runtime.compiled import CompiledGraph
from hidet.schedule.select import ScheduledTask


def with_ranges(compiled: CompiledGraph, around: Callable[[str, Call], Call]) -> CompiledGraph:
    """The same model on the same kernels and weights, in which what `around` gives for a task's name and function is
    called for it.

    HidetError where the model was not compiled by this process.
    """
    split = split_graph(compiled, origin_of(compiled.report()))
    functions = {symbol: around(range_name(task), split.functions[symbol]) for symbol, task in split.tasks.items()}
    return split.callable(functions)


def range_name(scheduled: ScheduledTask) -> str:
    """What a task is called there: `hidet::matmul + 2 (encoder.fc)`."""
    name = node_name(scheduled.task.loc)
    return f"hidet::{task_title(scheduled.task)}" + (f" ({name})" if name else "")
