"""Convolutions whose pixels TMA copies (PTX ISA, "Im2col mode"): which ones, and what the simulator computes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from hidet.cuda.schedules import product_tiles
from hidet.cuda.schedules.tiling import NARROW_TILES, TRANSPOSED_TILES, WARP_SPECIALIZED_TILES
from hidet.cuda.testing.schedules import assert_compiles, assert_right, schedule_text, sources_of
from hidet.gpu.tile.templates.matmul import MatmulTiles
from hidet.ir.expr import Call
from hidet.ir.visit import walk
from hidet.schedule.select import ScheduledTask


@dataclass(frozen=True)
class Conv:
    """A convolution with channels last. size: of the images; taps: of the filter; symbols: names for extents of x;
    added: what is added to the result, "image" or for each image and filter a number, "time"; made: where its channels
    lie, "last" or "first"."""

    images: int
    channels: int
    size: tuple[int, ...]
    taps: tuple[int, ...]
    step: int = 1
    pads: tuple[int, ...] = ()
    spread: int = 1
    filters: int = 40
    groups: int = 1
    dtype: str = "f16"
    symbols: tuple[str, ...] = ()
    added: str = ""
    made: str = "last"

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Padding before and after, by axis."""
        pads = self.pads or tuple(tap // 2 for tap in self.taps)
        return list(zip(pads[: len(self.size)], pads[-len(self.size) :], strict=True))

    @property
    def text(self) -> str:
        """The graph."""
        axes = list(zip(self.size, self.taps, self.pairs, strict=True))
        results = [(e + sum(p) - self.spread * (t - 1) - 1) // self.step + 1 for e, t, p in axes]
        extents: list[str] = list(map(str, (self.images, *self.size)))
        made: list[str] = list(map(str, (self.images, *results)))
        for place, name in enumerate(self.symbols):
            extents[place] = made[place] = name
        lead = "".join(f"symbol {name}: 1.. hint 4\n" for name in self.symbols)
        x = _type(self.dtype, extents[0], str(self.channels), extents[1:])
        y = _type(self.dtype, made[0], str(self.filters), made[1:])
        if self.made == "first":
            y = y.partition("{")[0]
        inner = self.channels // self.groups
        f = _type(self.dtype, str(self.filters), str(inner), list(map(str, self.taps)))
        pads = [list(pair) for pair in self.pairs]
        steps, spreads = [self.step] * len(self.size), [self.spread] * len(self.size)
        attrs = f"stride={steps}, padding={pads}, dilation={spreads}, groups={self.groups}"
        attrs += ', fp32_precision="tf32"' if self.dtype == "f32" else ""
        if not self.added:
            return f"{lead}graph g(%x: {x}, %f: {f}):\n  %0: {y} = conv(%x, %f, {attrs})\n  return %0\n"
        ones = ", ".join(["1"] * len(self.size))
        other = {"image": y, "time": f"{self.dtype}[{made[0]}, {self.filters}, {ones}]"}[self.added]
        conv = f"%0: {y} = conv(%x, %f, {attrs})\n  %1: {y} = add(%0, %other)"
        return f"{lead}graph g(%x: {x}, %f: {f}, %other: {other}):\n  {conv}\n  return %1\n"


def _type(dtype: str, first: str, channels: str, space: list[str]) -> str:
    """Of a tensor with its channels last in memory."""
    shape = [first, channels, *space]
    strides = [[channels, *space], [], *([channels, *space[axis + 1 :]] for axis in range(len(space)))]
    return f"{dtype}[{', '.join(shape)}]{{{', '.join(_product(part) for part in strides)}}}"


def _product(factors: list[str]) -> str:
    known = math.prod(int(factor) for factor in factors if factor.isdecimal())
    names = [factor for factor in factors if not factor.isdecimal()]
    return "*".join(([str(known)] if known != 1 or not names else []) + names)


def copies(conv: Conv) -> set[str]:
    """Instructions of TMA that the kernel of a convolution copies by."""
    (step,) = [step for step in schedule_text(conv.text, "sm_90a").steps if isinstance(step, ScheduledTask)]
    bodies = (function.body for function in step.program.module.functions)
    callees = {node.callee for body in bodies for node in walk(body) if isinstance(node, Call)}
    return {name.removeprefix("cuda.") for name in callees if name.startswith("cuda.tensor_load")}


TOLERANCE = {"f16": 1e-2, "bf16": 8e-2, "f32": 2e-2}
COPIED = {
    "three by three": Conv(2, 64, (5, 7), (3, 3)),
    "strided": Conv(2, 128, (9, 6), (3, 3), step=2),
    "one pixel, strided": Conv(3, 64, (8, 8), (1, 1), step=2),
    "spread": Conv(1, 64, (12, 12), (3, 3), spread=2, pads=(2, 2)),
    "other sides": Conv(2, 64, (9, 9), (5, 3), pads=(3, 0, 1, 2)),
    "large filter": Conv(1, 64, (11, 13), (7, 7), step=2),
    "lines": Conv(2, 64, (70,), (3,)),
    "volumes": Conv(2, 64, (3, 4, 5), (3, 3, 3)),
    "bf16": Conv(2, 64, (5, 7), (3, 3), dtype="bf16"),
    "rounded": Conv(2, 32, (5, 7), (3, 1), dtype="f32"),
    "half a step": Conv(2, 96, (5, 7), (3, 3), added="image"),
    "half a step, rounded": Conv(2, 16, (5, 7), (3, 1), dtype="f32"),
    "many pixels": Conv(3, 64, (14, 14), (3, 3), filters=130),
    "an image added": Conv(3, 64, (5, 7), (3, 3), added="image"),
    "a number added for each image and filter": Conv(3, 64, (5, 7), (3, 3), added="time"),
    "such a number, strided": Conv(3, 128, (15, 14), (3, 3), step=2, added="time", filters=72),
    "such a number, in lines": Conv(4, 64, (35,), (3,), added="time"),
    "channels first": Conv(3, 64, (5, 7), (3, 3), made="first"),
    "channels first, few filters": Conv(2, 128, (9, 11), (3, 3), made="first", filters=4),
    "channels first, volumes": Conv(2, 64, (3, 4, 5), (3, 3, 3), made="first", added="time"),
    "channels first, rounded": Conv(2, 32, (5, 8), (3, 1), dtype="f32", made="first"),
    "sums that blocks have different parts of": Conv(
        3, 96, (5, 9), (3, 3), pads=(0, 0), step=2, filters=136, added="time"
    ),
    "channels first, split": Conv(2, 320, (5, 8), (3, 3), made="first", filters=3),
}


@pytest.mark.parametrize("conv", COPIED.values(), ids=COPIED)
@pytest.mark.thorough(every=8)
def test_columns_of_pixels_are_copied_by_tma(conv: Conv) -> None:
    assert copies(conv) == {f"tensor_load_im2col.{len(conv.size) + 2}d", "tensor_load.2d"}
    assert_right(conv.text, "cuda.matmul", TOLERANCE[conv.dtype], arch="sm_90a")


SYMBOLIC = {
    "images": Conv(2, 64, (5, 7), (3, 3), symbols=("n",)),
    "images and sides": Conv(2, 64, (5, 7), (3, 3), symbols=("n", "h", "w")),
    "images, to which numbers are added": Conv(2, 64, (5, 7), (3, 3), symbols=("n",), added="time"),
    "images and sides, half a step": Conv(2, 32, (5, 7), (3, 3), symbols=("n", "h", "w")),
    "images and sides, channels first": Conv(2, 64, (5, 7), (3, 3), symbols=("n", "h", "w"), made="first"),
}


@pytest.mark.parametrize("conv", SYMBOLIC.values(), ids=SYMBOLIC)
@pytest.mark.parametrize("sizes", [{"n": 1, "h": 9, "w": 4}, {"n": 5, "h": 1, "w": 1}], ids=["one", "several"])
@pytest.mark.thorough(every=2)
def test_columns_of_pixels_of_any_images_are_copied_by_tma(conv: Conv, sizes: dict[str, int]) -> None:
    assert "tensor_load_im2col.4d" in copies(conv)
    given = {name: sizes[name] for name in conv.symbols}
    assert_right(conv.text, "cuda.matmul", 1e-2, arch="sm_90a", sizes=given)


OTHERS = {
    "channels that fill no step": Conv(2, 80, (5, 7), (3, 3)),
    "groups": Conv(2, 128, (5, 7), (3, 3), groups=2),
    "far padding": Conv(1, 64, (3, 3), (3, 3), pads=(130, 130)),
    "far taps": Conv(1, 64, (140, 3), (3, 1), spread=128, pads=(128, 0)),
    "long steps": Conv(1, 64, (40, 40), (3, 3), step=9),
}


@pytest.mark.parametrize("conv", OTHERS.values(), ids=OTHERS)
def test_threads_copy_what_no_tensor_map_describes(conv: Conv) -> None:
    assert not any("im2col" in name for name in copies(conv))


OVERLAPPING = """
graph g(%x: f16[2, 9, 56], param %f: f16[72, 32, 3, 1]{96, 1, 32, 32}):
  %0: f16[2, 9, 4, 32]{504, 56, 8, 1} = unfold(%x, axis=2, size=32, step=8)
  %1: f16[2, 32, 9, 4]{504, 1, 56, 8} = transpose(%0, perm=[0, 3, 1, 2])
  %2: f16[2, 72, 5, 4]{1440, 1, 288, 72} = conv(%1, %f, stride=[2, 1], padding=[[1, 1], [0, 0]])
  return %2
"""


def test_pixels_that_overlap_are_copied_by_tma() -> None:
    """Windows of lines, each of which begins at a multiple of 16 bytes."""
    assert_right(OVERLAPPING, "cuda.matmul", 1e-2, arch="sm_90a")
    assert "im2col" in sources_of(OVERLAPPING, "sm_90a")[0]


def test_kernels_that_copy_pixels_compile_without_spills() -> None:
    for conv in (
        COPIED["three by three"],
        COPIED["volumes"],
        Conv(32, 256, (56, 56), (3, 3), filters=256),
        Conv(2, 960, (64, 64), (3, 3), filters=320, added="time"),
        Conv(2, 320, (64, 64), (3, 3), filters=4, made="first"),
    ):
        assert_compiles(conv.text, "sm_90a")


UNEVEN_TILES = [tiles for tiles in WARP_SPECIALIZED_TILES if tiles.n & tiles.n - 1]


@pytest.mark.parametrize("tiles", UNEVEN_TILES, ids=str)
@pytest.mark.thorough(every=3)
def test_tiles_whose_columns_are_no_power_of_two_are_right(tiles: MatmulTiles, monkeypatch: pytest.MonkeyPatch) -> None:
    _only(monkeypatch, tiles)
    conv = Conv(3, 64, (5, 8), (3, 1), filters=2 * tiles.n - 8, added="time")
    assert_right(conv.text, "cuda.matmul", 1e-2, arch="sm_90a")
    assert_compiles(conv.text, "sm_90a")


@pytest.mark.parametrize("tiles", TRANSPOSED_TILES, ids=str)
@pytest.mark.thorough(every=8)
def test_transposed_tiles_of_pixels_compile_without_spills(tiles: MatmulTiles, monkeypatch: pytest.MonkeyPatch) -> None:
    _only(monkeypatch, tiles)
    assert_compiles(Conv(3, tiles.k, (5, 8), (3, 1), filters=2 * tiles.n - 8, added="time").text, "sm_90a")
    assert_compiles(Conv(3, tiles.k, (5, 8), (3, 1), filters=2 * tiles.n - 8, added="image").text, "sm_90a")


@pytest.mark.parametrize("tiles", NARROW_TILES, ids=str)
@pytest.mark.thorough(every=4)
def test_tiles_of_half_a_step_are_right(tiles: MatmulTiles, monkeypatch: pytest.MonkeyPatch) -> None:
    _only(monkeypatch, tiles)
    for added in ("time", "image"):
        conv = Conv(3, 96, (5, 8), (3, 1), filters=2 * tiles.n - 8, added=added)
        assert_right(conv.text, "cuda.matmul", 1e-2, arch="sm_90a")
        assert_compiles(conv.text, "sm_90a")


@pytest.mark.parametrize("tiles", [tiles for tiles in TRANSPOSED_TILES if tiles.stages == 8 or tiles.m == 200], ids=str)
@pytest.mark.thorough(every=2)
def test_transposed_tiles_of_pixels_are_right(tiles: MatmulTiles, monkeypatch: pytest.MonkeyPatch) -> None:
    _only(monkeypatch, tiles)
    for added in ("time", "image"):
        conv = Conv(3, tiles.k, (5, 8), (3, 1), filters=2 * tiles.n - 8, added=added)
        assert_right(conv.text, "cuda.matmul", 1e-2, arch="sm_90a")


def test_channels_of_a_step_are_of_one_tap(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 channels of 9 taps: a step of 128 would take two taps for one."""
    longer = [tiles for tiles in TRANSPOSED_TILES if tiles.k > 64]
    assert longer
    monkeypatch.setattr(product_tiles, "WARP_SPECIALIZED_TILES", WARP_SPECIALIZED_TILES[:1])
    monkeypatch.setattr(product_tiles, "TRANSPOSED_TILES", tuple(longer))
    assert_right(Conv(3, 64, (5, 8), (3, 3)).text, "cuda.matmul", 1e-2, arch="sm_90a")


def _only(monkeypatch: pytest.MonkeyPatch, tiles: MatmulTiles) -> None:
    """Products are cut into these tiles alone."""
    monkeypatch.setattr(product_tiles, "specialized_tiles", lambda product: (tiles,))
