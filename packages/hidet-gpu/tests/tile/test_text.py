"""Kernels in tiles as text: what is printed reads back as the same kernel, and what is wrong is named."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hidet import dims, dtypes
from hidet.errors import ScheduleError, VerifyError
from hidet.gpu.tile import statements as t
from hidet.gpu.tile.kernel import TileKernel
from hidet.gpu.tile.lower.kernel import lower_kernel
from hidet.gpu.tile.lower.simt import SIMT
from hidet.gpu.tile.parser import parse_kernel
from hidet.gpu.tile.printer import print_kernel
from hidet.gpu.tile.templates.attention import EVERY, AttentionTiles, Band, Heads, attention_kernel, causal
from hidet.gpu.tile.templates.matmul import MatmulTiles, matmul_kernel
from hidet.gpu.tile.templates.patches import patches
from hidet.gpu.tile.tensors import PatchAxis, RTile, Stacked, STile, computed, matrix
from hidet.gpu.tile.verify import verify_kernel
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir.structural import structural_hash
from hidet.ir.types import PointerType
from hidet.testing.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"


def pointer(name, dtype):
    return e.Var(name, PointerType(dtype))


def epilogue(value, row, column, *others):
    total = build.maximum(value, 0.0)
    total = total / (build.unary("exp", -total) + 1.0)
    total = total / (build.unary("exp", -total) + 1.0)
    for other in others:
        total = total + build.cast(other, dtypes.f32)
    return build.select(build.binary("lt", row, column), total, -1.5)


def product(
    *,
    ta=False,
    tb=False,
    finishes=False,
    operands=0,
    is_batch=False,
    is_split=False,
    gathers=False,
    computes=False,
    stacks=False,
    dtype=dtypes.f16,
    name="matmul",
):
    """A product of matrices of sizes that are known when it is called."""
    m, n, k = (build.size_var(size) for size in "mnk")
    a, b, c = pointer("a", dtype), pointer("b", dtype), pointer("c", dtypes.f32)
    others = [pointer(f"d{number}", dtypes.f16) for number in range(operands)]
    number, count = build.size_var("number"), build.size_var("count")
    begin = build.binary("add", a, number * (m * k)) if is_batch else a
    left = matrix(begin, *((k, m) if ta else (m, k)), align=16) if not is_batch else None
    left = left or type(matrix(b, n, k))(begin, *((k, m) if ta else (m, k)), m if ta else k, 16)
    if gathers:
        axis = PatchAxis(*map(build.index, (8, 16, 3, 8, 1, 1, 1)))
        left = patches(a, m, n, [axis, axis], build.index(16), 16, of_numbers=dtypes.i32, of_places=dtypes.i32)
    if computes:
        left = computed(
            dtype, left.rows, left.columns, lambda row, column: build.unary("neg", build.load(a, row + column))
        )
    right, below = matrix(b, *((n, k) if tb or stacks else (k, n)), align=16), pointer("below", dtype)
    if stacks:
        tb, right = True, Stacked((matrix(b, 16, k, align=16), matrix(below, n, k, align=16)))
    return matmul_kernel(
        name,
        (a, b, c, *others, *((below,) if stacks else ()), m, n, k, *((count,) if is_batch else ())),
        left,
        right,
        matrix(c, m, n, align=16),
        MatmulTiles(32, 16, 16, 2, (2, 1)),
        a_is_transposed=ta,
        b_is_transposed=tb,
        epilogue=epilogue if finishes or operands else None,
        epilogue_operands=[matrix(other, m, n, 0 if number % 2 else n) for number, other in enumerate(others)],
        batch=(number, count) if is_batch else None,
        steps=(n, build.minimum(k, 4)) if is_split else None,
    )


BANDS = {
    "every key": EVERY,
    "causal": causal(),
    "window": Band(build.index(-3), build.index(2), may_be_empty=True),
    "from the left": Band(low=build.index(-3), may_be_empty=True),
}


def attention(
    *, scale=0.125, scores=False, hides=False, band="every key", has_logarithms=False, width=32, name="attention"
):
    """Attention of heads that lie one behind the other."""
    rows, length, block, head = (build.size_var(name) for name in ("rows", "length", "block", "head"))
    q, k, v, out = (pointer(name, dtypes.f16) for name in ("q", "k", "v", "out"))
    logarithms = pointer("logarithms", dtypes.f32)
    sizes = ((q, rows, 16), (k, length, 16), (v, length, width), (out, rows, width))
    return attention_kernel(
        name,
        (q, k, v, out, logarithms, rows, length),
        Heads(
            *(matrix(of, extent, columns, align=16) for of, extent, columns in sizes),
            16,
            width,
            matrix(logarithms, rows, 1) if has_logarithms else None,
        ),
        scale,
        AttentionTiles(16, 16, 2, 1),
        grid_vars=(block, head),
        block=block,
        score=(lambda value, row, first, key: value + build.cast(row - first - key, dtypes.f32)) if scores else None,
        visible=(lambda row, first, key: build.binary("ne", row, first + key)) if hides else None,
        band=BANDS[band],
    )


flags = st.booleans()
PRODUCTS = st.builds(
    product, ta=flags, tb=flags, finishes=flags, operands=st.integers(0, 2), is_batch=flags, is_split=flags
) | st.builds(product, tb=flags, is_split=flags, gathers=flags, computes=flags, stacks=flags)
ATTENTIONS = st.builds(
    attention,
    scale=st.sampled_from([0.125, -1.0, 1 / math.sqrt(24)]),
    scores=flags,
    hides=flags,
    band=st.sampled_from(list(BANDS)),
    has_logarithms=flags,
    width=st.sampled_from([16, 32, 80]),
)


@settings(max_examples=60)
@given(kernel=PRODUCTS | ATTENTIONS)
def test_every_template_reads_back_as_the_same_kernel(kernel):
    text = print_kernel(kernel)
    again = parse_kernel(text)
    assert print_kernel(again) == text
    verify_kernel(kernel)
    verify_kernel(again)
    assert structural_hash(lower_kernel(again, SIMT)) == structural_hash(lower_kernel(kernel, SIMT))


@pytest.mark.parametrize(
    "kernel",
    [
        product(finishes=True, operands=2, tb=True, name="matmul"),
        product(gathers=True, tb=True, name="convolution"),
        product(computes=True, is_split=True, name="split"),
        product(stacks=True, name="stacked"),
        attention(band="causal", has_logarithms=True, width=80),
        attention(band="window", name="windowed_attention"),
    ],
    ids=lambda kernel: kernel.name,
)
def test_kernels_of_templates_as_text(kernel):
    assert_golden(print_kernel(kernel), GOLDEN / f"{kernel.name}.tile")


def test_tiles_that_are_transposed_or_have_room_read_back():
    x, y, out = (pointer(name, dtypes.f16) for name in ("x", "y", "out"))
    tile_x, tile_y = STile("tile_x", dtypes.f16, 24, 48, room=64), STile("tile_y", dtypes.f16, 64, 48, room=64)
    total = RTile("total", dtypes.f16, 24, 64, is_transposed=True)
    body = (
        t.load(tile_x, matrix(x, 24, 48), 0, 0),
        t.load(tile_y, matrix(y, 64, 48), 0, 0),
        t.fill(total, 0),
        t.mma(total, tile_x, tile_y, b_is_transposed=True),
        t.store(matrix(out, 24, 64), total, 0, 0),
    )
    text = print_kernel(TileKernel("k", (x, y, out), (), (1, 4), body))
    assert "total: strided(f16[24, 64], [1, 24]) @ register" in text
    assert "tile_x: strided(f16[24, 48], [64, 1]) @ shared" in text
    again = parse_kernel(text)
    verify_kernel(again)
    assert print_kernel(again) == text
    with pytest.raises(ScheduleError, match="total is spread as its transpose, which only warp groups give"):
        lower_kernel(again, SIMT)


def test_parts_of_a_formula_that_are_used_several_times_are_written_once():
    """As a tree this one would have half a million nodes."""
    tile = RTile("x", dtypes.f32, 16, 16)

    def chain(x, row, column):
        for _ in range(16):
            x = x / (build.unary("exp", -x) + 1.0)
        return x

    x, y = pointer("x", dtypes.f32), pointer("y", dtypes.f32)
    body = (
        t.fetch(tile, matrix(x, 16, 16), 0, 0),
        t.map(tile, [tile], chain),
        t.store(matrix(y, 16, 16), tile, 0, 0),
    )
    kernel = TileKernel("chain", (x, y), (), (1, 1), body)
    text = print_kernel(kernel)
    assert len(text) < 2000
    again = parse_kernel(text)
    assert print_kernel(again) == text
    assert structural_hash(lower_kernel(again, SIMT)) == structural_hash(lower_kernel(kernel, SIMT))


def test_symbolic_sizes_stand_before_the_kernel():
    n = dims.symbol("n", 8, 64, divisor=8)
    c, a, b = pointer("c", dtypes.f32), pointer("a", dtypes.f16), pointer("b", dtypes.f16)
    size = e.Size(n, dtypes.i64)
    kernel = matmul_kernel(
        "sized", (a, b, c), matrix(a, size, 16), matrix(b, 16, 16), matrix(c, size, 16), MatmulTiles()
    )
    text = print_kernel(kernel)
    assert text.startswith("n = symbol(8, 64, divisor=8)\n")
    assert print_kernel(parse_kernel(text)) == text


KERNEL = """\
@tile(symbol='a.b', warps=(1, 1))
def a_b(x: ~f32, y: ~f32, n: i64):
    block = grid(n)
    first: i64 = block * 16
    X = matrix(x, [n, 16], stride=16, align=4)
    Y = matrix(y, [n, 16], stride=16, align=4)
    t: f32[16, 16] @ register
    top: f32[16, 1] @ register
    s: f32[16, 16] @ shared
    t = fetch(X, first, 0)
    top = fill(0.0)
    for step in range(n):
        top = reduce("max", t, axis=1)
        if step < 3:
            t = map(lambda t, top, row, column: t - top, t, top)
        if any(lambda top: top > 0.0, top):
            t = map(lambda t, row, column: t * 2.0, t)
        for step_1 in pipeline(4, stages=2):
            s = load(X, step_1, 0)
            t = map(lambda t, row, column: -t, t)
        s = load(X, 0, 0)
        for step_2 in pipeline(4, stages=2):
            pass
    store(Y, t, first, 0)
