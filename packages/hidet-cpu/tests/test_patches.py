"""Convolutions whose windows lie side by side are matrix products of patches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.compiler.graphs import compile_graph
from hidet.cpu.passes.multiply_patches import MultiplyPatches
from hidet.cpu.testing import assert_compiles_right, build, context, random_array
from hidet.graph import Graph, GraphBuilder, TensorType, Value


def embed(g: GraphBuilder, x: Value, w: Value, b: Value, **attrs: Any) -> Value:
    stride = w.tensor.shape[2:]
    return g.emit("relu", g.emit("conv", x, w, b, **{"stride": stride, **attrs}))


def operators_after(image: tuple[int, ...], weight: tuple[int, ...], **attrs: Any) -> list[str]:
    arrays = random_array(*image), random_array(*weight), random_array(weight[0])
    graph: Graph = build(lambda *given: embed(*given, **attrs), arrays, parameters=(1, 2))
    return [node.op.name for node in MultiplyPatches().run(graph, context()).nodes]


@pytest.mark.parametrize(
    ("image", "weight"),
    [
        ((2, 3, 32, 48), (20, 3, 16, 8)),
        ((1, 3, 64, 64), (17, 3, 32, 32)),
        ((2, 5, 30), (7, 5, 10)),
        ((1, 1, 4, 6, 15), (9, 1, 2, 3, 5)),
    ],
    ids=["two images", "more taps than tables have room for", "sound", "volume"],
)
@pytest.mark.parametrize("parameters", [(), (1, 2)], ids=["weights are inputs", "weights are parameters"])
def test_patches_are_multiplied_once(
    image: tuple[int, ...], weight: tuple[int, ...], parameters: tuple[int, ...]
) -> None:
    arrays = random_array(*image), random_array(*weight), random_array(weight[0])
    assert_compiles_right(embed, *arrays, parameters=parameters, terms=4096)


def test_one_kernel_multiplies_patches_of_any_number_of_images() -> None:
    types = [TensorType(dtypes.f32, (dims.symbol("n", 1, 8), 3, 32, 32))]
    arrays = random_array(3, 3, 32, 32), random_array(24, 3, 8, 8), random_array(24)
    assert_compiles_right(embed, *arrays, types=types, parameters=(1, 2))


def test_patches_are_a_product_on_the_register_tiles() -> None:
    arrays = random_array(1, 3, 64, 64), random_array(32, 3, 32, 32), random_array(32)
    report = compile_graph(build(embed, arrays, parameters=(1, 2)), context()).report()
    assert {use.rule for use in report.uses} == {"cpu.matmul", "cpu.elementwise"}


def test_the_pass_takes_windows_that_cover_the_image_alone() -> None:
    patches = ["reshape", "transpose", "reshape", "reshape", "linear", "reshape", "transpose", "relu"]
    assert operators_after((1, 3, 32, 32), (8, 3, 8, 8)) == patches
    for image, weight, attrs in (
        ((1, 3, 33, 32), (8, 3, 8, 8), {}),
        ((1, 3, 32, 32), (8, 3, 8, 8), {"stride": 4}),
        ((1, 3, 32, 32), (8, 3, 8, 8), {"padding": 8}),
        ((1, 3, 32, 32), (8, 3, 2, 2), {}),
        ((1, 64, 32, 32), (8, 64, 8, 8), {}),
        ((1, 4, 32, 32), (8, 2, 8, 8), {"groups": 2}),
    ):
        assert operators_after(image, weight, **attrs) == ["conv", "relu"], (image, weight, attrs)


def test_windows_that_overlap_may_have_more_taps_than_tables_have_room_for() -> None:
    arrays = random_array(1, 3, 70, 81), random_array(20, 3, 33, 32), random_array(20)
    found = compile_graph(build(lambda *given: embed(*given, stride=16), arrays, parameters=()), context())
    assert "cpu.conv" in {use.rule for use in found.report().uses}
    assert_compiles_right(lambda *given: embed(*given, stride=16), *arrays, terms=4096)
    assert np.all(found(*arrays) >= 0)
