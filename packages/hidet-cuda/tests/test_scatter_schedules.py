"""Writing at computed places: run by the simulator, which finds races, and compiled for every architecture."""

from __future__ import annotations

import re
import textwrap

import numpy as np
import pytest

from hidet.cuda.testing.schedules import assert_compiles, assert_right, schedule_text, sources_of
from hidet.schedule.claims import FALLBACK
from hidet.schedule.select import ScheduledTask

ARCHITECTURES = ["sm_80", "sm_89", "sm_90a"]

REPLACED = {
    "rows": """
        graph g(%x: f32[9, 5], %v: f32[7, 5], %i: i64[7]):
          %0: f32[9, 5] = index_put(%x, %v, %i)
          return %0
    """,
    "rows of a later axis": """
        graph g(%x: f16[2, 9, 5], %v: f16[2, 7, 5], %i: i64[7]):
          %0: f16[2, 9, 5] = index_put(%x, %v, none, %i)
          return %0
    """,
    "points": """
        graph g(%x: f32[9, 9], %v: f32[40], %i: i64[40], %j: i64[40]):
          %0: f32[9, 9] = index_put(%x, %v, %i, %j)
          return %0
    """,
    "a place for every element": """
        graph g(%x: f32[9, 5], %i: i64[30, 4], %v: f32[30, 4]):
          %0: f32[9, 5] = scatter(%x, %i, %v, axis=0)
          return %0
    """,
    "tuples of places": """
        graph g(%x: f32[9, 9, 3], %i: i64[30, 2], %v: f32[30, 3]):
          %0: f32[9, 9, 3] = scatter_nd(%x, %i, %v)
          return %0
    """,
}


def _places(text: str) -> dict[str, np.ndarray]:
    """Random places for the inputs that say where."""
    random = np.random.default_rng(3)
    shapes = re.findall(r"%(.): i64\[([0-9, ]+)\]", text.partition("%0")[0])
    return {key: random.integers(0, 9, [int(n) for n in shape.split(",")]) for key, shape in shapes}


@pytest.mark.parametrize("name", REPLACED)
def test_the_last_of_updates_that_meet_wins(name: str) -> None:
    text = textwrap.dedent(REPLACED[name])
    places = _places(text)
    assert any(len(np.unique(p.reshape(-1))) < p.size for p in places.values())
    assert_right(text, "gpu.scatter", 0.0, places)


DISTINCT = {
    "a slice": """
        graph g(%x: f32[9, 5], %v: f32[4, 5]):
          %0: f32[9, 5] = slice_scatter(%x, %v, starts=[1, 0], stops=[9, 5], steps=[2, 1])
          return %0
    """,
    "a diagonal": """
        graph g(%x: f32[9, 5], %v: f32[4]):
          %0: f32[9, 5] = diagonal_scatter(%x, %v, offset=1)
          return %0
    """,
    "one of a row": """
        graph g(%x: f32[9, 5], %v: f32[1, 5], %i: i64[1]):
          %0: f32[9, 5] = index_put(%x, %v, %i)
          return %0
    """,
}


@pytest.mark.parametrize("name", DISTINCT)
def test_updates_that_do_not_meet_are_written_at_once(name: str) -> None:
    text = textwrap.dedent(DISTINCT[name])
    assert_right(text, "gpu.scatter", 0.0, {"i": np.array([4])})
    (step,) = schedule_text(text).steps
    assert isinstance(step, ScheduledTask) and not step.program.scratch


def test_gaps_are_closed_by_a_thread_an_element() -> None:
    text = "graph g(%x: f32[9], %e: i64[9]):\n  %0: f32[5] = pack(%x, %e, count=5)\n  return %0\n"
    assert_right(text, "gpu.scatter", 0.0, {"e": np.cumsum([1, 0, 1, 1, 0, 0, 1, 1, 0])})


COMBINED = {
    "numbers of each": ("i64", "sum"),
    "the largest": ("i32", "amax"),
    "the smallest": ("i64", "amin"),
}


@pytest.mark.parametrize("name", COMBINED)
def test_integers_are_combined_in_any_order(name: str) -> None:
    dtype, reduce = COMBINED[name]
    call = f"scatter(%x, %i, %v, axis=0, reduce='{reduce}')"
    text = f"graph g(%x: {dtype}[9], %i: i64[300], %v: {dtype}[300]):\n  %0: {dtype}[9] = {call}\n  return %0\n"
    random = np.random.default_rng(0)
    values = {"i": random.integers(0, 9, 300), "v": random.integers(-99, 99, 300).astype(f"int{dtype[1:]}")}
    assert_right(text, "gpu.scatter", 0.0, values)


