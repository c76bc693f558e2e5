"""Products of warps with copies in the background: right, and wrong where a wait or barrier is missing."""

import numpy as np
import pytest

from hidet.cuda.intrinsics.mma import MMA
from hidet.cuda.simulator.fragments import accumulator, operand_a, operand_b
from hidet.errors import DataRace, LaunchError
from hidet.gpu.testing.launches import run_kernel

SYNC = 'call("gpu.syncthreads", type=None)'
COMMIT = 'call("cuda.copy_async_commit", type=None)'


def wait(groups):
    return f'call("cuda.copy_async_wait", i32({groups}), type=None)'


# C[16, 8] = A[16, 64] B[8, 64]^T in steps of 16 along k, two stages of shared memory, one warp.
PIPELINE = f"""
sa: f16[2, 16, 16] @ shared
sb: f16[2, 8, 16] @ shared
fa: u32[4] @ register
fb: u32[2] @ register
fc: f32[4] @ register
for i in range(4):
    fc[i] = 0.0
for step in range(5):
    if step < 4:
        ROW: i64 = t // 2
        COL: i64 = t % 2 * 8
        FROM: i64 = ROW * 64 + step * 16 + COL
        call("cuda.copy_async_16", address(sa, step % 2, ROW, COL), a + FROM, i32(16), type=None)
        if t < 16:
            call("cuda.copy_async_16", address(sb, step % 2, ROW, COL), b_ + FROM, i32(16), type=None)
    {COMMIT}
    if step > 0:
        {wait(1)}
        {SYNC}
        stage: i64 = (step - 1) % 2
        call("cuda.load_matrix_x4", address(fa, 0), address(sa, stage, t % 16, t // 16 * 8), type=None)
        call("cuda.load_matrix_x2", address(fb, 0), address(sb, stage, t % 8, t // 8 % 2 * 8), type=None)
        call("cuda.mma.m16n8k16.f32.f16.f16", address(fc, 0), address(fa, 0), address(fb, 0), type=None)
        {SYNC}
for i in range(4):
    c[(t // 4 + i // 2 * 8) * 8 + t % 4 * 2 + i % 2] = fc[i]
"""


def product(body, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((16, 64)).astype(np.float16), rng.standard_normal((8, 64)).astype(np.float16)
    c = np.zeros((16, 8), np.float32)
    run_kernel(body, "a: ~f16, b_: ~f16, c: ~f32", [a, b, c])
    return c, a.astype(np.float64) @ b.T.astype(np.float64)


def test_a_pipeline_of_copies_and_products_multiplies():
    result, expected = product(PIPELINE)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ((wait(1), "pass"), LaunchError, "asynchronous copy to it has not been waited for"),
        ((wait(1), wait(2)), LaunchError, "asynchronous copy to it has not been waited for"),
        ((COMMIT, "pass"), LaunchError, "asynchronous copy to it has not been waited for"),
        ((f"{wait(1)}\n        {SYNC}", wait(1)), DataRace, "s[ab], byte .* is read, and .* writes it"),
        ((f"address(fb, 0), type=None)\n        {SYNC}", "address(fb, 0), type=None)"), DataRace, "is written, and"),
        (("step % 2, ROW", "0, ROW"), LaunchError, "asynchronous copy|is read"),
        (("t // 2", "t // 2 + 1"), LaunchError, "axis 1 has|bytes"),
        (("t % 16, t // 16 * 8", "t % 16, t // 16 * 4"), LaunchError, "multiple of 16"),
    ],
)
def test_what_is_wrong_in_a_pipeline_is_found(change, error, message):
    assert change[0] in PIPELINE
    with pytest.raises(error, match=message):
        product(PIPELINE.replace(*change))


def test_part_of_a_warp_cannot_multiply():
    body = "d: f32[4] @ register\na: u32[4] @ register\nif t < 16:\n    "
    body += 'call("cuda.mma.m16n8k16.f32.f16.f16", address(d, 0), address(a, 0), address(a, 0), type=None)'
    with pytest.raises(LaunchError, match="executed by part of a warp"):
        run_kernel(body, "", [])


