"""`check_rule` passes rules that are right, and says of the others what is wrong, where, and with which parameters."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from hidet import dtypes
from hidet.context import make_context
from hidet.dims import product
from hidet.errors import PluginError, ScheduleError
from hidet.ir import build
from hidet.ir.expr import Binary, Var
from hidet.ir.func import Function, Module
from hidet.ir.stmt import Launch, Store
from hidet.ir.types import PointerType
from hidet.plugins import ScheduleSpec
from hidet.schedule.rule import Match, Program
from hidet.schedule.space import Knob, Space
from hidet.testing import check_rule

SQUARE = """
    graph g(%x: f32[4, 5]):
      %0: f32[4, 5] = square(%x)
      return %0
"""
SYMBOLIC = """
    symbol n: 1..
    graph g(%x: f32[n, 3]):
      %0: f32[n, 3] = square(%x)
      return %0
"""


class Square:
    """`square` of contiguous f32, an item an element."""

    factor = 1.0
    skipped = 0

    def match(self, task, ctx):
        (x,) = task.inputs
        return Match(task) if task.is_plain and x.type.dtype is dtypes.f32 else None

    def space(self, match, ctx):
        return Space.of_knob(Knob("turns", (1, 2)))

    def default(self, match, ctx):
        return 1

    def build(self, match, params, ctx):
        source, result = (Var(name, PointerType(dtypes.f32)) for name in ("source", "result"))
        i, n = build.size_var("i"), build.size_var("n")
        value = self.value(build.load(source, i), params)
        kernel = Function("square", (source, result), Store(result, (i,), value), kind="kernel", grid_vars=(i,))
        entry = Function("entry", (source, result, n), Launch("square", (n,), (source, result)), kind="host")
        return Program(Module((kernel, entry), "entry"), arguments=(self.count(match),))

    def value(self, x, params):
        return x * x

    def count(self, match):
        return product(match.task.outputs[0].type.shape)


SPEC = ScheduleSpec(name="mine.square", ops=("elementwise",), targets=("cpu",), load="json:loads")


@pytest.fixture(autouse=True)
def cpu_alone(monkeypatch):
    monkeypatch.setenv("HIDET_PLUGINS", "hidet.cpu._plugin")


def fault(rule, graph=SQUARE, **options) -> str:
    with pytest.raises(PluginError) as caught:
        check_rule(rule, graph, **options)
    return caught.value.message


@pytest.mark.parametrize("rule", [Square, Square()])
@pytest.mark.parametrize("where", ["interpreter", "target"])
def test_a_right_rule_passes_with_every_point_of_its_space(rule, where) -> None:
    report = check_rule(rule, SQUARE, where=where)
    assert (report.rule, report.tasks) == ("Square", ("elementwise(f32[4, 5])",))
    assert [params for trial in report.trials for _, params in trial.params] == [2]
    assert all(verdict.correct for trial in report.trials for verdict in trial.verdicts)
    assert str(report) == "Square takes elementwise(f32[4, 5]): 2 runs with 2 choices of parameters"


def test_symbols_are_tried_as_several_sizes_or_as_those_given() -> None:
    assert [trial.sizes["n"] for trial in check_rule(Square, SYMBOLIC, points=0).trials] == [1, 2, 7, 33]
    assert [trial.sizes for trial in check_rule(Square, SYMBOLIC, points=0, sizes=[{"n": 9}]).trials] == [{"n": 9}]


def test_a_rule_of_an_installed_wheel_is_checked_by_its_spec() -> None:
    spec = make_context("cpu").registry.schedules["cpu.softmax"]
    text = "graph g(%x: f32[3, 7]):\n  %0: f32[3, 7] = softmax(%x, axis=-1)\n  return %0\n"
    assert check_rule(spec, text).tasks == ("softmax(f32[3, 7])",)


def test_inputs_may_be_given_and_integers_are_positions_that_exist() -> None:
    spec = make_context("cpu").registry.schedules["fallback"]
    text = "graph g(%x: f32[3, 4], %i: i64[6]):\n  %0: f32[6, 4] = index_select(%x, %i, axis=0)\n  return %0\n"
    check_rule(spec, text)
    check_rule(spec, text, inputs={"i": np.array([2, 2, 2, 2, 2, 0])})
    with pytest.raises(PluginError, match=r"the graph has no input 'j'"):
        check_rule(spec, text, inputs={"j": np.zeros(6, np.int64)})


class TestWhatIsWrong:
    def test_numbers(self) -> None:
        class Rule(Square):
            def value(self, x, params):
                return x * x * 1.001

        message = fault(Rule)
        assert message.startswith("schedule 'Rule': its default parameters: output %0 float32: WRONG: ")
        assert "rms error is" in message

    def test_numbers_at_one_point_of_the_space(self) -> None:
        class Rule(Square):
            def value(self, x, params):
                return x * x * float(params)

        assert "schedule 'Rule': elementwise(f32[4, 5]) with 2: output %0" in fault(Rule)

    def test_what_is_not_written(self) -> None:
        class Rule(Square):
            def count(self, match):
                return product(match.task.outputs[0].type.shape) - 1

        assert "NaN or inf differs at 1 of 20 places, first at (3, 4): nan" in fault(Rule)

    def test_accesses_outside_of_memory(self) -> None:
        class Rule(Square):
            def count(self, match):
                return product(match.task.outputs[0].type.shape) + 1

        assert re.match(r"schedule 'Rule': its default parameters: .*20", fault(Rule))

    def test_numbers_at_some_sizes(self) -> None:
        class Rule(Square):
            def count(self, match):
                return product(match.task.outputs[0].type.shape) // 4 * 4

        assert "sizes {'n': 1}: output %0 float32: WRONG" in fault(Rule, SYMBOLIC)

    def test_an_input_that_is_written(self) -> None:
        class Rule(Square):
            def build(self, match, params, ctx):
                made = super().build(match, params, ctx)
                kernel, entry = made.module.functions
                source, _ = kernel.params
                body = build.seq([kernel.body, Store(source, kernel.grid_vars, build.const(0.0, dtypes.f32))])
                return replace(made, module=Module((replace(kernel, body=body), entry), "entry"))

        assert "the program for elementwise(f32[4, 5]) writes to input 0" in fault(Rule)

    def test_invalid_programs(self) -> None:
        class Rule(Square):
            def value(self, x, params):
                return Binary("add", x, build.const(1, dtypes.i32), dtypes.f32)

        assert "schedule 'Rule': build for elementwise(f32[4, 5]) raised VerifyError" in fault(Rule)

    def test_no_program(self) -> None:
        class Rule(Square):
            def build(self, match, params, ctx):
                return None

        assert "it returned a NoneType, expected a hidet.schedule.Program" in fault(Rule)

    def test_a_match_that_raises(self) -> None:
        text = SQUARE.replace("(%x: f32[4, 5])", "(%x: f32[4, 5], %y: f32[4, 5])").replace("square(%x)", "add(%x, %y)")
        assert "match for elementwise(f32[4, 5], f32[4, 5]) raised ValueError" in fault(Square, text)

    def test_a_rule_that_refuses_everything(self) -> None:
        message = fault(Square, SQUARE.replace("f32", "f64"))
        assert "takes none of the graph's tasks on cpu" in message
        assert "elementwise(f64[4, 5]) with 1 operators is refused by its match() and goes to cpu." in message

    def test_a_rule_for_other_operators(self) -> None:
        assert "is none that it is asked for" in fault(replace(SPEC, ops=("softmax",)))

    def test_what_cannot_be_imported(self) -> None:
        assert "cannot load 'nowhere:Rule'" in fault(replace(SPEC, load="nowhere:Rule"))

    def test_what_is_no_rule(self) -> None:
        assert "check_rule takes a ScheduleSpec, or a rule or its class, got 7, which has no match()" in fault(7)

    def test_a_space_of_another_class(self) -> None:
        class Rule(Square):
            def space(self, match, ctx):
                return 2

        assert "space() of rule Rule returned a int, expected a Space" in fault(Rule)

    def test_a_default_that_the_space_does_not_have(self) -> None:
        class Rule(Square):
            def default(self, match, ctx):
                return 3

        assert "its default for elementwise(f32[4, 5]), 3, is no point of its space" in fault(Rule)


def test_points_that_a_rule_calls_impossible_are_reported_and_no_fault() -> None:
    class Rule(Square):
        def build(self, match, params, ctx):
            if params == 2:
                raise ScheduleError("two turns are too many")
            return super().build(match, params, ctx)

    (text,) = check_rule(Rule, SQUARE).impossible
    assert "2" in text and "two turns are too many" in text
