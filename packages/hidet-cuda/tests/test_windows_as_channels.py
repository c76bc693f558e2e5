"""First layers: convolutions of few channels that step over columns see windows of lines as channels."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from hidet.cache import open_cache
from hidet.context import CompileContext, Options
from hidet.cuda.passes.windows_as_channels import WindowsAsChannels
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.schedules import assert_compiles, assert_right, sources_of
from hidet.graph.graph import Graph
from hidet.graph.parser import parse_graph
from hidet.plugins.host import load_registry
from hidet.testing.interpret import interpret

TEXT = """
graph g(%x: {dtype}[2, {channels}, 11, {width}], %w: {dtype}[8, {channels}, 3, {taps}], %b: {dtype}[8]):
  %0: {dtype}[2, 8, {rows}, {columns}] = conv(%x, %w, %b, {attributes})
  %1: {dtype}[2, 8, {rows}, {columns}] = relu(%0)
  return %1
"""
WINDOWS = """
graph g(%x: f16[2, 9, 56], param %f: f16[{filters}, 32, 3, 1]{{96, 1, 32, 32}}, param %b: f16[{filters}]):
  %0: f16[2, 9, 4, 32]{{504, 56, 8, 1}} = unfold(%x, axis=2, size=32, step=8)
  %1: f16[2, 32, 9, 4]{{504, 1, 56, 8}} = transpose(%0, perm=[0, 3, 1, 2])
  %2: f16[2, {filters}, 5, 4]{{{image}, 1, {line}, {filters}}} = conv(%1, %f, %b, {attributes})
  %3: f16[2, {filters}, 5, 4]{{{image}, 1, {line}, {filters}}} = relu(%2)
  return %3
"""


SYMBOLIC = """\
symbol n: 1..
symbol h: 8..
symbol w: 8..
graph g(%x: f16[n, 3, h, w], %f: f16[8, 3, 7, 7]):
  %0: f16[n, 8, (h - 1) // 2 + 1, (w - 1) // 2 + 1] = conv(%x, %f, stride=[2, 2], padding=[3, 3])
  return %0
"""


def context(arch: str = "sm_90a") -> CompileContext:
    target = CudaTarget(arch)
    return CompileContext(target=target, registry=load_registry(), options=Options(), cache=open_cache(enabled=False))


def rewritten(arch: str = "sm_90a", **changed: object) -> tuple[Graph, Graph]:
    """A graph before and after the pass."""
    given: dict[str, object] = {"dtype": "f16", "channels": 3, "width": 14, "taps": 7, "step": 2, "pad": 3, "spread": 1}
    given |= changed
    width, taps, step, pad, spread = (int(str(given[name])) for name in ("width", "taps", "step", "pad", "spread"))
    rows, columns = (11 + 2 - 2 * spread - 1) // 2 + 1, (width + 2 * pad - taps) // step + 1
    attributes = f"stride=[2, {step}], padding=[1, {pad}], dilation=[{spread}, 1]"
    text = TEXT.format(rows=rows, columns=columns, attributes=attributes, **given)
    graph = parse_graph(textwrap.dedent(text), load_registry().operators)
    return graph, WindowsAsChannels().run(graph, context(arch))


def windows_of(filters: int) -> str:
    attributes = "stride=[2, 1], padding=[[1, 1], [0, 0]]"
    return WINDOWS.format(filters=filters, image=20 * filters, line=4 * filters, attributes=attributes)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(
    "changed",
    [{}, {"width": 15}, {"taps": 3, "pad": 0}, {"taps": 4, "pad": 1}, {"taps": 8, "step": 4}, {"spread": 2}],
    ids=str,
)
def test_windows_of_a_padded_image_are_seen_as_its_channels(channels: int, changed: dict[str, object]) -> None:
    graph, made = rewritten(channels=channels, **changed)
    (node,) = [node for node in made.nodes if node.op.name == "conv"]
    image, weight, *_ = node.values
    assert image.tensor.shape[1] == weight.tensor.shape[1] == 32 and weight.tensor.shape[3] == 1
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(value.tensor.shape).astype(np.float16) for value in graph.inputs]
    (right,), (found,) = interpret(graph, inputs), interpret(made, inputs)
    np.testing.assert_allclose(found, right, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    "changed",
    [
        {"channels": 5},
        {"taps": 9, "pad": 4},
        {"step": 1},
        {"step": 3},
        {"taps": 1, "pad": 0},
        {"dtype": "f32"},
        {"arch": "sm_80"},
    ],
    ids=str,
)
def test_other_convolutions_stay(changed: dict[str, object]) -> None:
    graph, made = rewritten(**changed)
    assert made is graph


@pytest.mark.parametrize("sizes", [(1, 12, 14), (3, 9, 33)], ids=str)
def test_images_of_any_size_are_seen_in_windows(sizes: tuple[int, int, int]) -> None:
    graph = parse_graph(SYMBOLIC, load_registry().operators)
    made = WindowsAsChannels().run(graph, context())
    (node,) = [node for node in made.nodes if node.op.name == "conv"]
    assert node.values[0].tensor.shape[1] == 32
    rng = np.random.default_rng(0)
    images, height, width = sizes
    inputs = [rng.standard_normal(shape).astype(np.float16) for shape in ((images, 3, height, width), (8, 3, 7, 7))]
    (right,), (found,) = interpret(graph, inputs), interpret(made, inputs)
    np.testing.assert_allclose(found, right, rtol=2e-2, atol=4e-2)


@pytest.mark.parametrize("filters", [24, 64, 128])
def test_overlapping_windows_are_copied_by_tma(filters: int) -> None:
    assert_right(windows_of(filters), "cuda.matmul", 1e-2, arch="sm_90a")
    first, *_ = sources_of(windows_of(filters), "sm_90a")
    assert "im2col" in first
    assert_compiles(windows_of(filters), "sm_90a")
