"""Tensor copies, barriers with phases and products of warp groups, by producers and consumers that hand each other
stages."""

import numpy as np
import pytest

from hidet import dtypes
from hidet.cuda.simulator.tensor_map import TensorMap
from hidet.cuda.simulator.wgmma import operand_addresses, swizzled
from hidet.errors import DataRace, Deadlock, LaunchError
from hidet.gpu.testing.launches import run_kernel

SYNC = 'call("gpu.syncthreads", type=None)'


def barrier(verb, place, *more):
    return f'call("cuda.barrier_{verb}", {", ".join((f"address({place})", *more))}, type=None)'


def group(verb, *more):
    return f"call({', '.join((chr(34) + 'cuda.wgmma_' + verb + chr(34), *more))}, type=None)"


WAIT_EMPTY = barrier("wait", "bars, 2 + stage", "cast(step // 2 % 2, u32) ^ u32(1)")
WAIT_FULL = barrier("wait", "bars, stage", "cast(step // 2 % 2, u32)")
EXPECT = barrier("arrive_expect", "bars, stage", "i32(10240)")
RELEASE = barrier("arrive_at", "bars, 2 + stage")
DESCRIPTOR = "u64(4611686293305360384)"  # k is the fast axis, rows of 128 bytes, 1024 bytes between groups of 8
PRODUCT = "cuda.wgmma.m64n16k16.f32.f16.f16"

# C[64, 16] = A[64, 256] B[16, 256]^T in steps of 64 along k, two stages; a warp group copies, another multiplies.
RING = f"""
sa: f16[2, 64, 64] @ shared
sb: f16[2, 16, 64] @ shared
bars: u64[4] @ shared
d: f32[8] @ register
if t == 0:
    for i in range(2):
        {barrier("init", "bars, i", "i32(1)")}
        {barrier("init", "bars, 2 + i", "i32(1)")}
    call("cuda.fence_barrier_init", type=None)
{SYNC}
if t < 128:
    if t == 0:
        for step in range(4):
            stage: i64 = step % 2
            k: i32 = cast(step * 64, i32)
            {WAIT_EMPTY}
            {EXPECT}
            call("cuda.tensor_load.2d", address(sa, stage, 0, 0), maps, address(bars, stage), k, i32(0), type=None)
            call("cuda.tensor_load.2d", address(sb, stage, 0, 0), maps + 16, address(bars, stage), k, i32(0), type=None)
else:
    for step in range(4):
        stage: i64 = step % 2
        {WAIT_FULL}
        {group("fence")}
        da: u64 = cast(call("cuda.shared_address", address(sa, stage, 0, 0), type=u32) >> u32(4), u64) + {DESCRIPTOR}
        db: u64 = cast(call("cuda.shared_address", address(sb, stage, 0, 0), type=u32) >> u32(4), u64) + {DESCRIPTOR}
        for i in unroll(4):
            far: u64 = cast(i * 2, u64)
            call("{PRODUCT}", address(d, 0), da + far, db + far, step + i > 0, i32(0), i32(0), type=None)
        {group("commit")}
        {group("wait", "i32(0)")}
        if t == 128:
            {RELEASE}
    for i in range(8):
        u: i64 = t - 128
        row: i64 = u // 32 * 16 + u % 32 // 4 + i // 2 % 2 * 8
        c[row * 16 + i // 4 * 8 + u % 4 * 2 + i % 2] = d[i]
"""


