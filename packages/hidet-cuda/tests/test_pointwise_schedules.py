"""Chains, windows, depthwise convolutions and transposes, run by the simulator and compiled."""

from __future__ import annotations

import numpy as np
import pytest

from hidet.cache import open_cache
from hidet.context import CompileContext, Options
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.schedules import assert_compiles, assert_right, schedule_text, sources_of
from hidet.gpu.passes.depthwise_channels_last import DepthwiseChannelsLast
from hidet.gpu.schedules import depthwise, depthwise_kernel, depthwise_plan, items, pointwise_layout
from hidet.graph.parser import parse_graph
from hidet.ir.expr import Bitcast
from hidet.ir.visit import walk
from hidet.plugins.host import load_registry
from hidet.schedule.select import ScheduledTask
from hidet.testing.interpret import interpret

ARCHITECTURES = ["sm_80", "sm_89", "sm_90a"]


def graph(given: str, result: str, call: str, *more: str) -> str:
    return f"graph g({', '.join([f'%x: {given}', *more])}):\n  %0: {result} = {call}\n  return %0\n"


@pytest.fixture(params=[True, False], ids=["16 bytes a thread", "an element a thread"])
def busy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tensors are computed element by element, to use more of a device; here they are not always."""
    if request.param:
        monkeypatch.setattr(pointwise_layout, "per_device", lambda each, target: 1)


CHAIN = """
graph g(%x: f16[130, 130], %y: f16[130, 130], %s: f16[]):
  %0: f16[130, 130] = add(%x, %y)
  %1: f16[130, 130] = relu(%0)
  %2: f16[130, 130] = mul(%1, %s)
  return %2
