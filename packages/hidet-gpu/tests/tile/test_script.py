"""Kernels in tiles as users write them: the ladder of docs/tile-kernels.md on the simulator, their text, and errors."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import hidet
from hidet import dtypes, tile
from hidet.errors import HidetError, PluginError, ScheduleError, ScriptError
from hidet.gpu.testing.tile_ladder import (
    LadderTiles,
    attention,
    naive_product,
    pipelined_product,
    product_with_epilogue,
)
from hidet.gpu.tile.parser import parse_kernel
from hidet.gpu.tile.printer import print_kernel
from hidet.ir.interpret import run_module
from hidet.lang import bf16, cast, erf, exp, f16, f16x2, f32, i64, tf32
from hidet.lang.cuda import threadIdx
from hidet.testing.golden import assert_golden
from hidet.tile import (
    cdiv,
    computed,
    fetch,
    fill,
    grid,
    kernel,
    load,
    map,
    matrix,
    mma,
    pipeline,
    reduce,
    register,
    shared,
    store,
)

GOLDEN = Path(__file__).parent / "golden"
ROUNDING = {"f16": 2**-11, "bf16": 2**-8, "f32": 2**-24}
m, n, k = (hidet.dims.symbol(name) for name in "mnk")
SMALL = LadderTiles(32, 32, 16, 3, (2, 1))
OF_GROUPS = LadderTiles(64, 32, 64, 3, (4, 1))
SIZES = [(40, 48, 24), (33, 35, 19), (1, 1, 1), (8, 16, 0)]


def run(script, target, *arguments):
    """Run a kernel by the simulator on arrays and numbers; sizes are those of the arrays."""
    sizes = {}
    for kind, argument in zip(script.signature.kinds, arguments, strict=True):
        if isinstance(argument, np.ndarray) and hasattr(kind, "shape"):
            sizes |= {str(extent): size for extent, size in zip(kind.shape, argument.shape, strict=True)}
    run_module(script.ir_module(target), [*arguments, *(sizes[s.name] for s in script.signature.symbols)])


def randoms(dtype, *shapes):
    generator = np.random.default_rng(0)
    return [generator.standard_normal(shape).astype(dtype.type.numpy()) for shape in shapes]


def product(script, target, size, dtype, *, has_bias=False):
    """What the kernel computes, which finds NaN in the result, and numpy in f64."""
    rows, columns, depth = size
    a, b, bias = randoms(dtype, (rows, depth), (depth, columns), (columns,))
    c = np.full((rows, columns), np.nan, a.dtype)
    run(script, target, a, b, *((bias,) if has_bias else ()), c)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    return c, np.maximum(exact + bias.astype(np.float64), 0) if has_bias else exact


def assert_close(found, exact, dtype):
    """Right to the rounding of the result, in f32 before that."""
    unit = ROUNDING[str(dtype)]
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=2 * unit, atol=2 * unit + 1e-5)


# --- the ladder ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
def test_a_naive_product_is_right(dtype, size, target):
    assert_close(*product(naive_product(dtype, SMALL), target, size, dtype), dtype)


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_a_pipelined_product_is_right(dtype, size):
    assert_close(*product(pipelined_product(dtype, SMALL), "cuda:sm_80", size, dtype), dtype)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tiles", [SMALL, LadderTiles(32, 64, 32, 2, (2, 2))])
def test_a_product_with_an_epilogue_is_right(size, tiles):
    script = product_with_epilogue(f16, tiles)
    assert_close(*product(script, "cuda:sm_80", size, f16, has_bias=True), f16)


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("lowering", ["mma", "wgmma", "tma", None])
@pytest.mark.thorough(every=2)
def test_a_product_of_warp_groups_is_right(dtype, size, lowering):
    script = pipelined_product(dtype, OF_GROUPS, lowering)
    assert_close(*product(script, "cuda:sm_90a", size, dtype), dtype)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(
    ("tiles", "target", "lowering"),
    [
        (LadderTiles(32, 16, 0, 2, (2, 1)), "cuda:sm_80", None),
        (LadderTiles(64, 32, 0, 2, (4, 1)), "cuda:sm_90a", "wgmma"),
        (LadderTiles(128, 32, 0, 2, (8, 1)), "cuda:sm_90a", None),
    ],
)
@pytest.mark.thorough(every=2)
def test_attention_is_right(tiles, target, lowering, is_causal):
    depth, count = 32, 150
    q, keys, values = randoms(f16, (2, count, depth), (2, count, depth), (2, count, depth))
    out = np.full_like(q, np.nan)
    run(attention(f16, depth, tiles, lowering, is_causal=is_causal), target, q, keys, values, out)
    scores = q.astype(np.float64) @ keys.astype(np.float64).transpose(0, 2, 1) / math.sqrt(depth)
    if is_causal:
        scores = np.where(np.arange(count) > np.arange(count)[:, None], -np.inf, scores)
    weights = np.exp(scores - scores.max(2, keepdims=True))
    exact = weights / weights.sum(2, keepdims=True) @ values.astype(np.float64)
    # Weights are rounded to f16 before they are multiplied.
    np.testing.assert_allclose(out.astype(np.float64), exact, rtol=2**-9, atol=2**-9)


# --- what a target takes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "target", "threads"),
    [
        (naive_product(f16, SMALL), "cuda:sm_90a", 64),
        (pipelined_product(f16, OF_GROUPS), "cuda:sm_80", 128),
        # A warp copies besides, or a warp group.
        (pipelined_product(f16, OF_GROUPS), "cuda:sm_90a", 160),
        (attention(f16, 64, LadderTiles(128, 32, 0, 2, (8, 1))), "cuda:sm_90a", 384),
    ],
)
def test_a_target_takes_the_fastest_lowering_that_fits(script, target, threads):
    (kernel_, *_) = script.ir_module(target).functions
    assert dict(kernel_.attributes)["block"] == (threads, 1, 1)


@pytest.mark.parametrize(
    ("script", "target", "message", "hint"),
    [
        (naive_product(f16, SMALL, "tma"), "cuda:sm_90a", "which it has not the shape for", "whose one pipeline holds"),
        (pipelined_product(f16, OF_GROUPS, "tma"), "cuda:sm_80", "which needs wgmma", 'build for "cuda:sm_90a"'),
        (pipelined_product(f16, OF_GROUPS, "tmaa"), "cuda:sm_90a", "which is none", "did you mean 'tma'"),
    ],
)
def test_a_lowering_that_does_not_fit_is_refused(script, target, message, hint):
    with pytest.raises(ScheduleError) as caught:
        script.ir_module(target)
    assert message in caught.value.message and hint in caught.value.hint
    assert caught.value.loc.file.endswith("tile_ladder.py")


def blocks_of(lines):
    """Threads of the kernel of a product for sm_90a, with `lines` behind it in the pipeline."""
    source = """