def multiply(body, rows=64):
    """rows: of a box of the left matrix, which has 64."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((64, 256)).astype(np.float16), rng.standard_normal((16, 256)).astype(np.float16)
    boxes = (a, (64, rows)), (b, (64, 16))
    maps = np.concatenate(
        [TensorMap(m.ctypes.data, dtypes.f16, (256, len(m)), (512,), box, swizzle=128).words() for m, box in boxes]
    )
    c = np.zeros((64, 16), np.float32)
    run_kernel(body, "a: ~f16, b_: ~f16, maps: ~u64, c: ~f32", [a, b, maps, c], block=(256,))
    return c, a.astype(np.float64) @ b.T.astype(np.float64)


def test_a_ring_of_tensor_copies_feeds_products():
    result, expected = multiply(RING)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_rows_of_an_operand_that_nobody_wrote_are_nan():
    result, expected = multiply(RING.replace("10240", "7168"), rows=40)
    np.testing.assert_allclose(result[:40], expected[:40], rtol=1e-5, atol=1e-5)
    assert np.isnan(result[40:]).all()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ((WAIT_FULL, "pass"), LaunchError, "is read, but (nothing wrote it|an asynchronous)"),
        (
            (WAIT_FULL, WAIT_FULL.replace("2, u32)", "2, u32) ^ u32(1)")),
            LaunchError,
            "is read, but (nothing wrote|an async)",
        ),
        (
            (WAIT_EMPTY, WAIT_EMPTY.replace(" ^ u32(1)", "")),
            Deadlock,
            "for the phase of parity 0 of the barrier at bars",
        ),
        ((WAIT_EMPTY, "pass"), LaunchError, "more threads arrive at the barrier at bars, byte 0 than the 1"),
        (
            (EXPECT, EXPECT.replace("10240", "10000")),
            Deadlock,
            "expects 0 of 1 arrivals and -?[0-9]+ bytes|and -240 bytes",
        ),
        (
            (EXPECT, barrier("arrive_at", "bars, stage")),
            (LaunchError, Deadlock),
            "data race: sa, byte 0, is read, and .* its copy engine",
        ),
        ((RELEASE, "pass"), Deadlock, "expects 1 of 1 arrivals and 0 bytes"),
        ((group("wait", "i32(0)"), "pass"), LaunchError, "asynchronous|race"),
        ((group("wait", "i32(0)"), group("wait", "i32(1)")), LaunchError, "asynchronous|race"),
        ((f'    call("cuda.fence_barrier_init", type=None)\n{SYNC}', "    pass"), LaunchError, "no barrier|race"),
        ((group("fence"), "pass"), LaunchError, r"d is used by a product before any cuda\.wgmma_fence"),
        (
            (f"        {group('fence')}", f"        {group('fence')}\n        d[0] = 0.0"),
            LaunchError,
            "d was written after",
        ),
        (("step + i > 0", "True"), LaunchError, "d is added to, but nothing wrote it"),
        (("maps + 16, address", "maps + 8, address"), LaunchError, "tensor map"),
        ((f"        if t == 128:\n            {RELEASE}", f"        {RELEASE}"), Deadlock, "barrier at bars"),
    ],
)
def test_what_is_wrong_in_a_ring_is_found(change, error, message):
    assert change[0] in RING
    with pytest.raises(error, match=message):
        multiply(RING.replace(*change))


def test_the_swizzle_moves_chunks_of_16_bytes_within_rows():
    addresses = swizzled(np.arange(0, 1024, 16), 128).reshape(8, 8) // 16
    assert addresses[0].tolist() == list(range(8))
    assert addresses[3].tolist() == [24 + (column ^ 3) for column in range(8)]
    assert swizzled(np.array([256 + 16]), 64).tolist() == [256 + 48]
    assert sorted(swizzled(np.arange(0, 1024, 16), 32).tolist()) == list(range(0, 1024, 16))


@pytest.mark.parametrize("width", [0, 1, 2, 3])
@pytest.mark.parametrize("k_is_slow", [False, True])
def test_an_operand_takes_each_of_its_bytes_from_another_place(width, k_is_slow):
    nbytes = {0: 16, 1: 128, 2: 64, 3: 32}[width]
    leading, stride = (1024, 128) if width == 0 else (2048, 8 * nbytes)
    descriptor = leading // 16 << 16 | stride // 16 << 32 | width << 62
    addresses = operand_addresses(descriptor, 64, 16, 2, k_is_slow)
    assert len(np.unique(addresses)) == 64 * 16


def test_bulk_copies_move_bytes_and_wait_for_each_other():
    body = f"""
s: f32[32] @ shared
bar: u64[1] @ shared
if t == 0:
    {barrier("init", "bar, 0", "i32(1)")}
{SYNC}
if t == 0:
    {barrier("arrive_expect", "bar, 0", "i32(128)")}
    call("cuda.bulk_load", address(s, 0), p, i32(128), address(bar, 0), type=None)
{barrier("wait", "bar, 0", "u32(0)")}
s[t] = s[t] + 1.0
FENCE
{SYNC}
if t == 0:
    call("cuda.bulk_store", q, address(s, 0), i32(128), type=None)
    call("cuda.bulk_commit", type=None)
    call("cuda.bulk_wait", i32(0), type=None)