"""
CHAINS = {
    "tensors that lie alike": CHAIN,
    "a row for all rows": graph("f32[7, 12]", "f32[7, 12]", "add(%x, %y)", "%y: f32[12]"),
    "a column for all columns": graph("f32[7, 12]", "f32[7, 12]", "add(%x, %y)", "%y: f32[7, 1]"),
    "a number for each channel": graph("f16[2, 8, 3, 4]", "f16[2, 8, 3, 4]", "add(%x, %y)", "%y: f16[8, 1, 1]"),
    "rows of an odd length": graph("f32[7, 9]", "f32[7, 9]", "add(%x, %y)", "%y: f32[9]"),
    "two types": graph("f16[6, 16]", "f32[6, 16]", "cast(%x, dtype=f32)"),
    "concatenated columns": graph("f32[3, 8]", "f32[3, 24]", "concat(%x, %y, axis=1)", "%y: f32[3, 16]"),
    "concatenated odd columns": graph("f32[3, 5]", "f32[3, 12]", "concat(%x, %y, axis=1)", "%y: f32[3, 7]"),
    "padding": graph("f32[3, 8]", "f32[5, 12]", 'pad(%x, pads=[[1, 1], [4, 0]], mode="constant", value=0)'),
    "odd padding": graph("f32[3, 8]", "f32[5, 11]", 'pad(%x, pads=[[1, 1], [1, 2]], mode="constant", value=0)'),
    "a choice by data": graph("f32[5, 8]", "f32[5, 8]", "where(%m, %x, %y)", "%m: bool[5, 8]", "%y: f32[5, 8]"),
    "one element": graph("f32[]", "f32[]", "exp(%x)"),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.usefixtures("busy")
def test_chains_are_right(name: str) -> None:
    assert_right(CHAINS[name], "gpu.elementwise", 2e-3)


@pytest.mark.usefixtures("busy")
def test_rows_that_positions_name_are_right() -> None:
    text = graph("f32[9, 16]", "f32[3, 16]", "embedding(%x, %i)", "%i: i64[3]")
    assert_right(text, "gpu.elementwise", 0, {"i": np.array([8, 0, 3])})


@pytest.mark.usefixtures("busy")
def test_reads_that_depend_on_what_was_read_are_right() -> None:
    call = 'grid_sample(%x, %g, mode="linear", padding="zeros", align_corners=False)'
    text = graph("f32[1, 2, 3, 4]", "f32[1, 2, 2, 5]", call, "%g: f32[1, 2, 5, 2]")
    assert_right(text, "gpu.elementwise", 1e-5)


def test_large_chains_read_and_write_16_bytes() -> None:
    text = CHAIN.replace("130", "1300")
    wide, narrow = sources_of(text, is_aligned=False)
    (alone,) = sources_of(text)
    assert "*(Lanes<f16, 8>*)" in alone, "calls copy what is not aligned"
    assert "*(Lanes<f16, 8>*)" in wide
    assert "Lanes" not in narrow


LAST = "f16[1, 16, 7, 7]{784, 1, 112, 16}"
HALF = "f16[1, 16, 4, 4]{256, 1, 64, 16}"
POOL = "kernel=[3, 3], stride=[2, 2], padding=[1, 1], ceil_mode=False"
WINDOWS = {
    "channels-last maxima": graph(LAST, HALF, f"max_pool(%x, dilation=[1, 1], {POOL})"),
    "maxima of an image": graph("f32[1, 3, 7, 7]", "f32[1, 3, 4, 4]", f"max_pool(%x, dilation=[1, 1], {POOL})"),
    "averages": graph(LAST, HALF, f"avg_pool(%x, {POOL}, count_include_pad=False, divisor_override=None)"),
    "adaptive averages": graph("f32[1, 8, 7, 7]", "f32[1, 8, 3, 3]", "adaptive_avg_pool(%x, size=[3, 3])"),
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.usefixtures("busy")
def test_windows_are_right(name: str) -> None:
    assert_right(WINDOWS[name], "gpu.pool", 4e-3)


@pytest.mark.usefixtures("busy")
def test_maxima_and_their_places_are_right() -> None:
    text = f"""
    graph g(%x: f32[1, 3, 7, 7]):
      %0: f32[1, 3, 4, 4], %1: i64[1, 3, 4, 4] = max_pool_with_indices(%x, dilation=[1, 1], {POOL})
      return %0, %1
    """
    assert_right(text, "gpu.pool", 0)


SAME = "stride=[1, 1], padding=[1, 1], dilation=[1, 1]"
TAPS = "%w: f16[16, 1, 3, 3]{1, 1, 48, 16}"
DEPTHWISE = {
    "every pixel": graph(LAST, LAST, f"conv(%x, %w, %b, {SAME}, groups=16)", TAPS, "%b: f16[16]"),
    "every second pixel": graph(LAST, HALF, f"conv(%x, %w, {SAME.replace('1, 1', '2, 2', 1)}, groups=16)", TAPS),
    "five taps, and an odd image": graph(
        "f16[2, 16, 9, 10]{1440, 1, 160, 16}",
        "f16[2, 16, 5, 5]{400, 1, 80, 16}",
        "conv(%x, %w, stride=[2, 2], padding=[2, 2], dilation=[1, 1], groups=16)",
        "%w: f16[16, 1, 5, 5]{1, 1, 80, 16}",
    ),
    "taps that lie apart": graph(
        "f32[1, 8, 9, 9]{648, 1, 72, 8}",
        "f32[1, 8, 9, 9]{648, 1, 72, 8}",
        "conv(%x, %w, stride=[1, 1], padding=[2, 2], dilation=[2, 2], groups=8)",
        "%w: f32[8, 1, 3, 3]{1, 8, 24, 8}",
    ),
    "a line": graph(
        "f32[2, 8, 9]{72, 1, 8}",
        "f32[2, 8, 7]{56, 1, 8}",
        "conv(%x, %w, stride=[1], padding=[0], dilation=[1], groups=8)",
        "%w: f32[8, 1, 3]{1, 8, 8}",
    ),
    "filters as they come": graph(
        LAST, LAST, f"conv(%x, %w, %b, {SAME}, groups=16)", "%w: f16[16, 1, 3, 3]", "%b: f16[16]"
    ),
    "channels that are not in fours": graph(
        "f32[1, 6, 5, 5]{150, 1, 30, 6}",
        "f32[1, 6, 3, 5]{90, 1, 30, 6}",
        "conv(%x, %w, stride=[2, 1], padding=[1, 1], dilation=[1, 1], groups=6)",
        "%w: f32[6, 1, 3, 3]{1, 6, 18, 6}",
    ),
    "channels first": graph(
        "f16[2, 5, 7, 9]", "f16[2, 5, 7, 9]", f"conv(%x, %w, {SAME}, groups=5)", "%w: f16[5, 1, 3, 3]"
    ),
    "a line of channels first": graph(
        "f32[2, 6, 9]",
        "f32[2, 6, 7]",
        "conv(%x, %w, stride=[1], padding=[0], dilation=[1], groups=6)",
        "%w: f32[6, 1, 3]",
    ),
    "channels last, and a result with channels first": graph(
        "f16[2, 8, 5, 6]{240, 1, 48, 8}", "f16[2, 8, 5, 6]", f"conv(%x, %w, {SAME}, groups=8)", "%w: f16[8, 1, 3, 3]"
    ),
    "channels first, and a result with channels last": graph(
        "f16[2, 8, 5, 6]", "f16[2, 8, 5, 6]{240, 1, 48, 8}", f"conv(%x, %w, {SAME}, groups=8)", "%w: f16[8, 1, 3, 3]"
    ),
    "many channels last, and a result with channels first": graph(
        "f16[1, 24, 3, 40]{2880, 1, 960, 24}",
        "f16[1, 24, 3, 40]",
        f"conv(%x, %w, %b, {SAME}, groups=24)",
        "%w: f16[24, 1, 3, 3]{1, 1, 72, 24}",
        "%b: f16[24]",
    ),
    "steps that skip pixels": graph(
        "f32[1, 4, 9, 9]{324, 1, 36, 4}",
        "f32[1, 4, 3, 3]{36, 1, 12, 4}",
        "conv(%x, %w, stride=[3, 3], padding=[0, 0], dilation=[1, 1], groups=4)",
        "%w: f32[4, 1, 2, 2]{1, 4, 8, 4}",
    ),
}
NARROW = {
    "two channels a filter": graph(
        "f32[1, 8, 5, 5]", "f32[1, 16, 5, 5]", f"conv(%x, %w, {SAME}, groups=4)", "%w: f32[16, 2, 3, 3]"
    ),
}


@pytest.mark.parametrize("name", DEPTHWISE)
@pytest.mark.parametrize(("pixels", "rows"), [(1, 1), (2, 1), (1, 4), (2, 2), (4, 4)])
@pytest.mark.thorough(every=3)
def test_depthwise_convolutions_are_right(name: str, pixels: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depthwise_plan, "per_device", lambda each, target: 1)
    monkeypatch.setattr(depthwise_plan, "_PIXELS", pixels)
    monkeypatch.setattr(depthwise_plan, "_ROWS", rows)
    assert_right(DEPTHWISE[name], "gpu.depthwise", 1e-2 if "f16" in DEPTHWISE[name] else 1e-4)


@pytest.mark.parametrize("most", [1 << 30, 130], ids=["32 bits", "64 bits"])
@pytest.mark.parametrize(("n", "h"), [(1, 4), (3, 1), (2, 7)])
def test_depthwise_convolutions_of_any_batch_and_height_are_right(
    n: int, h: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (depthwise, depthwise_kernel):
        monkeypatch.setattr(module, "MOST_COUNTED", most)
    text = "symbol n: 1.. hint 32\nsymbol h: 1.. hint 56\n" + graph(
        "f16[n, 8, h, 5]{40*h, 1, 40, 8}",
        "f16[n, 8, h, 5]{40*h, 1, 40, 8}",
        f"conv(%x, %w, {SAME}, groups=8)",
        "%w: f16[8, 1, 3, 3]{1, 1, 24, 8}",
    )
    assert_right(text, "gpu.depthwise", 1e-2, sizes={"n": n, "h": h})
    *small, large = sources_of(text)
    assert all("unsigned item" in source for source in small) and "unsigned long long item" in large


ANY_BATCH = graph(
    "f16[n, 8, 9, 6]{432, 1, 48, 8}",
    "f16[n, 8, 9, 6]{432, 1, 48, 8}",
    f"conv(%x, %w, {SAME}, groups=8)",
    "%w: f16[8, 1, 3, 3]{1, 1, 24, 8}",
)


@pytest.mark.parametrize("busy", [1, 40, 1 << 20], ids=["the largest", "one between", "the smallest"])
def test_every_depthwise_tile_that_a_call_may_take_is_right(busy: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depthwise, "least_threads", lambda target: busy)
    assert len(sources_of(f"symbol n: 1..\n{ANY_BATCH}")) == 3 + 1, "of three tiles, and for other addresses"
    assert_right(f"symbol n: 1..\n{ANY_BATCH}", "gpu.depthwise", 1e-2, sizes={"n": 2})


def test_depthwise_tiles_do_not_depend_on_the_first_batch() -> None:
    one, many = (list(schedule_text(f"symbol n: 1.. hint {hint}\n{ANY_BATCH}").hashes.values()) for hint in (1, 500))
    assert one == many


@pytest.mark.parametrize("image", ["", "{384, 1, 64, 8}"], ids=["channels first", "channels last"])
@pytest.mark.parametrize("result", ["", "{384, 1, 64, 8}"], ids=["to first", "to last"])
def test_what_follows_depthwise_convolutions_is_computed_with_them(
    image: str, result: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depthwise_plan, "per_device", lambda each, target: 1)
    type_, out = f"f16[2, 8, 6, 8]{image}", f"f16[2, 8, 6, 8]{result}"
    text = f"""
