"""Maps and reductions of register tiles, and products whose left operand is one: what softmax and attention need."""

import math

import numpy as np
import pytest

from hidet import dtypes
from hidet.cuda.tile.machine import machine
from hidet.errors import ScheduleError
from hidet.gpu.tile.kernel import TileKernel
from hidet.gpu.tile.lower.kernel import lower_kernel
from hidet.gpu.tile.statements import fill, load, loop, map, mma, reduce, ring, store, when, when_any
from hidet.gpu.tile.tensors import RTile, STile, matrix
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir import stmt as s
from hidet.ir.func import Function, Module
from hidet.ir.interpret import run_module
from hidet.ir.types import PointerType


def run(body, pointers, arrays, warps=(1, 1)):
    kernel = TileKernel("kernel", tuple(pointers), (), warps, tuple(body))
    outer = tuple(e.Var(var.name, var.type) for var in pointers)
    launch = s.Launch("kernel", (build.index(1),), outer, block=(build.index(kernel.threads),))
    run_module(Module((lower_kernel(kernel, machine()), Function("main", outer, launch, "host")), "main"), arrays)


@pytest.mark.parametrize("warps", [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("op", ["add", "max", "min"])
def test_a_tile_is_reduced_along_an_axis(warps, axis, op):
    out = e.Var("out", PointerType(dtypes.f32))
    x = RTile("x", dtypes.f32, 32, 16)
    total = RTile("total", dtypes.f32, *((1, 16) if axis == 0 else (32, 1)))
    result = RTile("result", dtypes.f32, 32, 16)
    body = [
        map(x, [], lambda row, column: build.cast((row * 7 + column * 3) % 11, dtypes.f32)),
        reduce(total, x, axis, op),
        map(result, [total], lambda value, row, column: value),
        store(matrix(out, 32, 16), result, 0, 0),
    ]
    found = np.zeros((32, 16), np.float32)
    run(body, [out], [found], warps)
    rows, columns = np.mgrid[:32, :16]
    reduced = {"add": np.sum, "max": np.max, "min": np.min}[op]((rows * 7 + columns * 3) % 11, axis=axis, keepdims=True)
    assert (found == reduced).all()


@pytest.mark.parametrize("warps", [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("axis", [0, 1])
def test_partial_reductions_are_reduced_to_the_whole(warps, axis):
    out = e.Var("out", PointerType(dtypes.f32))
    x = RTile("x", dtypes.f32, 32, 32)
    parts = RTile("parts", dtypes.f32, *((8 * warps[0], 32) if axis == 0 else (32, 4 * warps[1])))
    total = RTile("total", dtypes.f32, *((1, 32) if axis == 0 else (32, 1)))
    result = RTile("result", dtypes.f32, 32, 32)
    body = [
        map(x, [], lambda row, column: build.cast((row * 7 + column * 3) % 11, dtypes.f32)),
        reduce(parts, x, axis, "add"),
        reduce(total, parts, axis, "add"),
        map(result, [total], lambda value, row, column: value),
        store(matrix(out, 32, 32), result, 0, 0),
    ]
    found = np.zeros((32, 32), np.float32)
    run(body, [out], [found], warps)
    rows, columns = np.mgrid[:32, :32]
    assert (found == ((rows * 7 + columns * 3) % 11).sum(axis=axis, keepdims=True)).all()


def test_other_numbers_of_partial_results_are_refused():
    x, parts = RTile("x", dtypes.f32, 16, 32), RTile("parts", dtypes.f32, 16, 8)
    with pytest.raises(ScheduleError, match="parts has 8 partial results along axis 1, expected 4 a warp"):
        run([fill(x, 0), reduce(parts, x, 1, "add")], [], [])


def test_branches_are_taken_by_the_block_or_by_warps_that_need_them():
    out = e.Var("out", PointerType(dtypes.f32))
    x, y = RTile("x", dtypes.f32, 32, 8), RTile("y", dtypes.f32, 32, 1)
    body = [
        fill(x, 0),
        map(y, [], lambda row, column: build.select(row < 16, build.const(2, dtypes.f32), 1.0)),
        # Only the first of two warps has elements that are not 1; the body tells whether it ran.
        when_any(
            y, lambda value: build.binary("ne", value, 1.0), [map(x, [x], lambda value, row, column: value + 10.0)]
        ),
        loop(3, lambda step: [when(step < 2, [map(x, [x], lambda value, row, column: value + 1.0)])]),
        store(matrix(out, 32, 8), x, 0, 0),
    ]
    found = np.zeros((32, 8), np.float32)
    run(body, [out], [found], (2, 1))
    assert (found[:16] == 12).all()
    assert (found[16:] == 2).all()


def test_shapes_that_do_not_fit_are_refused():
    x, y = RTile("x", dtypes.f32, 32, 16), RTile("y", dtypes.f32, 16, 1)
    with pytest.raises(ScheduleError, match="y is \\[16, 1\\] of f32"):
        reduce(y, x, 1, "add")
    with pytest.raises(ScheduleError, match="does not broadcast"):
        map(x, [y], lambda value, row, column: value)
    with pytest.raises(ScheduleError, match="formula of type f16"):
        map(x, [], lambda row, column: build.const(1, dtypes.f16))
    with pytest.raises(ScheduleError, match="loaded from a matrix of f32"):
        load(STile("s", dtypes.f16, 16, 16), matrix(e.Var("p", PointerType(dtypes.f32)), 16, 16), 0, 0)


def exp2(value):
    return build.unary("exp2", value)


@pytest.mark.parametrize(("length", "warps"), [(32, 1), (40, 2), (8, 1)])
def test_attention_with_an_online_softmax(length, warps):
    """Flash attention (Dao et al. 2022): keys and values come in steps of 16 through a ring."""
    rows, depth, step = 16 * warps, 16, 16
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((n, depth)).astype(np.float16) for n in (rows, length, length)]
    q, k, v = pointers = [e.Var(name, PointerType(dtypes.f16)) for name in "qkv"]
    out = e.Var("out", PointerType(dtypes.f32))
    tile_q, tile_k, tile_v = (
        STile(f"tile_{n}", dtypes.f16, r, depth) for n, r in (("q", rows), ("k", step), ("v", step))
    )
    f32 = dtypes.f32
    scores, result = RTile("scores", f32, rows, step), RTile("result", f32, rows, depth)
    most, total, before, now = (RTile(name, f32, rows, 1) for name in ("most", "total", "before", "now"))
    scale = math.log2(math.e) / math.sqrt(depth)

    def masked(first):
        def value(score, row, column):
            return build.select(first * step + column < length, score * scale, -math.inf)

        return value

    def body(first):
        return [
            fill(scores, 0),
            mma(scores, tile_q, tile_k, b_is_transposed=True),
            map(scores, [scores], masked(first)),
            reduce(now, scores, 1, "max"),
            map(before, [most], lambda value, row, column: value),
            map(most, [most, now], lambda a, b, row, column: build.maximum(a, b)),
            map(scores, [scores, most], lambda value, top, row, column: exp2(value - top)),
            reduce(now, scores, 1, "add"),
            map(before, [before, most], lambda old, new, row, column: exp2(old - new)),
            map(total, [total, before, now], lambda sum_, factor, more, row, column: sum_ * factor + more),
            map(result, [result, before], lambda value, factor, row, column: value * factor),
            mma(result, scores, tile_v),
        ]

    program = [
        load(tile_q, matrix(q, rows, depth, align=16), 0, 0),
        fill(result, 0),
        fill(total, 0),
        fill(most, -1e30),
        ring(
            -(-length // step),
            2,
            lambda i: [
                load(tile_k, matrix(k, length, depth, align=16), i * step, 0),
                load(tile_v, matrix(v, length, depth, align=16), i * step, 0),
            ],
            body,
        ),
        map(result, [result, total], lambda value, sum_, row, column: value / sum_),
        store(matrix(out, rows, depth), result, 0, 0),
    ]
    found = np.zeros((rows, depth), np.float32)
    run(program, [*pointers, out], [*arrays, found], (warps, 1))
    wide = [array.astype(np.float64) for array in arrays]
    weights = np.exp(wide[0] @ wide[1].T / math.sqrt(depth))
    np.testing.assert_allclose(found, weights @ wide[2] / weights.sum(1, keepdims=True), rtol=2e-3, atol=2e-3)


def test_left_operands_in_registers_span_all_columns():
    tile, x, y = STile("s", dtypes.f16, 32, 16), RTile("x", dtypes.f32, 16, 32), RTile("y", dtypes.f32, 16, 16)
    p = e.Var("p", PointerType(dtypes.f16))
    with pytest.raises(ScheduleError, match="2 warps along its columns"):
        run([load(tile, matrix(p, 32, 16), 0, 0), mma(y, x, tile)], [p], [], (1, 2))


def test_tiles_that_nothing_loads_are_refused():
    tile, x, y = STile("s", dtypes.f16, 32, 16), RTile("x", dtypes.f32, 16, 32), RTile("y", dtypes.f32, 16, 16)
    with pytest.raises(ScheduleError, match="shared tile s is multiplied, but nothing loads it"):
        run([mma(y, x, tile)], [], [])