"""


def test_every_statement_reads_back():
    kernel = parse_kernel(KERNEL)
    verify_kernel(kernel)
    assert kernel.name == "a.b"
    assert print_kernel(kernel) == KERNEL.replace("    s: f32[16, 16] @ shared\n", "").replace(
        "    top: f32[16, 1] @ register\n", "    top: f32[16, 1] @ register\n    s: f32[16, 16] @ shared\n"
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("t = fetch(X", "u = fetch(X", "line 10, column 5: tile u is not declared"),
        ("t = fetch(X", "t = fetch(Z", "line 10, column 15: matrix Z is not declared"),
        ("t = fetch(X", "s = fetch(X", "tile s is in shared memory, where this statement does not take it"),
        ("top = fill(0.0)", "top = fill(n)", "a tile is filled with a number, not n"),
        ("top = fill(0.0)", "top = fill(0)", "tile top of f32 is filled with a i64"),
        ("top = fill(0.0)", "top = fill()", "has the wrong arguments, expected 1 values"),
        ("top = fill(0.0)", "top += fill(0.0)", "is no statement of a kernel in tiles"),
        ("top = fill(0.0)", "return 3", "return 3 is no statement of a kernel in tiles"),
        (
            '"max", t, axis=1',
            '"max", t, axis=0',
            "t of [16, 16] reduced along axis 0 is [16, 16] of f32, but",
        ),
        ('"max", t, axis=1', '"mean", t, axis=1', "t is reduced by 'mean' along axis 1, expected add, max, min"),
        ("t - top, t, top", "t - top, t", "expected a lambda of 3 parameters"),
        ("t - top, t, top", "t - most, t, top", "most is not defined"),
        ("t - top, t, top", "t > top, t, top", "t of f32 is computed by a formula of type bool"),
        (
            "pipeline(4, stages=2):\n            pass",
            "pipeline(4, stages=1):\n            pass",
            "a pipeline of 1 stages",
        ),
        (
            "pipeline(4, stages=2):\n            pass",
            "pipeline(4):\n            pass",
            "expected pipeline(extent, stages=...)",
        ),
        (
            "            s = load(X, step_1, 0)\n            t = map(lambda t, row, column: -t, t)\n",
            "            t = map(lambda t, row, column: -t, t)\n            s = load(X, step_1, 0)\n",
            "tile s is loaded behind other statements of a pipeline",
        ),
        ("        if step < 3:", "        while step < 3:", "is no statement of a kernel in tiles"),
        ("@tile(symbol='a.b', warps=(1, 1))", "@kernel", "kernel a_b needs one decorator: @tile"),
        ("t: f32[16, 16] @ register", "t: f32[16, n] @ register", "t is no tile: expected a type such as"),
        (
            "t: f32[16, 16] @ register",
            "t: strided(f32[16, 16], [3, 1]) @ register",
            "t has strides [3, 1], expected none",
        ),
        ("X = matrix(x, [n, 16]", "X = matrix(x, [n]", "expected [rows, columns]"),
    ],
)
def test_text_that_is_no_kernel_is_named_with_its_place(old, new, message):
    assert old in KERNEL
    with pytest.raises(VerifyError) as caught:
        parse_kernel(KERNEL.replace(old, new, 1))
    assert message in str(caught.value) and "program text, line " in str(caught.value)


def test_a_tile_of_a_pipeline_is_gone_behind_it():
    text = """\