graph g(%x: {type_}, %w: f16[8, 1, 3, 3]{{1, 1, 24, 8}}, %b: f16[8], %r: f16[2, 8, 6, 8]{image}, %s: f16[8]):
  %0: {type_} = conv(%x, %w, %b, {SAME}, groups=8)
  %1: {type_} = add(%0, %r)
  %2: {out} = mul(%1, %s)
  return %2
"""
    assert_right(text, "gpu.depthwise", 1e-2)


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.usefixtures("busy")
def test_other_convolutions_in_groups_are_right(name: str) -> None:
    assert_right(NARROW[name], "gpu.narrow_conv", 1e-2 if "f16" in NARROW[name] else 1e-4)


def test_weights_of_depthwise_convolutions_become_channels_last() -> None:
    text = DEPTHWISE["filters as they come"]
    registry = load_registry()
    ctx = CompileContext(
        target=CudaTarget("sm_80"), registry=registry, options=Options(), cache=open_cache(enabled=False)
    )
    graph = parse_graph(text, registry.operators)
    changed = DepthwiseChannelsLast().run(graph, ctx)
    copy, conv = changed.nodes
    assert conv.inputs[1] is copy.outputs[0]
    assert copy.outputs[0].tensor.element_strides == (1, 144, 48, 16)
    inputs = [np.random.default_rng(n).standard_normal(v.tensor.shape) for n, v in enumerate(graph.inputs)]
    halves = [array.astype(np.float16) for array in inputs]
    np.testing.assert_array_equal(interpret(changed, halves)[0], interpret(graph, halves)[0])
    assert DepthwiseChannelsLast().run(changed, ctx) is changed


TURNED = {
    "of words": graph("f32[35, 40]{1, 35}", "f32[35, 40]", "add(%x, %y)", "%y: f32[35, 40]"),
    "of halves": graph("f16[34, 70]{1, 34}", "f16[34, 70]", "copy(%x)"),
    "of odd rows": graph("f16[33, 71]{1, 33}", "f16[33, 71]", "copy(%x)"),
    "of bytes": graph("i8[34, 70]{1, 34}", "i8[34, 70]", "copy(%x)"),
    "of images": graph("f16[2, 18, 6, 6]", "f16[2, 18, 6, 6]{648, 1, 108, 18}", "add(%x, %y)", "%y: f16[18, 1, 1]"),
}


@pytest.mark.parametrize("name", TURNED)
def test_transposes_are_right_and_turn_tiles_in_shared_memory(name: str) -> None:
    assert_right(TURNED[name], "gpu.elementwise", 2e-3)
    assert all("__shared__" in source for source in sources_of(TURNED[name]))


SHORT_AXES = {
    "three taps of halves": graph("f16[5, 16, 3]", "f16[5, 16, 3]{48, 1, 16}", "copy(%x)"),
    "six taps of words": graph("f32[5, 12, 2, 3]", "f32[5, 12, 2, 3]{72, 1, 36, 12}", "relu(%x)"),
    "fifteen taps, cast": graph("f32[3, 8, 3, 5]", "f16[3, 8, 3, 5]{120, 1, 40, 8}", "cast(%x, dtype=f16)"),
    "pixels": graph("f16[2, 7, 3, 8]", "f16[2, 7, 3, 8]{168, 24, 8, 1}", "copy(%x)"),
    "twenty-five taps": graph("f16[3, 8, 5, 5]", "f16[3, 8, 5, 5]{200, 1, 40, 8}", "copy(%x)"),
    "an odd number of channels": graph("f16[3, 9, 3, 3]", "f16[3, 9, 3, 3]{81, 1, 27, 9}", "copy(%x)"),
    "a number for each tap": graph("f16[4, 8, 3]", "f16[4, 8, 3]{24, 1, 8}", "add(%x, %y)", "%y: f16[3]"),
    "several rows apart": graph("f16[4, 8, 3]{28, 3, 1}", "f16[4, 8, 3]{24, 1, 8}", "copy(%x)"),
}


@pytest.mark.parametrize("name", SHORT_AXES)
def test_a_short_axis_that_becomes_the_outer_one_is_right(name: str) -> None:
    assert_right(SHORT_AXES[name], "gpu.elementwise", 2e-3)
    turned = {"three taps of halves", "six taps of words", "fifteen taps, cast"}
    assert ("held[" in sources_of(SHORT_AXES[name])[0]) == (name in turned)


def test_words_are_moved_where_all_tensors_are_aligned() -> None:
    text = graph("f16[34, 70]{1, 34}", "f16[34, 70]", "add(%x, %y)", "%y: f16[34, 70]")
    (step,) = schedule_text(text, is_aligned=False).steps
    assert isinstance(step, ScheduledTask)
    entry = next(f for f in step.program.module.functions if f.name == step.program.module.entry)
    asked = {node.a for node in walk(entry.body) if isinstance(node, Bitcast)}
    assert len(asked) == 3, "the transposed tensor, the other one and the result"


def test_scales_of_folded_batch_norms_are_rounded_correctly() -> None:
    """The instruction for 1 / sqrt(x) is an approximation, and what it errs by in every layer adds up."""
    (source,) = sources_of("graph g(%x: f32[64]):\n  %0: f32[64] = batch_norm_scale(%x, eps=0.001)\n  return %0\n")
    kernel = source.partition("__global__")[2]
    assert "1.0f / sqrtf(" in kernel and "rsqrt" not in kernel


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kernels_compile_without_spills(arch: str) -> None:
    big = "f16[8, 96, 112, 112]{1204224, 1, 10752, 96}"
    filters = "%w: f16[96, 1, 3, 3]{1, 1, 288, 96}"
    assert_compiles(graph(big, big, f"conv(%x, %w, {SAME}, groups=96)", filters), arch)
    assert_compiles(graph(big, big, f"max_pool(%x, dilation=[1, 1], {POOL.replace('2, 2', '1, 1')})"), arch)
    assert_compiles(graph("f16[4096, 4096]{1, 4096}", "f16[4096, 4096]", "copy(%x)"), arch)
    assert_compiles(CHAIN.replace("130", "4096"), arch)


def test_symbolic_images_whose_channels_are_neighbours_are_walked_along_the_channels() -> None:
    image = "f16[2, 8, h, w]{8*h*w, 1, 8*w, 8}"
    text = f"symbol h: 1.. hint 64\nsymbol w: 1.. hint 256\n{graph(image, image, 'relu(%x)')}"
    assert_right(text, "gpu.elementwise", 0, sizes={"h": 3, "w": 5})
    assert any("Lanes<f16, 8>" in source for source in sources_of(text))


@pytest.mark.parametrize("most", [1 << 31, 8])
def test_items_of_symbolic_sizes_are_counted_in_32_bits_where_a_call_has_few(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items, "_MOST_COUNTED", most)
    given, result = "f16[n, 3, w]", "f16[n, 4, w]"
    pad = 'pad(%x, pads=[[0, 0], [0, 1], [0, 0]], mode="constant", value=0)'
    text = f"symbol n: 1.. hint 64\nsymbol w: 1.. hint 64\n{graph(given, result, pad)}"
    assert_right(text, "gpu.elementwise", 0, sizes={"n": 3, "w": 5})
    small, large = sources_of(text)
    assert "unsigned long long item" in large and "unsigned long long item" not in small


@pytest.mark.parametrize("busy", [0, 1 << 20])
def test_few_elements_of_symbolic_sizes_are_computed_one_by_one(busy: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pointwise_layout, "per_device", lambda each, target: busy)
    text = f"symbol n: 1.. hint 2\n{graph('f16[n, 8]', 'f16[n, 8]', 'relu(%x)')}"
    assert_right(text, "gpu.elementwise", 0, sizes={"n": 30})
    (step,) = schedule_text(text).steps
    assert isinstance(step, ScheduledTask)
    assert step.decision.params.elements.each == (8,)  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", ["i4", "u4"])
def test_codes_below_a_byte_have_the_sign_of_their_type(dtype: str) -> None:
    text = f"""
    graph g(%p: u8[12, 16], %s: f16[12, 1]):
      %0: {dtype}[12, 32] = unpack(%p, dtype={dtype})
      %1: f16[12, 32] = dequantize(%0, %s, axis=1, block_size=32)
      return %1
    """
    assert_right(text, "gpu.elementwise", 1e-3, {"p": np.arange(192, dtype=np.uint8).reshape(12, 16)})
    (source,) = sources_of(text)
    assert ("<< 28) >> 28" in source) == (dtype == "i4")
