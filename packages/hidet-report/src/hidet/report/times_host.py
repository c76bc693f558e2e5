"""Times of tasks that run on the host: the clock is read around each of them, in calls that take turns with calls of
the model as it is."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from hidet.compiler.collector import paused_gc
from hidet.report.split import IDLE, Call, SplitGraph
from hidet.report.times import OneCall, Times, mean_seconds, quietest

if sys.platform != "win32":
    import resource

_LEAST_CALLS = 5
_MOST_CALLS = 2000


class _Stamps:
    """Notes when functions run, by a clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.runs: list[tuple[str, float, float]] = []

    def around(self, name: str, call: Call) -> Call:
        """The function, noted."""

        clock = self.clock

        def noted(*arguments: Any, **named: Any) -> object:
            start = clock()
            result = call(*arguments, **named)
            self.runs.append((name, start, clock()))
            return result

        return noted

    def one_call(self, run: Callable[[], object]) -> OneCall:
        """A call of a graph, whose functions may be noted."""
        self.runs.clear()
        before = _disturbances()
        start = self.clock()
        run()
        total = self.clock() - start
        runs = [(name, begin - start, end - start) for name, begin, end in self.runs]
        return OneCall(total, _disturbances() - before, runs)


def _clock(split: SplitGraph) -> Callable[[], float]:
    """The time that this thread has had a processor, where it does all the work: other processes take none of that."""
    is_alone = split.origin.ctx.options.threads == 1 and not split.foreign and sys.platform == "linux"
    return time.thread_time if is_alone else time.perf_counter


def _disturbances() -> int:
    """How often the system has taken a processor from a thread of this process; 0 where it does not say."""
    if sys.platform == "win32":
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def host_times(split: SplitGraph, inputs: Sequence[Any], seconds: float) -> Times:
    """Times of a graph on the host, measured for about `seconds`.

    Compiled code calls one task after the other; between them no time is counted here, which Python would take.
    """
    stamps = _Stamps(_clock(split))
    noted_idle = stamps.around(IDLE, split.functions[IDLE])
    functions = {symbol: _warmed(stamps.around(symbol, split.functions[symbol]), noted_idle) for symbol in split.tasks}
    graph = split.callable(functions, split.with_foreign(stamps.around))
    graphs = (split.compiled, graph)
    for each in (*graphs, *graphs):
        each.call_on_inputs(inputs)
    whole: list[OneCall] = []
    calls: list[OneCall] = []
    end = time.perf_counter() + seconds
    with paused_gc():
        while len(calls) < _LEAST_CALLS or (time.perf_counter() < end and len(calls) < _MOST_CALLS):
            whole.append(stamps.one_call(partial(split.compiled.call_on_inputs, inputs)))
            calls.append(stamps.one_call(partial(graph.call_on_inputs, inputs)))
    return times_of(split, calls, whole)


def _warmed(call: Call, noted_idle: Call) -> Call:
    """A function behind one that does nothing, twice: what Python needs is in the caches for the second one, whose time
    is what the clock sees of a call by itself, and for the function alike."""

    def warmed(address: int) -> None:
        noted_idle(address)
        noted_idle(address)
        call(address)

    return warmed


def times_of(split: SplitGraph, calls: Sequence[OneCall], whole: Sequence[OneCall]) -> Times:
    """What calls of the graph by its tasks, with calls of `IDLE` between them, and whole calls come to."""
    quiet = quietest(calls)
    # Of those that do nothing the last one before a task, which found the caches as the task does.
    pairs = (pair for call in quiet for pair in pairwise(call.runs))
    idle = [end - begin for (name, begin, end), (after, _, _) in pairs if name == IDLE != after]
    inside = statistics.median(idle) if idle else 0.0
    taken = dict.fromkeys((*split.tasks, *split.foreign), 0.0)
    counts = dict.fromkeys(taken, 0)
    follows = split.follows
    host = 0.0
    for call in quiet:
        last, at = "", 0.0
        for name, arrival, begin, end in _arrivals(call):
            if (last, name) not in follows:
                host += arrival - at
            cost = inside if name in split.tasks else 0.0
            taken[name] += max(end - begin - cost, 0.0)
            counts[name] += 1
            last, at = name, end
        host += call.total - at
    return Times(
        seconds={name: value / len(quiet) for name, value in taken.items()},
        runs={name: round(count / len(quiet)) for name, count in counts.items()},
        host=host / len(quiet),
        call=mean_seconds(quietest(whole)),
        calls=len(calls),
        timeline=_timeline(quiet[0], inside, follows),
    )


def _timeline(
    call: OneCall, inside: float, follows: frozenset[tuple[str, str]]
) -> tuple[tuple[str, float, float], ...]:
    """When tasks would run in this call without what the clock takes between them."""
    found: list[tuple[str, float, float]] = []
    last, at, skipped = "", 0.0, 0.0
    for name, arrival, begin, end in _arrivals(call):
        skipped += begin - (at if (last, name) in follows else arrival)
        length = max(end - begin - inside, 0.0)
        found.append((name, begin - skipped, begin - skipped + length))
        skipped += end - begin - length
        last, at = name, end
    return tuple(found)


def _arrivals(call: OneCall) -> Iterator[tuple[str, float, float, float]]:
    """Tasks that ran: when the host came to each, before what does nothing, when it began, and when it ended."""
    arrival: float | None = None
    for name, begin, end in call.runs:
        arrival = begin if arrival is None else arrival
        if name != IDLE:
            yield name, arrival, begin, end
            arrival = None
