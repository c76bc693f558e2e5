"""First layers: convolutions of few channels that step over columns see windows of lines as channels."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import numpy as np
import pytest

from hidet.cuda.passes.windows_as_channels import WindowsAsChannels
from hidet.cuda.testing.schedules import assert_compiles, assert_right, context_for, sources_of, with_threads
from hidet.graph.graph import Graph
from hidet.graph.parser import parse_graph
from hidet.testing.interpret import interpret
from hidet.testing.scheduled import run_scheduled, scheduled_graph

TEXT = """
symbol n: 1..
symbol h: 8..
symbol w: 8..
graph g(%x: {dtype}[{images}, {channels}, {height}, {width}], %w: {dtype}[32, {channels}, {lines}, {length}]):
  %0: {dtype}[{images}, 32, {rows}, {columns}]{strides} = conv(%x, %w, {window})
  return %0
"""
KERNEL = """
graph g(%x: f16[2, 9, {columns}], param %f: f16[{filters}, 32, 3, 1]{{96, 1, 32, 32}}, param %b: f16[{filters}]):
  %0: f16[2, 9, 4, {length}]{{{plane}, {columns}, 8, 1}} = unfold(%x, axis=2, size={length}, step=8)
  %1: f16[2, {length}, 9, 4]{{{plane}, 1, {columns}, 8}} = transpose(%0, perm=[0, 3, 1, 2])
  %2: f16[2, {filters}, 5, 4]{{{image}, 1, {line}, {filters}}} = conv_padded_channels(%1, %f, %b, {attributes})
  %3: f16[2, {filters}, 5, 4]{{{image}, 1, {line}, {filters}}} = relu(%2)
  return %3
