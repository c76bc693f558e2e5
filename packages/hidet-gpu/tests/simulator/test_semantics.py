"""Every intrinsic has a meaning, and those without memory mean what plain Python says."""

import numpy as np
import pytest

from hidet.errors import DataRace, LaunchError
from hidet.gpu.intrinsics import INTRINSICS
from hidet.gpu.simulator.semantics import MEANINGS
from hidet.gpu.testing.launches import run_kernel

FULL = "u32(4294967295)"


def test_every_intrinsic_has_a_meaning_and_every_meaning_an_intrinsic():
    assert MEANINGS.keys() == INTRINSICS.keys()


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
        (f'"gpu.shuffle", {FULL}, x, i32(5), i32(32)', lambda lane: 5),
        (f'"gpu.shuffle", {FULL}, x, i32(5), i32(8)', lambda lane: lane // 8 * 8 + 5),
        (f'"gpu.shuffle_up", {FULL}, x, i32(3), i32(16)', lambda lane: lane - 3 if lane % 16 >= 3 else lane),
        (f'"gpu.shuffle_down", {FULL}, x, i32(3), i32(16)', lambda lane: lane + 3 if lane % 16 < 13 else lane),
        (f'"gpu.shuffle_xor", {FULL}, x, i32(5), i32(32)', lambda lane: lane ^ 5),
        (f'"gpu.shuffle_xor", {FULL}, x, i32(16), i32(16)', lambda lane: lane if lane < 16 else lane - 16),
        (f'"cuda.reduce_add", {FULL}, x', lambda lane: 496),
        (f'"cuda.reduce_max", {FULL}, x', lambda lane: 31),
        (f'"cuda.reduce_min", {FULL}, x - i32(7)', lambda lane: -7),
    ],
)
def test_lanes_of_a_warp_exchange_values(call, expected):
    assert column(f"call({call}, type=i32)", np.int32) == [expected(lane) for lane in range(32)]


@pytest.mark.parametrize(
    ("call", "type_", "expected"),
    [
        (f'"gpu.vote_ballot", {FULL}, x % i32(3) == i32(0)', "u32", sum(1 << i for i in range(0, 32, 3))),
        (f'"gpu.vote_any", {FULL}, x == i32(7)', "bool", 1),
        (f'"gpu.vote_all", {FULL}, x == i32(7)', "bool", 0),
        (f'"gpu.vote_uniform", {FULL}, x < i32(0)', "bool", 1),
        (f'"gpu.vote_uniform", {FULL}, x < i32(1)', "bool", 0),
        ('"gpu.active_mask"', "u32", 0xFFFFFFFF),
    ],
)
def test_a_warp_votes(call, type_, expected):
    assert column(f"cast(call({call}, type={type_}), u32)", np.int32, type_=np.uint32) == [expected] * 32


def test_lanes_with_equal_values_find_each_other_and_one_is_elected():
    same = column(f'call("cuda.match_any", {FULL}, x % i32(4), type=u32)', np.int32, type_=np.uint32)
    assert same == [sum(1 << i for i in range(32) if i % 4 == lane % 4) for lane in range(32)]
    chosen = column(f'cast(call("cuda.elect", {FULL}, type=bool), u32)', np.int32, type_=np.uint32)
    assert chosen == [1] + [0] * 31


def test_masks_name_who_comes():
    call = 'call("cuda.reduce_add", u32({}), x, type=i32)'
    out = np.zeros(32, np.int32)
    body = f"x: i32 = cast(t, i32)\nif t < 4:\n    out[t] = {call.format(15)}"
    run_kernel(body, "out: ~i32", [out])
    assert out[:5].tolist() == [6, 6, 6, 6, 0]
    with pytest.raises(LaunchError, match="the mask names lane 4 of the warp, which does not come here"):
        run_kernel(body.replace("u32(15)", "u32(31)"), "out: ~i32", [out])
    with pytest.raises(LaunchError, match="the mask does not name lane 3, which is the caller"):
        run_kernel(body.replace("u32(15)", "u32(7)"), "out: ~i32", [out])
    with pytest.raises(LaunchError, match="the value of lane 9 is read, which the mask does not name"):
        column('call("gpu.shuffle", u32(255), x, i32(9), i32(32), type=i32)', np.int32, block=8)


WORDS = np.random.default_rng(0).integers(0, 2**32, 32, dtype=np.uint32)


@pytest.mark.parametrize(
    ("call", "type_", "expected"),
    [
        ('"gpu.population_count", x', "i32", lambda x: x.bit_count()),
        ('"gpu.leading_zeros", x', "i32", lambda x: 32 - x.bit_length()),
        ('"gpu.find_first_set", x', "i32", lambda x: (x & -x).bit_length()),
        ('"gpu.reverse_bits", x', "u32", lambda x: int(f"{x:032b}"[::-1], 2)),
        ('"cuda.lop3", x, x >> u32(3), u32(255), i32(106)', "u32", lambda x: (x & (x >> 3)) ^ 255),
        ('"cuda.byte_permute", x, u32(1144201745), u32(12834)', "u32", lambda x: _permuted(x, 0x44332211, 0x3222)),
        ('"gpu.extract_bits", x, u32(5), u32(9)', "u32", lambda x: x >> 5 & 511),
        ('"gpu.insert_bits", x, u32(4294967295), u32(4), u32(8)', "u32", lambda x: 0xFFFFF00F | (x & 255) << 4),
        ('"cuda.funnel_shift_left", x, u32(1), u32(33)', "u32", lambda x: 2 | x >> 31),
        ('"cuda.funnel_shift_right", x, u32(1), u32(4)', "u32", lambda x: 1 << 28 | x >> 4),
        ('"gpu.multiply_high", x, x', "u32", lambda x: x * x >> 32),
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


def test_signed_bits_extend_their_sign():
    found = column('call("gpu.extract_bits", x, u32(4), u32(8), type=i32)', np.int32, WORDS.view(np.int32), np.int32)
    assert found == [((int(x) >> 4 & 255) ^ 128) - 128 for x in WORDS]


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


@pytest.mark.parametrize(
    ("name", "start", "expected"),
    [("add", 5, 5 + 496), ("max", 5, 31), ("min", 5, 0), ("or", 0, 31), ("xor", 0, 0), ("exchange", 9, 31)],
)
def test_atomics_change_memory_one_thread_after_the_other(name, start, expected):
    place = np.array([start], np.int32)
    old = np.zeros(32, np.int32)
    run_kernel(f'old[t] = call("gpu.atomic_{name}", p, cast(t, i32), type=i32)', "p: ~i32, old: ~i32", [place, old])
    assert place[0] == expected
    assert old[0] == start


def test_exactly_one_thread_wins_a_compare_exchange():
    place, old = np.zeros(1, np.int32), np.zeros(32, np.int32)
    call = 'call("gpu.atomic_compare_exchange", p, i32(0), cast(t + 1, i32), type=i32)'
    run_kernel(f"old[t] = {call}", "p: ~i32, old: ~i32", [place, old])
    assert (old == 0).sum() == 1
    assert place[0] == 1


def test_an_atomic_and_a_plain_access_race():
    call = 'call("gpu.reduce_add_at", p, 1.0, type=None)'
    place = np.zeros(1, np.float32)
    run_kernel(call, "p: ~f32", [place], grid=(3,))
    assert place[0] == 96
    with pytest.raises(DataRace):
        run_kernel(f"if t == 0:\n    p[0] = 1.0\n{call}", "p: ~f32", [place])
    with pytest.raises(DataRace):
        run_kernel(f"x: f32 = p[0]\n{call}", "p: ~f32", [place])


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
