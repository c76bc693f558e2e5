"""The installed wheel: hidet finds all that it adds, and a recipe gives what numpy gives, on every target there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hidet
from hidet.context import make_context
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.graph.parser import parse_graph
from hidet.plugins.host import load_registry
from hidet.testing import check_rule
from hidet.testing.interpret import interpret
from hidet.testing.scheduled import scheduled_graph

RECIPE = """
image u8 [n, 1, 16, 20]   # photographs of cells
erode 3
dilate 3
dilate 5
threshold 200
label_regions
"""

DILATE = """
symbol n: 1..
symbol h: 1..
graph dilated(%image: {dtype}[n, 2, h, {width}]{strides}):
  %0: {dtype}[n, 2, h, {width}]{strides} = dilate(%image, size={size})
  return %0
"""
# What the program writes itself starts at a whole word; a user's image may start anywhere.
TURNED = """
symbol n: 1..
graph g(%image: {dtype}[n, 2, {height}, {width}]):
  %0: {dtype}[n, 2, {height}, {width}] = flip(%image, axes=[0])
  %1: {dtype}[n, 2, {height}, {width}] = dilate(%0, size={size})
  return %1
"""
NAMES = ("operators", "intrinsics", "routines", "schedules", "passes", "frontends")


def neighbours(image: np.ndarray, size: int, fill: int) -> np.ndarray:
    """All size x size windows of [n, c, h, w], as two last axes."""
    around = [(0, 0), (0, 0), *([(size // 2, size // 2)] * 2)]
    return np.lib.stride_tricks.sliding_window_view(np.pad(image, around, constant_values=fill), (size, size), (2, 3))


def count_regions(mask: np.ndarray) -> int:
    """Regions of one image, found by removing them one by one."""
    waiting = {tuple(place) for place in np.argwhere(mask)}
    regions = 0
    while waiting:
        regions, edge = regions + 1, [waiting.pop()]
        while edge:
            y, x = edge.pop()
            found = waiting & {(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)}
            waiting -= found
            edge += found
    return regions


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "cells.morphology"
    path.write_text(RECIPE)
    return path


def chosen(text: str, target: str) -> list[str]:
    ctx = make_context(target, {"cache": False})
    return [step.rule_name for step in scheduled_graph(parse_graph(text, ctx.registry.operators), ctx).steps]


@pytest.mark.parametrize("kind", NAMES)
def test_what_it_adds_of_each_kind_is_found_by_its_entry_point(kind: str) -> None:
    owners = load_registry().owners
    mine = [name for (of, name), owner in owners.items() if of == kind and "hidet-example-morphology" in str(owner)]
    assert mine


def test_a_recipe_is_a_model(recipe: Path) -> None:
    compiled = hidet.compile(str(recipe), target="cpu")
    for batch in (1, 3):
        image = np.random.default_rng(batch).integers(0, 256, (batch, 1, 16, 20), np.uint8)
        eroded = neighbours(image, 3, 255).min((-1, -2))
        mask = neighbours(eroded, 7, 0).max((-1, -2)) >= 200
        labels = np.asarray(compiled(image))
        assert np.array_equal(labels > 0, mask)
        for one, found in zip(mask[:, 0], labels[:, 0], strict=True):
            assert len(set(found[found > 0].tolist())) == count_regions(one)


def test_neighbouring_dilations_become_one(recipe: Path) -> None:
    ctx = make_context("cpu", {"cache": False})
    graph = load_registry().frontends["morphology"].resolve()(recipe, None, ctx)
    sizes = [node.attrs["size"] for node in graph.nodes if node.op.name == "dilate"]
    merged = load_registry().passes["morphology.merge_dilations"].resolve()().run(graph, ctx)
    assert sizes == [3, 3, 5]
    assert [node.attrs["size"] for node in merged.nodes if node.op.name == "dilate"][-1] == 7
    image = np.random.default_rng(0).integers(0, 256, (2, 1, 16, 20), np.uint8)
    assert np.array_equal(interpret(graph, [image])[0], interpret(merged, [image])[0])


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", ImportFailed, "describes no image"),
        ("dilate 3", ImportFailed, "the first line is not an image"),
        ("image u8 [1, 1, 4, 4]\nerodee 3", UnsupportedOp, r"(?s)cells.morphology:2 .*did you mean 'erode'"),
        ("image u8 [1, 1, 4, 4]\ndilate three", ImportFailed, "step 'dilate three'"),
    ],
)
def test_a_recipe_that_is_wrong_is_refused_with_its_line(recipe, text, error, message) -> None:
    recipe.write_text(text)
    with pytest.raises(error, match=message):
        hidet.compile(str(recipe), target="cpu")


@pytest.mark.parametrize(
    ("dtype", "width", "size", "rule"),
    [
        ("u8", 20, 3, "morphology.dilate_bytes"),
        ("u8", 20, 9, "morphology.dilate_bytes"),
        ("u8", 20, 11, "morphology.dilate"),
        ("u8", 18, 3, "morphology.dilate"),
        ("f32", 20, 3, "morphology.dilate"),
    ],
)
def test_bytes_in_words_have_a_schedule_of_their_own_on_cuda(dtype, width, size, rule) -> None:
    text = TURNED.format(dtype=dtype, height=8, width=width, size=size)
    assert rule in chosen(text, "cuda:sm_90a")


@pytest.mark.parametrize("dtype", ["u8", "f32", "f16"])
@pytest.mark.parametrize("size", [1, 3, 7])
def test_the_schedule_of_every_gpu_is_right(dtype: str, size: int) -> None:
    text = DILATE.format(dtype=dtype, width=5, size=size, strides="")
    check_rule(load_registry().schedules["morphology.dilate"], text, "cuda:sm_90a", sizes=[{"n": 2, "h": 7}])


@pytest.mark.parametrize("size", [1, 3, 9])
def test_the_schedule_of_bytes_is_right(size: int) -> None:
    text = TURNED.format(dtype="u8", height=5, width=12, size=size)
    report = check_rule(load_registry().schedules["morphology.dilate_bytes"], text, "cuda:sm_90a", sizes=[{"n": 3}])
    assert len({trial.params for trial in report.trials}) == 3


def test_the_intrinsic_is_written_in_cuda() -> None:
    ctx = make_context("cuda:sm_90a", {"cache": False})
    text = TURNED.format(dtype="u8", height=5, width=12, size=3)
    graph = parse_graph(text, ctx.registry.operators)
    (step,) = [one for one in scheduled_graph(graph, ctx).steps if one.rule_name == "morphology.dilate_bytes"]
    assert "__vmaxu4(" in ctx.target.source(step.program.module)


def test_the_result_lies_as_its_image_does() -> None:
    ctx = make_context("cuda:sm_90a", {"cache": False})
    text = """
graph g(%image: f32[1, 8, 6, 6], %filter: f32[8, 8, 3, 3]):
  %0: f32[1, 8, 4, 4] = conv(%image, %filter)
  %1: f32[1, 8, 4, 4] = dilate(%0)
  %2: f32[1, 8, 4, 4] = relu(%1)
  return %2
"""
    steps = scheduled_graph(parse_graph(text, ctx.registry.operators), ctx).steps
    (step,) = [one for one in steps if one.rule_name == "morphology.dilate"]
    assert [tensor.type.strides for tensor in (*step.task.inputs, *step.task.outputs)] == [(128, 1, 32, 8)] * 2
