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


def test_masks_name_who_comes():
    call = 'cast(call("gpu.vote_ballot", u32({}), x >= i32(0), type=u32), i32)'
    out = np.zeros(32, np.int32)
    body = f"x: i32 = cast(t, i32)\nif t < 4:\n    out[t] = {call.format(15)}"
    run_kernel(body, "out: ~i32", [out])
    assert out[:5].tolist() == [15, 15, 15, 15, 0]
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
        ('"gpu.extract_bits", x, u32(5), u32(9)', "u32", lambda x: x >> 5 & 511),
        ('"gpu.insert_bits", x, u32(4294967295), u32(4), u32(8)', "u32", lambda x: 0xFFFFF00F | (x & 255) << 4),
        ('"gpu.multiply_high", x, x', "u32", lambda x: x * x >> 32),
    ],
)
def test_bits_are_handled_as_in_python(call, type_, expected):
    dtype = {"i32": np.int32, "u32": np.uint32}[type_]
    found = column(f"call({call}, type={type_})", np.uint32, WORDS, dtype)
    assert found == [expected(int(x)) for x in WORDS]


def test_signed_bits_extend_their_sign():
    found = column('call("gpu.extract_bits", x, u32(4), u32(8), type=i32)', np.int32, WORDS.view(np.int32), np.int32)
    assert found == [((int(x) >> 4 & 255) ^ 128) - 128 for x in WORDS]


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