@pytest.mark.parametrize("name", ["rows", "rows of a later axis", "points"])
def test_floats_add_up_in_the_order_of_their_updates(name: str) -> None:
    text = REPLACED[name].replace(")\n          return", ", accumulate=True)\n          return")
    assert "accumulate" in text
    assert_right(textwrap.dedent(text), "gpu.scatter", 1e-6, _places(text))


SINGLE = {
    "a row of places": """
        graph g(%x: f32[9, 5], %v: f32[1, 7, 5], %i: i64[1, 7]):
          %0: f32[9, 5] = index_put(%x, %v, %i, accumulate=True)
          return %0
    """,
    "a column of places": """
        graph g(%x: f32[9, 5], %v: f32[7, 1, 5], %i: i64[7, 1]):
          %0: f32[9, 5] = index_put(%x, %v, %i, accumulate=True)
          return %0
    """,
    "one place": """
        graph g(%x: f32[9, 5], %v: f32[1, 5], %i: i64[1]):
          %0: f32[9, 5] = index_put(%x, %v, %i, accumulate=True)
          return %0
    """,
    "a column of elements": """
        graph g(%x: f32[9, 1], %i: i64[30, 1], %v: f32[30, 1]):
          %0: f32[9, 1] = scatter(%x, %i, %v, axis=0, reduce='sum')
          return %0
    """,
}


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize("combined", [True, False])
def test_axes_of_one_element_are_no_part_of_the_contest(name: str, combined: bool) -> None:
    """defects.md G1: positions of [1, 512], as those of GPT-2's tokens are."""
    text = textwrap.dedent(SINGLE[name])
    if not combined:
        text = text.replace(", accumulate=True", "").replace(", reduce='sum'", "")
    assert_right(text, "gpu.scatter", 1e-6, _places(text))


@pytest.mark.parametrize("name", [name for name, text in (REPLACED | SINGLE).items() if "index_put" in text])
def test_programs_declare_what_they_use_whichever_extent_is_one(name: str) -> None:
    """defects.md G1: what is printed for the device's compiler has names that it knows."""
    text = textwrap.dedent((REPLACED | SINGLE)[name])
    extents = {n for shape in re.findall(r"\[([0-9, ]+)\]", text) for n in shape.split(", ")} - {"1", "2"}
    assert extents
    for extent in extents:
        ones = re.sub(rf"\b{extent}\b(?=[^%]*\])", "1", text)
        for changed in (ones, re.sub(r"(index_put\(.*)\)", r"\1, accumulate=True)", ones)):
            assert sources_of(changed)


@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "mean"])
def test_elements_are_combined_with_their_places(reduce: str) -> None:
    text = REPLACED["a place for every element"].replace("axis=0)", f"axis=0, reduce='{reduce}', include_self=False)")
    assert_right(textwrap.dedent(text), "gpu.scatter", 1e-6, _places(text))


@pytest.mark.parametrize("updates", [2100, 4200])
def test_updates_of_a_tile_and_of_more_than_one_add_up(updates: int) -> None:
    text = REPLACED["rows"].replace("[7", f"[{updates}").replace("%i)\n", "%i, accumulate=True)\n")
    assert_right(textwrap.dedent(text), "gpu.scatter", 1e-5, _places(text))


def test_updates_of_unknown_number_that_add_up_are_left_to_the_fallback_nest() -> None:
    text = "symbol n: 1..\n" + textwrap.dedent(REPLACED["rows"]).strip().replace("[7", "[n")
    (step,) = schedule_text(text.replace("%i)\n", "%i, accumulate=True)\n")).steps
    assert isinstance(step, ScheduledTask) and step.rule_name == FALLBACK


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", ["rows of a later axis", "a place for every element", "a row of places"])
@pytest.mark.thorough(every=3)
def test_kernels_compile_without_spills(name: str, arch: str) -> None:
    text = textwrap.dedent((REPLACED | SINGLE)[name])
    assert_compiles(text, arch)
    if "index_put" in text:
        assert_compiles(text.replace("%i)\n", "%i, accumulate=True)\n"), arch)
