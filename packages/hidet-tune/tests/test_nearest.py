"""Sizes near those that were measured take their choices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hidet
from hidet.context import make_context
from hidet.graph.graph import Graph
from hidet.graph.parser import parse_graph
from hidet.plugins.host import load_registry
from hidet.tuning.meaning import Meaning
from hidet.tuning.nearest import nearest
from hidet.tuning.store import Entry, Store
from hidet.tuning.subjects import subject_of, tasks_of

MEANING = Meaning("ab12", "f32[512, 64], f32[64]", "cpu", "rule", "1.0")
ENTRY = Entry(MEANING, "product", "16", "8", 2e-6, 1e-6, 3, 3, 1)
OPTIONS = {"threads": 1, "cache": False}


def found(sizes: str, *known: str) -> str | None:
    """The sizes that are the nearest to these."""
    entries = [replace(ENTRY, meaning=replace(MEANING, sizes=each)) for each in known]
    entry = nearest(replace(MEANING, sizes=sizes), {each.meaning: each for each in entries})
    return None if entry is None else entry.meaning.sizes


@pytest.mark.parametrize(
    ("sizes", "is_near"),
    [
        ("f32[512, 64], f32[64]", True),
        ("f32[1024, 64], f32[64]", True),
        ("f32[256, 32], f32[32]", True),
        ("f32[1025, 64], f32[64]", False),
        ("f32[255, 64], f32[64]", False),
        ("f32[512, 64], f16[64]", False),
        ("f32[512, 64, 1], f32[64]", False),
    ],
)
def test_every_size_has_to_be_within_twice_and_half(sizes, is_near) -> None:
    assert (found(sizes, MEANING.sizes) is not None) == is_near


def test_the_nearest_is_that_by_the_logarithms_of_sizes() -> None:
    assert found("f32[600, 600]", "f32[1000, 600]", "f32[400, 600]", "f32[300, 300]") == "f32[400, 600]"
    assert found("f32[600, 600]", "f32[1200, 1200]", "f32[500, 500]") == "f32[500, 500]"


def test_an_extent_of_one_is_near_to_one_alone() -> None:
    assert found("f32[2, 64]", "f32[1, 64]") is None
    assert found("f32[1, 96]", "f32[1, 64]") == "f32[1, 64]"


@pytest.mark.parametrize("other", ["task", "arch", "rule", "version"])
def test_other_tasks_machines_and_rules_are_never_near(other) -> None:
    known = replace(ENTRY, meaning=replace(MEANING, **{other: "another"}))
    assert nearest(replace(MEANING, sizes="f32[500, 64], f32[64]"), {known.meaning: known}) is None


def softmax(rows: int, columns: int) -> Graph:
    text = f"graph g(%x: f32[{rows}, {columns}]):\n  %0: f32[{rows}, {columns}] = softmax(%x, axis=1)\n  return %0\n"
    return parse_graph(text, load_registry().operators)


@pytest.fixture
def store(tmp_path) -> Store:
    """A store with a choice that is not the default for softmax of 64 rows of 512."""
    ctx = make_context("cpu", {**OPTIONS, "tune.store": "off"})
    ((step,),) = tasks_of([(softmax(64, 512), ctx)]).values()
    subject = subject_of(step, 1, ctx, 2, {}, 0.0)
    params = subject.candidates[-1].text
    made = Store(tmp_path / "choices.sqlite")
    made.put([Entry(subject.meaning, "softmax", params, subject.default_params, 2e-6, 1e-6, 1, 1, 2)])
    return made


def test_a_compilation_takes_the_choice_and_the_report_says_for_what_it_was_measured(store) -> None:
    options = {**OPTIONS, "tune.store": str(store.path)}
    compiled = hidet.compile(softmax(48, 512), target="cpu", options=options)
    (reason,) = compiled.report().chosen
    near = "measured parameters for f32[64, 512], f32[64, 512], the nearest sizes in the store"
    assert reason == f"{near} {store.path}"
    x = np.random.default_rng(0).standard_normal((48, 512)).astype(np.float32)
    np.testing.assert_allclose(compiled(x).sum(1), 1, rtol=1e-5)
    exact = hidet.compile(softmax(64, 512), target="cpu", options=options).report()
    assert list(exact.chosen) == [f"measured parameters from the store {store.path}"]


@pytest.mark.parametrize(("rows", "options"), [(8, {}), (48, {"tune.nearest_sizes": False})])
def test_sizes_far_away_and_those_who_do_not_want_it_take_the_default(store, rows, options) -> None:
    given = {**OPTIONS, "tune.store": str(store.path), **options}
    assert not hidet.compile(softmax(rows, 512), target="cpu", options=given).report().chosen


def test_parameters_that_the_space_of_the_new_sizes_has_not_are_left_alone(store) -> None:
    (entry,) = store.entries()
    store.put([replace(entry, params="'none of these'")])
    options = {**OPTIONS, "tune.store": str(store.path)}
    assert not hidet.compile(softmax(48, 512), target="cpu", options=options).report().chosen


def test_tuning_begins_with_the_choice_for_the_nearest_sizes(store) -> None:
    ctx = make_context("cpu", {**OPTIONS, "tune.store": "off"})
    ((step,),) = tasks_of([(softmax(48, 512), ctx)]).values()
    (entry,) = store.entries()
    subject = subject_of(step, 1, ctx, 2, {entry.meaning: entry}, 0.0)
    assert (subject.before, subject.known) == (entry.params, None)
