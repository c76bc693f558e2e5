"""A routine of a third party: an operator that uses it is evaluated by numpy and runs on a CPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import hidet
from hidet import dtypes
from hidet.compiler.graphs import compile_graph
from hidet.compute.definition import Definition, Operand, Routine, single
from hidet.compute.routine import RoutineSpec
from hidet.context import make_context
from hidet.errors import ScheduleError
from hidet.graph import Graph, GraphBuilder, TensorType
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Var
from hidet.ir.stmt import Assign, Declare, While
from hidet.schedule.routines.site import RoutineKernel, RoutineSite
from hidet.testing.interpret import interpret

HERE = __name__
Array = np.ndarray[Any, Any]


def steps_reference(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> Sequence[Array]:
    """How often each number is halved, or tripled and increased by one, before it is 1; at most `limit` times."""

    def count(n: int) -> int:
        steps = 0
        while n != 1 and steps < attributes["limit"]:
            n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
        return steps

    return [np.vectorize(count, otypes=[np.int64])(arrays[0])]


def steps_program(site: RoutineSite) -> RoutineKernel:
    """A work item counts the steps of one number."""
    (x,), (result,) = site.stage.operands, site.stage.results
    item = build.size_var("item")
    n, steps = Var("n", dtypes.i64), Var("steps", dtypes.i64)
    is_even = build.equal(n % 2, 0)
    is_going = build.logical_and(
        build.binary("ne", n, 1), build.binary("lt", steps, build.index(site.stage.attribute_values()["limit"]))
    )
    body = [
        Declare(n, site.read(x, (item,))),
        Declare(steps, build.index(0)),
        While(is_going, build.seq([Assign(n, build.select(is_even, n // 2, n * 3 + 1)), Assign(steps, steps + 1)])),
        site.write(result, (item,), steps),
    ]
    return RoutineKernel(item, x.shape[0], build.seq(body))


STEPS = RoutineSpec(
    name="acme.steps",
    operands=("x",),
    results=("steps",),
    attributes=(("limit", 1000),),
    reference=f"{HERE}:steps_reference",
    program=f"{HERE}:steps_program",
    doc="Steps of the numbers x[n] to 1.",
)


def _define(x: Operand, *, limit: int) -> Definition:
    return single((x,), Routine(STEPS, (x,), (Operand("steps", dtypes.i64, x.shape),), (("limit", limit),)))


class Operators:
    """A plug-in that has forgotten its routine."""

    HIDET_API = 1

    def hidet_operators(self) -> Iterable[OperatorSpec]:
        yield OperatorSpec(
            name="acme.steps", inputs=("x",), attributes=(Attribute("limit", 1000),), kind="routine", define=_define
        )


class Acme(Operators):
    def hidet_routines(self) -> Iterable[RoutineSpec]:
        yield STEPS


def graph() -> Graph:
    builder = GraphBuilder(make_context("cpu").registry.operators, name="steps")
    x = builder.input(TensorType(dtypes.i64, (7,)), "x")
    doubled = builder.emit("mul", x, x)
    return builder.build([builder.emit("add", builder.emit("acme.steps", doubled, limit=20), x)])


X = np.array([1, 2, 3, 7, 27, 871, 6], np.int64)
EXPECTED = X + np.array([0, 2, 19, 20, 20, 20, 20])


def test_numpy_evaluates_it_by_its_reference() -> None:
    with hidet.plugins.use(Acme):
        (found,) = interpret(graph(), [X])
    assert found.tolist() == EXPECTED.tolist()


def test_a_cpu_runs_its_program() -> None:
    with hidet.plugins.use(Acme):
        compiled = compile_graph(graph(), make_context("cpu"))
        assert compiled(X).tolist() == EXPECTED.tolist()
        assert compiled.report().nodes.names == (("routine", "acme.steps"),)


def test_a_routine_that_no_plugin_offers_is_refused_by_name() -> None:
    with (
        hidet.plugins.use(Operators),
        pytest.raises(ScheduleError, match=r"routine acme\.steps is not the one that plug-ins offer"),
    ):
        compile_graph(graph(), make_context("cpu"))