@pytest.mark.parametrize("name", list(MMA))
def test_every_shape_multiplies_what_the_lanes_hold(name):
    shape = MMA[name].matrix
    rng = np.random.default_rng(1)
    m, n, k = shape.m, shape.n, shape.k

    def values(dtype, *extents):
        numbers = rng.integers(0 if dtype.name.startswith("u") else -3, 4, extents)
        return numbers.astype(np.float32 if dtype.short == "tf32" else dtype.numpy())

    a, b, c = values(shape.a, m, k), values(shape.b, k, n), values(shape.accumulator, m, n)
    of_a, of_b, of_c = operand_a(m, k, shape.a.nbytes), operand_b(k, shape.b.nbytes), accumulator(m, n)
    held = [np.ascontiguousarray(matrix[places]) for matrix, places in ((c, of_c), (a, of_a), (b, of_b))]
    names = ["f32" if dtype.short == "tf32" else dtype.short for dtype in (shape.accumulator, shape.a, shape.b)]
    lines = []
    for array, dtype, matrix in zip("dab", names, held, strict=True):
        lines += [f"f{array}: {dtype}[{matrix.shape[1]}] @ register", f"for i in range({matrix.shape[1]}):"]
        lines += [f"    f{array}[i] = g{array}[t * {matrix.shape[1]} + i]"]
    lines.append(f'call("{name}", address(fd, 0), address(fa, 0), address(fb, 0), type=None)')
    lines += [f"for i in range({held[0].shape[1]}):", f"    gd[t * {held[0].shape[1]} + i] = fd[i]"]
    parameters = ", ".join(f"g{array}: ~{dtype}" for array, dtype in zip("dab", names, strict=True))
    run_kernel("\n".join(lines), parameters, held)
    expected = a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64)
    assert (held[0].astype(np.float64) == expected[of_c]).all()


def test_fragments_hold_every_element_once():
    for m, k, nbytes in ((16, 8, 2), (16, 16, 2), (16, 4, 4), (16, 8, 4), (16, 16, 1), (16, 32, 1), (8, 4, 8)):
        rows, columns = operand_a(m, k, nbytes)
        assert sorted(zip(rows.ravel(), columns.ravel(), strict=True)) == [(r, c) for r in range(m) for c in range(k)]


def test_lane_5_holds_what_the_manual_says():
    """PTX ISA, figures "MMA .m16n8k16 fragment layout for matrix A / B with .f16": group 1, thread 1 in the group."""
    rows, columns = operand_a(16, 16, 2)
    assert rows[5].tolist() == [1, 1, 9, 9, 1, 1, 9, 9]
    assert columns[5].tolist() == [2, 3, 2, 3, 10, 11, 10, 11]
    rows, columns = operand_b(16, 2)
    assert rows[5].tolist() == [2, 3, 10, 11]
    assert columns[5].tolist() == [1, 1, 1, 1]
    rows, columns = accumulator(16, 8)
    assert rows[5].tolist() == [1, 1, 9, 9]
    assert columns[5].tolist() == [2, 3, 2, 3]


def test_matrices_are_stored_as_they_are_loaded():
    body = f"""
s: f16[32, 8] @ shared
r: f16[32, 8] @ shared
f: u32[4] @ register
for i in range(8):
    s[t, i] = p[t * 8 + i]
{SYNC}
call("cuda.load_matrix_x4_transposed", address(f, 0), address(s, t, 0), type=None)
call("cuda.store_matrix_x4", address(r, t, 0), address(f, 0), type=None)
{SYNC}
for i in range(8):
    p[t * 8 + i] = r[t, i]
"""
    data = np.arange(256).astype(np.float16)
    matrices = data.reshape(4, 8, 8).transpose(0, 2, 1).copy()
    run_kernel(body, "p: ~f16", [data])
    assert (data.reshape(4, 8, 8) == matrices).all()