@kernel(warps=(8, 1))
def sums(a: f16[m, 64], b: f16[n, 64], c: f32[m, n]):
    block = grid(cdiv(m, 128))
    tile_a: f16[128, 64] @ shared = load(a, block * 128, 0)
    total: f32[128, 64] @ register = fill(0.0)
    for step in pipeline(cdiv(n, 64), stages=2):
        tile_b: f16[64, 64] @ shared = load(b, step * 64, 0)
        product: f32[128, 64] @ register = fill(0.0)
        product += mma(tile_a, tile_b.T)
"""
    return source + "".join(f"        {line}\n" for line in lines) + "    store(c, total, block * 128, 0)\n"


@pytest.mark.parametrize(
    ("lines", "threads"),
    [
        (['part = reduce("add", product, axis=1)', "total = map(lambda x, y: x + y, total, part)"], 384),
        (['part = reduce("add", product, axis=0)', "total = map(lambda x, y: x + y, total, part)"], 256),
        (["store(c, product, 0, 0)"], 256),
        (["if step > 0:", "    store(c, product, 0, 0)"], 256),
        (["if step > 0:", "    tile_a = load(a, 0, 0)"], 256),
        (["for i in pipeline(3, stages=2):", "    tile_c: f16[64, 64] @ shared = load(b, i, 0)"], 256),
    ],
)
def test_threads_that_compute_do_not_meet_those_that_copy(lines, threads, tmp_path):
    file = tmp_path / "sums.py"
    file.write_text(blocks_of(lines))
    scope = {**globals()}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    (kernel_, *_) = scope["sums"].ir_module("cuda:sm_90a").functions
    assert dict(kernel_.attributes)["block"] == (threads, 1, 1)


def test_sizes_that_lie_in_memory_are_read_by_the_kernel_alone():
    def padded(dtype):
        @kernel(warps=(4, 1))
        def product(a: dtype[m, k], b: dtype[n, k], sizes: i64[1], c: f32[m, n]):
            column, row = grid(cdiv(n, 32), cdiv(m, 64))
            A = matrix(~a[0, 0], [sizes[0], k], stride=k, align=16)
            total: f32[64, 32] @ register = fill(0.0)
            for step in pipeline(cdiv(k, 64), stages=2):
                tile_a: dtype[64, 64] @ shared = load(A, row * 64, step * 64)
                tile_b: dtype[32, 64] @ shared = load(b, column * 32, step * 64)
                total += mma(tile_a, tile_b.T)
            store(c, total, row * 64, column * 32)

        return product

    a, b = randoms(f16, (70, 64), (40, 64))
    c = np.full((70, 40), np.nan, np.float32)
    run(padded(f16), "cuda:sm_90a", a, b, np.array([65]), c)
    exact = np.where(np.arange(70)[:, None] < 65, a.astype(np.float64) @ b.astype(np.float64).T, 0)
    np.testing.assert_allclose(c, exact, atol=1e-4)
    with pytest.raises(ScriptError, match="a grid is known to the host, which cannot read tensors"):

        @kernel(warps=(1, 1))
        def unknown(sizes: i64[1], c: f32[m, n]):
            row = grid(sizes[0])
            t: f32[16, 16] @ register = fill(0.0)
            store(c, t, row * 16, 0)


def test_a_target_without_tiles_is_named():
    with pytest.raises(PluginError, match="target 'cpu' has no lowering of kernels in tiles, which product is one of"):
        naive_product(f16, SMALL).ir_module("cpu")


# --- the language ----------------------------------------------------------------------------------------------------


def sigmoid(x):
    return 1.0 / (1.0 + exp(-x))


def one_of_each(flag):
    """A kernel with a line of each kind."""
    half = 0.5

    @tile.kernel(warps=(2, 1))
    def everything(a: f16[2, m, k], b: f16[n, k], p: ~f32, c: f32[m, n], scale: f32, index: i64):
        """A text means nothing."""
        column, row = tile.grid(cdiv(n, 16), cdiv(m, 32))
        first = row * 32
        start: i64 = column * 16

        def gelu(x):
            y = x * half
            return y * (1.0 + erf(x * 0.7))

        P = matrix(p, [m, n], stride=n, align=4)
        NEGATED = computed(f16, [n, k], lambda i, j: -b[i, j])
        total: f32[32, 16] @ register = fill(0)
        for step in pipeline(cdiv(k, 16), stages=2):
            tile_a: f16[32, 16] @ shared = load(a[index], first, step * 16)
            tile_b: f16[16, 16] @ tile.shared = load(b, start, step * 16)
            total += mma(tile_a, tile_b.T)
        for step in range(cdiv(k, 16)):
            tile_a = load(a[index], first, step * 16)
            tile_b = load(NEGATED, start, step * 16)
            total += mma(tile_a, tile_b.T)
        total = map(gelu, total)
        if flag:
            total = map(sigmoid, total)
        else:
            total = map(lambda x, i, j: x + cast(i, f32) if j < 3 else x, total)
        other: f32[32, 16] @ register = fetch(P, first, start)
        top = reduce("max", other, axis=1)
        if first > 0:
            other = map(lambda x, t: x - t, other, top)
        if any(lambda t: t > 0.0, top):
            other = map(exp, other)
        total = map(lambda x, y: x * scale + y, total, other)
        store(c, total, first, start)

    return everything


@pytest.mark.parametrize("flag", [False, True])
def test_every_line_of_the_language_as_text(flag):
    script = one_of_each(flag)
    text = script.source("tile")
    assert_golden(text, GOLDEN / f"script_{'then' if flag else 'else'}.tile")
    assert print_kernel(parse_kernel(text)) == text
    assert "cuda.copy_async_16" in script.source("thread", "cuda:sm_80")
    assert "@kernel(block=(64, 1, 1))\ndef everything_unaligned(" in script.source("thread", "cuda:sm_80")


@pytest.mark.parametrize("size", [(40, 24, 32), (33, 17, 19)])
@pytest.mark.parametrize("flag", [False, True])
def test_every_line_of_the_language_is_computed(size, flag):
    rows, columns, depth = size
    a, b = randoms(f16, (2, rows, depth), (columns, depth))
    p = np.random.default_rng(1).standard_normal((rows, columns)).astype(np.float32)
    c = np.full((rows, columns), np.nan, np.float32)
    run(one_of_each(flag), "cuda:sm_80", a, b, p, c, 2.0, 1)
    # What is multiplied with b and with -b is zero up to rounding.
    places = np.arange(rows)[:, None] % 32 * (np.arange(columns) % 16 < 3)
    first = np.full((rows, columns), 0.5) if flag else places.astype(np.float64)
    padded = np.zeros((-(-rows // 32) * 32, -(-columns // 16) * 16))
    padded[:rows, :columns] = p
    for at in range(0, padded.shape[0], 32):
        for start in range(0, padded.shape[1], 16):
            box = padded[at : at + 32, start : start + 16]
            top = box.max(1, keepdims=True)
            moved = box - top if at else box
            # Warps of 16 rows decide together; the box beyond the matrix is zero.
            for half in (slice(0, 16), slice(16, 32)):
                box[half] = np.exp(moved[half]) if (top[half] > 0).any() else moved[half]
    np.testing.assert_allclose(c, first * 2 + padded[:rows, :columns], rtol=1e-4, atol=1e-4)


def test_printed_text_is_a_kernel_of_the_language(tmp_path):
    """What `source` prints runs under the decorator, without imports of the words of statements."""
    text = pipelined_product(f16, SMALL).source("tile")
    file = tmp_path / "printed.py"
    file.write_text(text.replace("@tile(", "@kernel("))
    scope = {"kernel": kernel, "cast": cast, "f16": f16, "f32": f32, "i64": i64}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    assert scope["product"].source("tile") == text


@pytest.mark.parametrize("depth", [72, 75])
@pytest.mark.parametrize(("warps", "target"), [((2, 1), "cuda:sm_80"), ((8, 1), "cuda:sm_90a")])
def test_a_tile_of_tf32_rounds_what_it_loads(warps, target, depth):
    """Warp groups take f32 as it is where threads copy it, so that only TMA may bring it to them."""
    BM = 16 * warps[0]

    @kernel(warps=warps)
    def product(a: f32[m, k], b: f32[n, k], c: f32[m, n]):
        column, row = grid(cdiv(n, 16), cdiv(m, BM))
        total: f32[BM, 16] @ register = fill(0.0)
        for step in pipeline(cdiv(k, 16), stages=2):
            tile_a: tf32[BM, 16] @ shared = load(a, row * BM, step * 16)
            tile_b: tf32[16, 16] @ shared = load(b, column * 16, step * 16)
            total += mma(tile_a, tile_b.T)
        store(c, total, row * BM, column * 16)

    a, b = randoms(f32, (40, depth), (24, depth))
    c = np.full((40, 24), np.nan, np.float32)
    run(product, target, a, b, c)
    off = np.abs(c - a.astype(np.float64) @ b.astype(np.float64).T)
    assert 1e-5 < np.sqrt(np.mean(off**2)) < 2**-11 * np.sqrt(depth)


def test_tensors_without_alignment_are_computed_by_the_other_kernel():
    script = pipelined_product(f16, SMALL)
    a, b = randoms(f16, (33, 25), (24, 32))
    c = np.full((33, 32), np.nan, np.float16)
    run(script, "cuda:sm_80", np.ascontiguousarray(a[:, :24]), b, c)
    shifted = np.ascontiguousarray(a).reshape(-1)[1 : 1 + 33 * 24].reshape(33, 24)
    assert shifted.ctypes.data % 16
    moved = np.full((33, 32), np.nan, np.float16)
    run(script, "cuda:sm_80", shifted, b, moved)
    for left, found in ((a[:, :24], c), (shifted, moved)):
        assert_close(found, left.astype(np.float64) @ b.astype(np.float64), f16)


def test_sizes_that_never_are_aligned_have_no_second_kernel():
    @kernel(warps=(1, 1))
    def copy(a: f32[m, 3], c: f32[m, 3]):
        row = grid(cdiv(m, 16))
        tile: f32[16, 8] @ register = fetch(a, row * 16, 0)
        store(c, tile, row * 16, 0)

    assert [function.name for function in copy.ir_module("cuda:sm_80").functions] == ["copy", "launch"]
    (a,) = randoms(f32, (20, 3))
    c = np.full((20, 3), np.nan, np.float32)
    run(copy, "cuda:sm_80", a, c)
    assert (a == c).all()


def test_a_kernel_is_shown_with_its_parameters():
    assert repr(naive_product(f16, SMALL)) == "<kernel in tiles product(a: f16[m, k], b: f16[k, n], c: f16[m, n])>"
    assert hidet.tile.kernel is kernel and dtypes.f16 == f16


# --- errors ----------------------------------------------------------------------------------------------------------


def refused(*lines):
    """A kernel that begins with a grid and ends with these lines, which are in a file of their own."""
    header = ["@kernel(warps=(1, 1))", "def wrong(a: f16[m, k], b: f16[2, k, n], c: f32[m, n]):"]
    body = ["column, row = grid(cdiv(n, 16), cdiv(m, 16))", *lines]
    return "\n".join([*header, *(f"    {line}" for line in body)]) + "\n"


A = "x: f16[16, 32] @ shared = load(a, row * 16, 0)"
B = "y: f16[16, 16] @ shared = load(a, row * 16, 0)"
TOTAL = "t: f32[16, 16] @ register = fill(0.0)"


@pytest.mark.parametrize(
    ("lines", "line", "message", "hint"),
    [
        ([A, B, TOTAL, "t += mma(x, y)"], 7, "a product of [16, 32] and [16, 16] is added to t of [16, 16]", None),
        ([A, B, "t: f32[16, 16] @ register", "t += mma(x, y.T)"], 7, "a product of [16, 32] and [16, 16]", None),
        ([B, "t: f32[16, 16] @ register", "t += mma(y, y.T)"], 6, "tile t is read before it is written", None),
        ([TOTAL, "store(c, t, row * 16, colum * 16)"], 5, "name 'colum' is not defined", "column"),
        ([TOTAL, "store(d, t, row * 16, column * 16)"], 5, "d is no matrix", "known: a, b, c"),
        ([TOTAL, "t = lod(a, 0, 0)"], 5, "name 'lod' is not defined", "did you mean 'load'"),
        ([TOTAL, "t = map(lambda x: x + tt, t)"], 5, "name 'tt' is not defined", "known"),
        ([TOTAL, "s = map(lambda x: x + t, t)"], 5, "t is a tile, which a function of elements cannot", "map(lambda"),
        ([TOTAL, "t = map(lambda x, y: x, t)"], 5, "takes 2 values, expected 1, the elements of its tiles, or 3", None),
        (["t = fill(0.0)"], 4, "tile t is not declared", "write t: f32[rows, columns] @ register"),
        (["t: f32[16, 16] @ shared = fill(0.0)"], 4, "tile t is in shared memory, where this statement does not", None),
        (
            ["t: f16[16, 16] @ register = fill(0.0)", "store(c, t, 0, 0)"],
            5,
            "tile t of f16 is stored to a matrix",
            None,
        ),
        (["x: f32[16, 16] @ shared = load(a, 0, 0)"], 4, "tile x of f32 is loaded from a matrix of f16", None),
        (["t: f32[16, 16] @ register = map(lambda x: x * 0.5, t)"], 4, "tile t is read before it is written", None),
        ([TOTAL, "s: i32[16, 16] @ register = map(lambda x: x * 0.5, t)"], 5, "has type f32, expected i32", "cast"),
        (["x: f16[16, 16] @ shared = load(b, 0, 0)"], 4, "b is no matrix: b is f16[2, k, n]", "write b[i]"),
        (["t: f32[16, m] @ register = fill(0.0)"], 4, "has an extent that is known at run time only", None),
        (["t: f32[16, 16] = fill(0.0)"], 4, "lies nowhere", "@ register, or @ shared"),
        ([TOTAL, "t = fill(column)"], 5, "a tile is filled with a number, not column", None),
        ([TOTAL, "t += 1"], 5, "t += 1 is no statement of a kernel in tiles", None),
        ([TOTAL, "t = column"], 5, "t is a tile", "a statement writes it"),
        ([TOTAL, "while True:", "    pass"], 5, "while True: is no statement of a kernel in tiles", None),
        ([TOTAL, "store(c, map(exp, t), 0, 0)"], 5, "expected a name, found map(exp, t)", "in a line before"),
        ([TOTAL, "for i in range(3):", "    pass", "else:", "    pass"], 8, "a loop of a kernel in tiles has no", None),
        ([TOTAL, "if row > 3:", "    pass", "else:", "    t = fill(1)"], 8, "has no else", None),
        (["for s in pipeline(3, stages=1):", "    y: f16[16, 16] @ shared = load(a, 0, 0)"], 4, "of 1 stages", None),
        (
            [TOTAL, "for s in pipeline(3, stages=2):", "    t = fill(1)", f"    {B}"],
            5,
            "tile y is loaded behind other statements of a pipeline",
            "stand at its beginning",
        ),
        (["i, j = grid(1, 1)"], 4, "is no statement of a kernel in tiles", None),
        (["t: f32[16, 16] @ register = reduce('max', t, axis=n)"], 4, "expected a int that is known when", None),
        ([TOTAL, "t = reduce('mean', t, axis=0)"], 5, "t is reduced by 'mean' along axis 0, expected add", None),
        ([TOTAL, "t = map(scribble, t)"], 5, "takes statements, but what is computed of elements is one", "a if c"),
        (
            ["i = 0", "for s in range(3):", "    i = i + s", TOTAL],
            6,
            "i has a value, which a loop or a branch",
            "a if c",
        ),
        (["i = 0", "if row > 3:", "    i = 16", TOTAL], 6, "i has a value, which a loop or", "a if c"),
        (
            ["i = 0", "for s in range(3):", "    i: i64 = s", TOTAL],
            6,
            "i has a value, which a loop or a branch",
            "a if c",
        ),
        (
            ["if row > 3:", "    i = 16", TOTAL, "store(c, t, i, 0)"],
            7,
            "inside of a block that has ended",
            "before the",
        ),
        ([TOTAL, "for s in range(1, 3):", "    t = fill(1)"], 5, "counts from 0", "start + step"),
        ([TOTAL, "t = map(lambda x: half(x), t)"], 5, "a kernel in tiles calls no script, as half is", "take the dec"),
        ([TOTAL, "if threadIdx.x == 0:", "    t = fill(1)"], 5, "may differ between the threads", "are made of"),
        ([TOTAL, "store(c, t, other, 0)"], 5, "size other is no extent of a parameter", None),
    ],
)
def test_what_is_no_kernel_is_refused_with_its_line(lines, line, message, hint, tmp_path):
    def scribble(x):
        y = x
        for _ in range(3):
            y = y * 2.0
        return y

    @hidet.script
    def half(x: f32) -> f32:
        return x * 0.5

    file = tmp_path / "wrong.py"
    file.write_text(refused(*lines))
    scope = {
        **globals(),
        "threadIdx": threadIdx,
        "i32": hidet.lang.i32,
        "scribble": scribble,
        "half": half,
        "other": hidet.dims.symbol("other"),
    }
    with pytest.raises(ScriptError) as caught:
        exec(compile(file.read_text(), str(file), "exec"), scope)
    assert message in caught.value.message
    assert caught.value.loc.file == str(file) and caught.value.loc.line == line
    assert hint is None or hint in caught.value.hint


def test_a_kernel_says_its_warps_and_its_grid():
    with pytest.raises(ScriptError, match="says how many warps share") as caught:

        @kernel
        def without(c: f32[m, n]): ...

    assert caught.value.loc.file == __file__ and "@kernel(warps=(2, 2))" in caught.value.hint
    with pytest.raises(ScriptError, match="does not begin with its grid"):

        @kernel(warps=(1, 1))
        def nowhere(c: f32[m, n]):
            t: f32[16, 16] @ register = fill(0.0)
            store(c, t, 0, 0)


@pytest.mark.parametrize("kind", [f16x2[8], ~~f16], ids=str)
def test_parameters_that_are_no_matrices_are_refused(kind):
    with pytest.raises(ScriptError, match="is no row-major tensor of numbers"):

        @kernel(warps=(1, 1))
        def wrong(a: kind, c: f32[m, n]):
            row = grid(1)
            t: f32[16, 16] @ register = fill(0.0)
            store(c, t, row, 0)


def test_a_formula_may_read_tensors_where_they_are():
    @kernel(warps=(1, 1))
    def diagonal(x: f32[n], c: f32[m, n]):
        column, row = grid(cdiv(n, 16), cdiv(m, 16))
        t: f32[16, 16] @ register = map(
            lambda i, j: x.read([column * 16 + j], protected=True) if row * 16 + i == column * 16 + j else 0.0
        )
        store(c, t, row * 16, column * 16)

    (x,) = randoms(f32, (24,))
    c = np.full((20, 24), np.nan, np.float32)
    run(diagonal, "cuda:sm_80", x, c)
    assert (c == np.diag(x)[:20]).all()


def test_warps_that_cannot_share_a_tile_are_refused_where_it_is_lowered():
    @kernel(warps=(3, 1))
    def odd(c: f32[m, n]):
        column, row = grid(cdiv(n, 16), cdiv(m, 16))
        t: f32[16, 16] @ register = fill(0.0)
        store(c, t, row * 16, column * 16)

    with pytest.raises(ScheduleError, match="t has 16 rows, which 3 warps cannot share") as caught:
        odd.ir_module("cuda:sm_80")
    assert caught.value.loc.file == __file__


@pytest.mark.parametrize(
    "word", [lambda: load(0, 0, 0), lambda: fill(0), lambda: grid(1), lambda: pipeline(1, stages=2)]
)
def test_words_mean_nothing_outside_of_a_kernel(word):
    with pytest.raises(HidetError, match=r"has a meaning only in a function under @hidet\.tile\.kernel"):
        word()


def test_tiles_are_covered_by_whole_ones():
    assert cdiv(33, 16) == 3 and cdiv(32, 16) == 2
    assert cdiv(m, 16) == hidet.dims.floordiv(m + 15, 16)
