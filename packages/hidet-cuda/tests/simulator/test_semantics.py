"""Every intrinsic of NVIDIA's has a meaning, and those without memory mean what plain Python says."""

import numpy as np
import pytest

from hidet.cuda.intrinsics import CUDA_INTRINSICS
from hidet.cuda.simulator import MEANINGS
from hidet.errors import LaunchError
from hidet.gpu.testing.launches import run_kernel

FULL = "u32(4294967295)"


def test_every_intrinsic_has_a_meaning_and_every_meaning_an_intrinsic():
    assert MEANINGS.keys() == CUDA_INTRINSICS.keys()


def column(expression, dtype, given=None, type_=None, block=32, setup=""):
    """What `expression` is in each thread; `x` is the element of `given` of the thread."""
    out = np.zeros(block, type_ or dtype)
    given = np.arange(block, dtype=dtype) if given is None else given
    short = {np.dtype(np.int32): "i32", np.dtype(np.uint32): "u32", np.dtype(np.float32): "f32"}
    names = [short[np.dtype(t)] for t in (given.dtype, out.dtype)]
    body = f"{setup}x: {names[0]} = given[t]\nout[t] = {expression}"
    run_kernel(body, f"given: ~{names[0]}, out: ~{names[1]}", [given, out], block=(block,))
    return out.tolist()


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (f'"cuda.reduce_add", {FULL}, x', lambda lane: 496),
        (f'"cuda.reduce_max", {FULL}, x', lambda lane: 31),
        (f'"cuda.reduce_min", {FULL}, x - i32(7)', lambda lane: -7),
    ],
)
def test_a_warp_reduces(call, expected):
    assert column(f"call({call}, type=i32)", np.int32) == [expected(lane) for lane in range(32)]


def test_lanes_with_equal_values_find_each_other_and_one_is_elected():
    same = column(f'call("cuda.match_any", {FULL}, x % i32(4), type=u32)', np.int32, type_=np.uint32)
    assert same == [sum(1 << i for i in range(32) if i % 4 == lane % 4) for lane in range(32)]
    chosen = column(f'cast(call("cuda.elect", {FULL}, type=bool), u32)', np.int32, type_=np.uint32)
    assert chosen == [1] + [0] * 31


WORDS = np.random.default_rng(0).integers(0, 2**32, 32, dtype=np.uint32)


@pytest.mark.parametrize(
    ("call", "type_", "expected"),
    [
        ('"cuda.lop3", x, x >> u32(3), u32(255), i32(106)', "u32", lambda x: (x & (x >> 3)) ^ 255),
        ('"cuda.byte_permute", x, u32(1144201745), u32(12834)', "u32", lambda x: _permuted(x, 0x44332211, 0x3222)),
        ('"cuda.funnel_shift_left", x, u32(1), u32(33)', "u32", lambda x: 2 | x >> 31),
        ('"cuda.funnel_shift_right", x, u32(1), u32(4)', "u32", lambda x: 1 << 28 | x >> 4),
        ('"cuda.dot_4_unsigned", x, x, u32(1)', "u32", lambda x: 1 + sum(b * b for b in x.to_bytes(4, "little"))),
    ],
)
def test_bits_are_handled_as_in_python(call, type_, expected):
    dtype = {"i32": np.int32, "u32": np.uint32}[type_]
    found = column(f"call({call}, type={type_})", np.uint32, WORDS, dtype)
    assert found == [expected(int(x)) for x in WORDS]


def _permuted(a, b, selector):
    data = a.to_bytes(4, "little") + b.to_bytes(4, "little")
    chosen = bytes(data[selector >> 4 * i & 7] for i in range(4))
    return int.from_bytes(chosen, "little")


def test_pairs_are_packed_and_computed_with():
    x = np.linspace(-3, 3, 32).astype(np.float32)
    packed = column('call("cuda.pack_f16", x, x * 2.0, type=u32)', np.float32, x, np.uint32)
    pairs = np.array(packed, np.uint32).view(np.float16).reshape(-1, 2)
    assert (pairs == np.stack([x, x * 2], 1).astype(np.float16)).all()
    word = 'call("cuda.pack_f16", x, x * 2.0, type=u32)'
    summed = column(f'call("cuda.fma_f16x2", {word}, {word}, {word}, type=u32)', np.float32, x, np.uint32)
    wide = pairs.astype(np.float64)
    assert (
        np.array(summed, np.uint32).view(np.float16).reshape(-1, 2) == (wide * wide + wide).astype(np.float16)
    ).all()
    rounded = column('bitcast(call("cuda.round_tf32", x, type=u32), f32)', np.float32, x)
    np.testing.assert_allclose(rounded, x, rtol=2**-11)
    saturated = column('cast(call("cuda.pack_f8e4m3", x * 1000.0, x, type=u16), u32)', np.float32, x, np.uint32)
    assert saturated[0] & 255 == 0xFE  # -448, the largest f8e4m3 below zero


def test_words_of_eight_codes_become_pairs():
    body = 'f: u32[4] @ register\ncall("cuda.unpack_i4_f16", address(f, 0), p[0], type=None)\n'
    body += "if t < 4:\n    q[t] = f[t]"
    out = np.zeros(4, np.uint32)
    run_kernel(body, "p: ~u32, q: ~u32", [np.array([0x89ABCDEF], np.uint32), out])
    assert out.view(np.float16).tolist() == [-1, -2, -3, -4, -5, -6, -7, -8]


def test_memory_that_is_read_as_constant_is_not_written():
    body = 'p[t] = 1.0\nx: f32 = call("cuda.load_constant", p + t, type=f32)'
    with pytest.raises(LaunchError, match="read as memory that no thread writes, but this kernel wrote it"):
        run_kernel(body, "p: ~f32", [np.zeros(32, np.float32)])


def test_copies_without_a_group_are_finished_by_a_barrier_that_counts_them():
    def barrier(verb, *more):
        return f'call("cuda.{verb}", {", ".join(("address(bar, 0)", *more))}, type=None)'

    body = f"""
s: f32[32] @ shared
bar: u64[1] @ shared
if t == 0:
    {barrier("barrier_init", "i32(32)")}
call("gpu.syncthreads", type=None)
call("cuda.copy_async_4", address(s, t), p + t, i32(4), type=None)
{barrier("copy_async_arrive")}
{barrier("barrier_wait", "u32(0)")}
p[32 + t] = s[31 - t]
"""
    p = np.arange(64, dtype=np.float32)
    run_kernel(body, "p: ~f32", [p])
    assert p[32:].tolist() == list(range(31, -1, -1))
