"""Which tasks of a segment may run beside those before them, and that these keep their memory meanwhile."""

from __future__ import annotations

import itertools
import random
import textwrap

import pytest

from hidet.context import make_context
from hidet.fusion.fuse import fuse
from hidet.graph.parser import parse_graph
from hidet.host.independent import Running, Uses, order_beside
from hidet.host.program import HostCode, build_host_program
from hidet.ir.stmt import Invoke
from hidet.ir.visit import walk
from hidet.schedule.select import ScheduledTask, select_schedules


def built(text: str, *, overlaps: bool = True) -> tuple[HostCode, list[str]]:
    """The program of a graph, and the operators of its tasks in order."""
    ctx = make_context("cpu", {"cache": False})
    scheduled = select_schedules(fuse(parse_graph(textwrap.dedent(text), ctx.registry.operators), ctx), ctx)
    names = [step.task.nodes[-1].op.name for step in scheduled.steps if isinstance(step, ScheduledTask)]
    return build_host_program(scheduled, "main", overlaps=overlaps), names


def independent(code: HostCode) -> list[bool]:
    """Whether the call of each task says that it is independent of those before it."""
    (module,) = code.modules.values()
    return [node.is_independent for node in walk(module.function(module.entry).body) if isinstance(node, Invoke)]


SIBLINGS = """
graph g(%x: f32[8, 16], param %a: f32[16, 16], param %b: f32[16, 16], param %c: f32[16, 16]):
  %0: f32[8, 16] = matmul(%x, %a)
  %1: f32[8, 16] = matmul(%x, %b)
  %2: f32[8, 16] = matmul(%x, %c)
  return %0, %1, %2
"""
CHAIN = """
graph g(%x: f32[16, 16], param %a: f32[16, 16]):
  %0: f32[16, 16] = matmul(%x, %a)
  %1: f32[16, 16] = matmul(%0, %a)
  %2: f32[16, 16] = matmul(%1, %a)
  return %2
"""
BRANCHES = """
graph g(%x: f32[16, 16], param %a: f32[16, 16]):
  %0: f32[16, 16] = matmul(%x, %a)
  %1: f32[16, 16] = matmul(%0, %a)
  %2: f32[16, 16] = matmul(%x, %x)
  %3: f32[16, 16] = matmul(%1, %2)
  return %3
"""
PAIRS = """
graph g(%x: f32[16, 16], param %a: f32[16, 16], param %b: f32[16, 16]):
  %0: f32[16, 16] = matmul(%x, %a)
  %1: f32[16, 16] = matmul(%x, %b)
  %2: f32[16, 16] = matmul(%0, %b)
  %3: f32[16, 16] = matmul(%1, %b)
  return %2, %3
"""
READ_BY_TWO = """
graph g(%x: f32[16, 16], param %a: f32[16, 16]):
  %0: f32[16, 16] = matmul(%x, %a)
  %1: f32[16, 16] = matmul(%0, %a)
  %2: f32[16, 16] = matmul(%0, %x)
  %3: f32[16, 16] = matmul(%2, %a)
  return %1, %3
"""
OVERWRITES = """
graph g(%x: f32[16, 16], %c: f32[16, 16], param %a: f32[16, 16]):
  %0: f32[16, 16] = matmul(%x, %a)
  %1: f32[16, 16] = matmul(%c, %a)
  %2: f32[16, 16] = matmul(%x, %x)
  return %0, %1, %2
  mutates 1 <- 1
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SIBLINGS, [False, True, True]),
        (CHAIN, [False, False, False]),
        # The third one needs nothing of the first two, and comes before the second, which waits for the first.
        (BRANCHES, [False, True, False, False]),
        # The last one needs what the one before it has waited for.
        (PAIRS, [False, True, False, True]),
        (READ_BY_TWO, [False, False, True, False]),
    ],
)
def test_a_task_is_independent_of_those_since_the_last_one_that_waited(text: str, expected: list[bool]) -> None:
    assert independent(built(text)[0]) == expected
    assert not any(independent(built(text, overlaps=False)[0]))


def test_nothing_runs_beside_a_task_that_overwrites_what_the_caller_passed() -> None:
    code, names = built(OVERWRITES)
    assert names[:3] == ["matmul"] * 3
    # The last task copies a result to the caller's tensor, which may lie where another one of the caller's does.
    assert independent(code) == [False, True, True, False]


def test_what_may_still_be_used_is_not_given_to_a_task_that_runs_beside_it() -> None:
    buffers = {(buffer.first, buffer.last) for buffer in built(PAIRS)[0].program.buffers}
    # The first result is last read by the third task, beside which the fourth one runs.
    assert buffers == {(0, 3), (1, 3)}
    plain = {(buffer.first, buffer.last) for buffer in built(PAIRS, overlaps=False)[0].program.buffers}
    assert plain == {(0, 2), (1, 3)}


@pytest.mark.parametrize("seed", range(200))
def test_any_order_keeps_what_depends_on_each_other_and_runs_nothing_beside_what_it_depends_on(seed: int) -> None:
    rng = random.Random(seed)
    places = range(rng.randint(2, 9))
    tasks = [
        Uses(
            frozenset(rng.choices(places, k=rng.randint(0, 2))),
            frozenset(rng.choices(places, k=rng.randint(1, 2))),
            rng.random() < 0.1,
        )
        for _ in range(rng.randint(1, 15))
    ]
    numbers = order_beside(range(len(tasks)), tasks.__getitem__)
    assert sorted(numbers) == list(range(len(tasks)))
    for later, earlier in itertools.combinations(reversed(numbers), 2):
        is_bound = tasks[later].depends_on(tasks[earlier].read, tasks[earlier].written)
        if is_bound or tasks[earlier].is_exclusive or tasks[later].is_exclusive:
            assert earlier < later
    running: list[int] = []
    state = Running[int]()
    for number in numbers:
        is_beside = state.allows(tasks[number])
        if is_beside:
            assert not any(tasks[number].depends_on(tasks[n].read, tasks[n].written) for n in running)
            assert not any(tasks[n].is_exclusive for n in (*running, number))
        running = [*running, number] if is_beside else [number]
        state.add(tasks[number], is_beside=is_beside)