"""


def layer(**changed: object) -> Graph:
    """A first layer, like that of a residual network."""
    given: dict[str, object] = {"dtype": "f16", "images": 2, "channels": 3, "height": 13, "width": 17}
    given |= {"lines": 7, "length": 7, "step": (2, 2), "padding": (3, 3), "spread": (1, 1)} | changed
    counts = []
    for axis, (size, taps) in enumerate((("height", "lines"), ("width", "length"))):
        step, padding, spread = (given[what][axis] for what in ("step", "padding", "spread"))  # type: ignore[index]
        less = spread * (given[taps] - 1) + 1 - 2 * padding  # type: ignore[operator]
        known = given[size]
        counts.append((known - less) // step + 1 if isinstance(known, int) else f"({known} - {less}) // {step} + 1")
    rows, columns = counts
    step, padding, spread = (list(given[what]) for what in ("step", "padding", "spread"))  # type: ignore[call-overload]
    strides = f"{{32 * ({rows}) * ({columns}), 1, 32 * ({columns}), 32}}"
    window = f"stride={step}, padding={padding}, dilation={spread}"
    text = TEXT.format(**{"rows": rows, "columns": columns, "strides": strides, "window": window, **given})
    used = [line for line in text.split("\n") if not line.startswith("symbol") or f"{line[7]}," in text + ","]
    return parse_graph(textwrap.dedent("\n".join(used)), context_for().registry.operators)


SEEN: Mapping[str, Mapping[str, object]] = {
    "seven by seven": {},
    "one channel": {"channels": 1},
    "four channels": {"channels": 4},
    "bf16": {"dtype": "bf16"},
    "three by three": {"lines": 3, "length": 3, "padding": (1, 1), "width": 18},
    "three by three, without padding": {"lines": 3, "length": 3, "padding": (0, 0)},
    "taps for all channels": {"length": 8, "padding": (3, 4)},
    "steps of four": {"step": (4, 4), "width": 33},
    "steps that differ": {"step": (1, 2)},
    "lines apart": {"spread": (2, 1), "height": 20},
}


@pytest.mark.parametrize("case", SEEN)
def test_a_layer_of_windows_is_right(case: str) -> None:
    graph, ctx = layer(**SEEN[case]), context_for("sm_90a")
    scheduled = scheduled_graph(graph, ctx)
    names = [node.op.name for node in scheduled.task_graph.graph.nodes]
    assert "conv_padded_channels" in names and "conv" not in names
    random = np.random.default_rng(0)
    given = [random.standard_normal([int(str(d)) for d in v.tensor.shape]).astype(np.float32) for v in graph.inputs]
    given = [array.astype(value.tensor.dtype.numpy()) for array, value in zip(given, graph.inputs, strict=True)]
    # Filters that see it give infinity or NaN, others see nothing of it: a zero times infinity is NaN.
    given[0][0, 0, 5, 8] = np.inf
    (found,), (expected,) = run_scheduled(scheduled, given, with_threads), interpret(graph, given)
    found, expected = (np.asarray(array).astype(np.float32) for array in (found, expected))
    np.testing.assert_allclose(found, expected, rtol=2e-2, atol=6e-2)


@pytest.mark.parametrize("sizes", [(1, 12, 14), (3, 9, 33)], ids=str)
def test_images_of_any_size_are_seen_in_windows(sizes: tuple[int, int, int]) -> None:
    graph, ctx = layer(images="n", height="h", width="w"), context_for("sm_90a")
    scheduled = scheduled_graph(graph, ctx)
    assert "conv_padded_channels" in [node.op.name for node in scheduled.task_graph.graph.nodes]
    images, height, width = sizes
    random, known = np.random.default_rng(0), {"n": images, "h": height, "w": width}
    given = [random.standard_normal(s).astype(np.float16) for s in ((images, 3, height, width), (32, 3, 7, 7))]
    given[0][0, 0, 5, 8] = np.inf
    (found,), (expected,) = run_scheduled(scheduled, given, with_threads, sizes=known), interpret(graph, given, known)
    np.testing.assert_allclose(found, expected, rtol=2e-2, atol=4e-2)


OTHERS: Mapping[str, Mapping[str, object]] = {
    "pixels side by side": {"step": (2, 1)},
    "windows that begin anywhere": {"step": (3, 3)},
    "channels enough for wide copies": {"channels": 5},
    "longer lines": {"length": 9, "padding": (3, 4)},
    "taps apart": {"spread": (1, 2), "width": 21},
    "one tap a line": {"length": 1, "padding": (3, 0)},
    "elements that are multiplied otherwise": {"dtype": "f32"},
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_convolutions_stay(case: str) -> None:
    graph = layer(**OTHERS[case])
    assert WindowsAsChannels().run(graph, context_for("sm_90a")) is graph


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_architectures_that_copy_no_pixels_read_the_image(arch: str) -> None:
    graph = layer()
    assert WindowsAsChannels().run(graph, context_for(arch)) is graph


def kernel(filters: int, length: int) -> str:
    attributes = "stride=[2, 1], padding=[[1, 1], [0, 0]]"
    columns = 24 + -(-length // 8) * 8
    sizes = {"columns": columns, "plane": 9 * columns, "image": 20 * filters, "line": 4 * filters}
    return KERNEL.format(filters=filters, length=length, attributes=attributes, **sizes)


@pytest.mark.parametrize(("filters", "length"), [(24, 32), (64, 28), (128, 20)])
def test_windows_are_copied_by_tma_with_zeros_behind_their_channels(filters: int, length: int) -> None:
    text = kernel(filters, length)
    assert_right(text, "cuda.matmul", 1e-2, arch="sm_90a")
    first, *_ = sources_of(text, "sm_90a")
    assert "im2col" in first
    assert_compiles(text, "sm_90a")


@pytest.mark.parametrize("length", [32, 28, 21])
def test_architectures_that_copy_no_pixels_read_no_channel_that_is_not_stored(length: int) -> None:
    assert_right(kernel(40, length), "cuda.matmul", 1e-2, arch="sm_80")
