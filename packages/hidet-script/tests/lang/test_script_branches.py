"""Parts of expressions that Python computes only where a condition holds: statements in them run only there."""

import numpy as np
import pytest

from hidet import lang
from hidet.gpu.testing.launches import script_results
from hidet.ir.interpret import run_module
from hidet.lang import attrs, i64
from hidet.lang.module import module_of

# ruff: noqa: RUF021  # scripts use the forms that are tested


@lang.script
def nxt(p: ~i64) -> i64:
    p[0] = p[0] + 1
    return p[0]


def test_a_conditional_expression_runs_one_side():
    @lang.script
    def main(o: i64[4]):
        def put(at, v):
            o[at] = v
            return v

        x = put(0, 3) if o[3] == 0 else put(1, 9)
        o[2] = x
        o[3] = 1 if o[3] == 1 else put(3, 4) + 1

    assert script_results(main) == [3, 0, 3, 5]


def test_a_conditional_expression_runs_one_side_that_gives_nothing():
    @lang.script
    def main(o: i64[4]):
        def put(at, v):
            o[at] = v

        put(0, 3) if o[3] == 0 else put(1, 9)

    assert script_results(main) == [3, 0, 0, 0]


@pytest.mark.parametrize("given", [0, 1, 2])
def test_and_and_or_stop_at_the_operand_that_decides(given):
    @lang.script
    def main(o: i64[8]):
        def count(at, v):
            o[at] += 1
            return v

        x = o[0]
        o[1] = 1 if x > 0 and count(2, x) > 1 and count(3, x) == 2 else 0
        o[4] = 1 if x > 1 or count(5, x) == 1 or count(6, False) else 0
        x == 0 or count(7, 1)

    out = np.array([given, *[0] * 7])
    run_module(module_of([main]), [out], entry="main")
    expected = {0: [0, 0, 0, 0, 0, 1, 1, 0], 1: [1, 0, 1, 0, 1, 1, 0, 1], 2: [2, 1, 1, 1, 1, 0, 0, 1]}
    assert out.tolist() == expected[given]


def test_what_python_knows_decides_after_what_runs_before_it():
    @lang.script
    def main(o: i64[4]):
        def count():
            o[1] += 1
            return False

        if nxt(~o[0]) > 0 and count():
            o[2] = 1
        if nxt(~o[0]) > 5 and count() or True:
            o[3] = 1
        if nxt(~o[0]) > 0 and False:
            o[2] = 1

    assert script_results(main) == [3, 1, 0, 1]


def test_comparisons_stop_at_the_first_that_fails():
    @lang.script
    def main(o: i64[4]):
        def bump():
            o[0] += 1
            return o[0]

        if 5 < o[1] < bump():
            o[2] += 1
        if 0 < bump() < bump() < bump() < 4:
            o[2] += 2
        if -1 < o[0] < bump() < 2 < bump():
            o[2] += 4

    assert script_results(main) == [4, 0, 2, 0]


def test_a_while_loop_computes_its_condition_before_each_turn():
    @lang.script
    def main(o: i64[4]):
        def count():
            o[0] += 1
            return o[0]

        while count() < 2:
            pass
        while count() < 6:
            if o[0] == 4:
                continue
            o[1] += o[0]

    assert script_results(main) == [6, 8, 0, 0]


def test_operands_without_statements_stay_expressions():
    @lang.script
    def main(o: i64[4]):
        attrs.func_kind = "public"
        o[0] = 3 if 0 < o[1] < 5 and o[2] == 1 else nxt(~o[0])
        while nxt(~o[1]) < 3:
            o[2] += 1

    assert [type(stmt).__name__ for stmt in main.function.body.stmts] == ["Store", "While"]
