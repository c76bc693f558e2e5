"""What Python's functions and objects make of the values of scripts, the scripts use as any other value."""

from dataclasses import dataclass

import numpy as np
import pytest

from hidet import lang
from hidet.gpu.testing.launches import script_results
from hidet.ir.interpret import run_module
from hidet.lang import i64
from hidet.lang.module import module_of

# ruff: noqa: C417, RUF015  # scripts use the forms that are tested


@dataclass
class Pair:
    first: object
    second: object


def named(value):
    return {"double": value * 2, "nested": [value, {"same": value}]}


def paired(value):
    return Pair(value, value + 1)


def summed(values):
    return values["a"] + values["b"][0]


def test_loops_go_over_what_iterators_give():
    @lang.script
    def main(o: i64[4]):
        x = o[0] + 1
        for k, a in enumerate([x, x + 1]):
            o[k] = a
        for k, (a, b) in enumerate(zip((x, x), (3, 4), strict=True)):
            o[k + 2] = a * b

    assert script_results(main) == [1, 2, 3, 4]


def test_iterators_become_lists_and_parts():
    @lang.script
    def main(o: i64[4]):
        x = o[0] + 1
        back = list(reversed([x, x + 1]))
        o[0] = back[0]
        first, rest = enumerate([x, 5])
        o[1] = first[0] + first[1]
        o[2] = rest[1]
        o[3] = sum([a * b for a, b in zip([x, x], [2, 3], strict=True)])

    assert script_results(main) == [2, 1, 5, 5]


def test_functions_give_dictionaries_and_objects():
    @lang.script
    def main(o: i64[4]):
        found = named(o[0] + 1)
        pair = paired(o[0] + 3)
        kept = Pair(o[0], 0)
        o[0] = found["double"]
        o[1] = found["nested"][0] + found["nested"][1]["same"]
        o[2] = pair.first * kept.second
        o[3] = kept.first + 1

    assert script_results(main) == [2, 2, 0, 1]


def test_objects_keep_what_values_were_when_they_got_a_name():
    @lang.script
    def main(o: i64[4]):
        pair = paired(o[0] + 1)
        kept = Pair(o[0], 3)
        o[0] = 50
        o[1] = pair.first
        o[2] = pair.second
        o[3] = kept.first + kept.second

    assert script_results(main) == [50, 1, 2, 3]


def test_functions_take_dictionaries():
    @lang.script
    def main(o: i64[4]):
        values = {"a": o[0] + 1, "b": [o[1] + 2]}
        o[0] = summed(values)
        for name in values:
            o[1] += 1 if name in values else 0

    assert script_results(main) == [3, 2, 0, 0]


def test_functions_of_a_script_are_given_to_those_of_python():
    @lang.script
    def main(o: i64[4]):
        def added(a, b):
            o[3] += 1
            return a + b

        listed = list(map(lambda v: v + 1, [o[0] + 1, 5]))
        o[0] = listed[0]
        o[1] = listed[1]
        o[2] = list(map(added, [o[0]], [2]))[0]

    assert script_results(main) == [2, 6, 4, 1]


def test_a_list_that_a_function_gives_stays_that_list():
    shared = []

    def listed():
        return shared

    @lang.script
    def main(o: i64[4]):
        listed().append(3)
        o[0] = len(listed())

    assert script_results(main) == [1, 0, 0, 0]
    assert shared == [3]


@pytest.mark.parametrize("value", [0, 3])
def test_choices_are_made_of_what_functions_give(value):
    @lang.script
    def main(o: i64[1]):
        found = named(o[0])
        o[0] = found["double"] if o[0] > 1 else 7

    out = np.array([value])
    run_module(module_of([main]), [out], entry="main")
    assert out.tolist() == [6 if value else 7]


def test_calls_that_give_nothing_are_made_where_they_stand_in_lists():
    @lang.script
    def count(p: ~i64):
        p[0] = p[0] + 1

    @lang.script
    def main(o: i64[4]):
        [count(~o[k]) for k in range(2)]
        kept = [count(~o[2]), 5]
        o[3] = kept[1]

    assert script_results(main) == [1, 1, 1, 5]


def test_truth_values_are_counted():
    @lang.script
    def main(o: i64[4]):
        a = o[0] == 0
        b = o[1] < 1
        o[2] = a + b
        o[3] = (a - b) + a * b + (o[2] > 5)

    assert script_results(main) == [0, 0, 2, 1]


def test_containers_of_values_have_a_length_and_numbers_of_numpy_may_change():
    three = np.int64(3)

    @lang.script
    def main(o: i64[4]):
        def doubled(x):
            x += x
            return x

        x = three
        x += 1
        o[0] = x
        o[1] = len([x, o[0]]) + len({"a": o[1]})
        o[2] = doubled(three)

    assert script_results(main) == [4, 3, 6, 0]