@tile(warps=(1, 1))
def k(x: ~f16, y: ~f32):
    X = matrix(x, [16, 16], stride=16, align=16)
    Y = matrix(y, [16, 16], stride=16, align=16)
    s: f16[16, 16] @ shared
    t: f32[16, 16] @ register
    t = fill(0.0)
    s = load(X, 0, 0)
    for step in pipeline(4, stages=2):
        s = load(X, step, 0)
        t += mma(s, s)
    t += mma(s, s)
    store(Y, t, 0, 0)
"""
    again = "    t += mma(s, s)\n    store"
    verify_kernel(parse_kernel(text.replace(again, f"    s = load(X, 0, 0)\n{again}")))
    with pytest.raises(VerifyError, match="tile s is read before it is written"):
        verify_kernel(parse_kernel(text))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '    top = fill(0.0)\n    for step in range(n):\n        top = reduce("max", t, axis=1)\n',
            "    for step in range(n):\n",
            "in t = map(lambda t, top, row, column: t - top, t, top): tile top is read before it is written",
        ),
        (
            "    top = fill(0.0)\n    for step in range(n):\n",
            "    for step in range(n):\n        if step < 2:\n            top = fill(0.0)\n",
            None,
        ),
        ('        top = reduce("max", t, axis=1)\n        if step', "        if step", None),
        ("    t = fetch(X, first, 0)\n", "", "tile t is read before it is written"),
        ("t = fetch(X, first, 0)", "t = fetch(X, x[0], 0)", "in t = fetch(X, x[0], 0): the row of a box has type f32"),
        ("first: i64 = block * 16", "first: i32 = block * 16", "the value of first has type i64, expected i32"),
        ("stride=16, align=4)\n    Y", "stride=16, align=3)\n    Y", "a matrix of f32 is aligned to 3 bytes"),
        ("x: ~f32,", "x: ~f32 @ shared,", "a matrix lies at an address of type ~f32@shared"),
        ("matrix(x, [n, 16]", "matrix(x, [i32(3), 16]", "an extent of a matrix has type i32, expected i64"),
        ("if step < 3:", "if step + 3:", "the condition has type i64, expected bool"),
        ("range(n)", "range(i32(3))", "the extent of a loop has type i32, expected i64"),
        (
            "s: f32[16, 16] @ shared",
            "s: f32[16, 3] @ shared",
            "tile s: a tile in shared memory has rows of 3 x 4",
        ),
        ("s: f32[16, 16] @ shared", "s: f32[0, 16] @ shared", "tile s is [0, 16], expected positive extents"),
        ("warps=(1, 1)", "warps=(1, 0)", "1 x 0 warps, expected at least one along each axis"),
        ("t * 2.0, t)", "t * cast(row, f32) + cast(1 == 2, f32) * cast(2, i32), t)", "operands of"),
    ],
)
def test_kernels_that_break_a_rule_are_refused(old, new, message):
    assert old in KERNEL
    text = KERNEL.replace(old, new, 1)
    if message is None:
        verify_kernel(parse_kernel(text))
        return
    with pytest.raises(VerifyError) as caught:
        verify_kernel(parse_kernel(text))
    assert "kernel a.b in tiles" in str(caught.value) and message in str(caught.value)