"""
    fence = 'call("cuda.fence_async_shared", type=None)'
    p, q = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    run_kernel(body.replace("FENCE", fence), "p: ~f32, q: ~f32", [p, q])
    assert q.tolist() == list(range(1, 33))
    with pytest.raises(LaunchError, match=r"has passed no cuda\.fence_async_shared since"):
        run_kernel(body.replace("FENCE", "pass"), "p: ~f32, q: ~f32", [p, q])
    with pytest.raises(LaunchError, match="ends with a bulk copy on its way"):
        run_kernel(
            body.replace("FENCE", fence).replace('    call("cuda.bulk_wait", i32(0), type=None)\n', ""),
            "p: ~f32, q: ~f32",
            [p, q],
        )
    late = body.replace("FENCE", fence).replace('commit", type=None)\n', 'commit", type=None)\n    s[0] = 9.0\n')
    with pytest.raises(DataRace, match=r"was written by .* while .* read it in the background"):
        run_kernel(late, "p: ~f32, q: ~f32", [p, q])


def test_boxes_beyond_the_tensor_are_zero_and_not_written():
    data = np.arange(8 * 8, dtype=np.float32).reshape(8, 8)
    out = np.zeros((8, 8), np.float32)
    maps = np.concatenate([TensorMap(m.ctypes.data, dtypes.f32, (8, 8), (32,), (4, 4)).words() for m in (data, out)])
    body = f"""
s: f32[4, 4] @ shared
bar: u64[1] @ shared
if t == 0:
    {barrier("init", "bar, 0", "i32(1)")}
    {barrier("arrive_expect", "bar, 0", "i32(64)")}
    call("cuda.tensor_load.2d", address(s, 0, 0), maps, address(bar, 0), i32(6), i32(-1), type=None)
    {barrier("wait", "bar, 0", "u32(0)")}
    call("cuda.tensor_store.2d", maps + 16, address(s, 0, 0), i32(-2), i32(5), type=None)
    call("cuda.bulk_commit", type=None)
    call("cuda.bulk_wait", i32(0), type=None)
"""
    run_kernel(body, "data: ~f32, out: ~f32, maps: ~u64", [data, out, maps])
    box = np.zeros((4, 4), np.float32)
    box[1:, :2] = data[:3, 6:]
    expected = np.zeros((8, 8), np.float32)
    expected[5:, :2] = box[:3, 2:]
    assert (out == expected).all()


START = "i32(0), i32(-1), i32(-1), i32(0)"


def test_columns_of_pixels_walk_over_rows_and_images():
    images, height, width, channels = 2, 3, 4, 8
    data = np.random.default_rng(0).standard_normal((images, height, width, channels)).astype(np.float32)
    # A filter of 3 x 3 with padding 1 has as many outputs as inputs.
    described = TensorMap(
        data.ctypes.data,
        dtypes.f32,
        (channels, width, height, images),
        tuple(data.strides[axis] for axis in (2, 1, 0)),
        (8,),
        lower=(-1, -1),
        upper=(-1, -1),
        pixels=16,
    )
    body = f"""
s: f32[16, 8] @ shared
bar: u64[1] @ shared
if t == 0:
    {barrier("init", "bar, 0", "i32(1)")}
    {barrier("arrive_expect", "bar, 0", "i32(512)")}
    call("cuda.tensor_load_im2col.4d", address(s, 0, 0), maps, address(bar, 0), {START}, u16(2), u16(1), type=None)
    {barrier("wait", "bar, 0", "u32(0)")}
    for i in range(128):
        out[i] = s[i // 8, i % 8]
"""
    out = np.zeros((16, 8), np.float32)
    run_kernel(body, "data: ~f32, maps: ~u64, out: ~f32", [data, described.words(), out])
    padded = np.pad(data, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = padded[:, 1 : 1 + height, 2 : 2 + width].reshape(-1, channels)
    assert (out == shifted[:16]).all()


def test_a_copy_reaches_every_block_of_a_cluster():
    body = f"""
s: f32[32] @ shared
bar: u64[1] @ shared
if t == 0:
    {barrier("init", "bar, 0", "i32(1)")}
    {barrier("arrive_expect", "bar, 0", "i32(128)")}
call("cuda.cluster_arrive", type=None)
call("cuda.cluster_wait", type=None)
if t == 0 and b == 0:
    call("cuda.tensor_load_multicast.1d", address(s, 0), maps, address(bar, 0), i32(0), u16(3), type=None)
{barrier("wait", "bar, 0", "u32(0)")}
p[32 + b * 32 + t] = s[t]
"""
    p = np.concatenate([np.arange(32), np.zeros(64)]).astype(np.float32)
    described = TensorMap(p.ctypes.data, dtypes.f32, (32,), (), (32,))
    run_kernel(body, "p: ~f32, maps: ~u64", [p, described.words()], grid=(2,), cluster=(2,))
    assert p.tolist() == [*range(32)] * 3
