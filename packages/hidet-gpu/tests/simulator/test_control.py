"""Threads of blocks: where they stand, branches, loops, calls, and memory."""

import numpy as np
import pytest

from hidet.errors import DataRace, LaunchError, UnsupportedOp
from hidet.gpu.testing.launches import run_kernel

SYNC = 'call("gpu.syncthreads", type=None)'


def run(body, count=64, parameters="p: ~f32, n: i64", **launch):
    out = np.zeros(count, np.float32)
    run_kernel(body, parameters, [out, count] if "n:" in parameters else [out], **{"block": (32,), **launch})
    return out.tolist()


def test_each_thread_of_each_block_runs_the_kernel():
    assert run("p[b * 32 + t] = cast(b * 100 + t, f32)", grid=(2,)) == [100 * (i // 32) + i % 32 for i in range(64)]


def test_threads_and_blocks_have_three_axes_of_which_x_runs_fastest():
    at = " + ".join(
        f'cast(call("gpu.{what}.{axis}", type=i32), i64) * {weight}'
        for what, axis, weight in (
            *(("thread_idx", "x", 1), ("thread_idx", "y", 2), ("thread_idx", "z", 6)),
            *(("block_idx", "x", 12), ("block_idx", "y", 24)),
        )
    )
    body = f'p[{at}] = cast(call("gpu.block_dim.y", type=i32), f32) + cast(call("gpu.grid_dim.y", type=i32), f32)'
    assert run(body, 48, grid=(2, 2), block=(2, 3, 2)) == [5.0] * 48


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("if t < 5:\n    p[t] = 1.0\nelse:\n    p[t] = 2.0", [1] * 5 + [2] * 27),
        ("if t < 5:\n    return\np[t] = 1.0", [0] * 5 + [1] * 27),
        ("for i in range(t):\n    p[t] = p[t] + 1.0", list(range(32))),
        ("for i in range(32):\n    if i == t:\n        break\n    p[t] = p[t] + 1.0", list(range(32))),
        ("for i in range(4):\n    if i == t:\n        continue\n    p[t] = p[t] + 1.0", [3] * 4 + [4] * 28),
        ("for i in range(4):\n    if t > 3:\n        return\n    p[t] = p[t] + 1.0", [4] * 4 + [0] * 28),
        ("i: i64 = 0\nwhile i * i < t:\n    i = i + 1\np[t] = cast(i, f32)", [int(np.ceil(i**0.5)) for i in range(32)]),
        ("while t >= 0:\n    p[t] = p[t] + 1.0\n    if p[t] > cast(t, f32):\n        break", list(range(1, 33))),
        ("x: f32 = 3.0\nif t % 2 == 0:\n    x = cast(t, f32)\np[t] = x", [i if i % 2 == 0 else 3 for i in range(32)]),
        ("p[t] = p[1000] if t < 0 else 1.0", [1] * 32),
        ("p[t] = 1.0 if t > 3 and p[t * 2 - t] == 0.0 else 2.0", [2] * 4 + [1] * 28),
        ("q: ~f32 = p + t\nq[0] = 2.0", [2] * 32),
        ("q: ~f32 = p\nif t > 0:\n    q = p + t\nq[0] = 3.0", [3] * 32),
        ("a: f32x4[2] @ local\na[1] = f32x4(2.0)\np[t] = extract(a[1], 3)", [2] * 32),
        ("if t % 4 == 0:\n    store(p, [t], f32x4(5.0))", [5] * 32),
        (
            "if t % 4 == 0:\n    store(p, [t], f32x4(5.0), mask=broadcast(cast(t, f32), 4) > f32x4(8.0))",
            [0] * 12 + [5] * 20,
        ),
        ("p[t] = bitcast(i32(1065353216), f32)", [1] * 32),
    ],
)
def test_statements_and_expressions_do_what_they_say(body, expected):
    assert run(body, 32) == expected


def test_functions_are_called_by_some_threads_and_return_from_branches():
    half = "@device\ndef half(x: i64) -> f32:\n    if x % 2 == 0:\n        return cast(x // 2, f32)\n    return -1.0\n"
    body = 'if t < 8:\n    p[t] = call("half", t, type=f32)'
    expected = [i // 2 if i % 2 == 0 else -1 for i in range(8)]
    assert run(body, 32, functions=half)[:8] == expected


def test_shared_memory_belongs_to_a_block_and_is_seen_after_a_barrier():
    body = f"s: f32[32] @ shared\ns[t] = cast(b * 32 + t, f32)\n{SYNC}\np[b * 32 + t] = s[31 - t]"
    assert run(body, grid=(2,)) == [*range(31, -1, -1), *range(63, 31, -1)]


def test_a_buffer_with_strides_is_indexed_by_them():
    body = "a: strided(f32[4, 8], [1, 4]) @ shared\na[t // 8, t % 8] = cast(t, f32)\n" + SYNC
    body += "\np[t] = a[t % 4, t // 4]"
    assert run(body, 32) == [8 * (i % 4) + i // 4 for i in range(32)]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("p[t + 1] = 1.0", r"block \(0, 0, 0\), thread \(31, 0, 0\), `p\[t \+ 1\] = 1.0`: p has 128 bytes"),
        ("s: f32[4, 8] @ shared\ns[t // 8, t % 8 + 1] = 1.0", r"thread \(7, .*s is accessed at \(0, 8\): axis 1 has 8"),
        ("s: f32[32] @ shared\nq: f32x4 = load(s, [t], f32x4)", r"s is accessed|accessed at byte|multiple of 16"),
        ("s: f32[32] @ shared\np[t] = s[t]", r"s, byte 0, is read, but nothing wrote it"),
        ("a: f32[2] @ local\na[t % 2] = 1.0\np[t] = a[0]", r"thread \(1, 0, 0\).*a, byte 0, is read, but nothing"),
        ("x: f32\nif t > 0:\n    x = 1.0\np[t] = x", r"thread \(0, 0, 0\).*variable x is read"),
        ("q: f32x2 = load(p, [t // 2], f32x2)", r"thread \(2, 0, 0\).*multiple of 8"),
        ("q: ~f32 = pointer(0, ~f32)\nq[t] = 1.0", "a null pointer is followed"),
        ("assert t < 9, 'too many'", r"thread \(9, 0, 0\).*`: too many$"),
        ("p[0] = cast(t, f32)", r"data race: p, byte 0, is written at the same time by block .* with another value"),
    ],
)
def test_errors_name_block_thread_and_statement(body, message):
    with pytest.raises(LaunchError, match=message):
        run(body, 32)


def test_a_thread_may_not_leave_its_part_of_shared_memory():
    with pytest.raises(LaunchError, match="s has 128 bytes"):
        run("s: f32[32] @ shared\n(address(s, 0))[t + 1] = 1.0", 32, grid=(2,))


def test_several_threads_may_write_the_same_value():
    assert run("p[0] = 7.0", 32)[0] == 7


def test_unknown_intrinsics_and_wrong_launches_are_refused():
    with pytest.raises(UnsupportedOp, match="neither a function nor an intrinsic"):
        run('call("fmaa", p[t], p[t], p[t], type=f32)', 32)
    with pytest.raises(LaunchError, match="2048 threads a block"):
        run("p[0] = 1.0", 32, block=(2048,))
    with pytest.raises(LaunchError, match="no multiple of cluster"):
        run("p[0] = 1.0", 32, grid=(3,), cluster=(2,))


def test_blocks_that_write_one_place_race():
    with pytest.raises(DataRace, match=r"p, byte 0, is written at the same time by block \(1, 0, 0\)"):
        run("if t == 0:\n    p[0] = cast(b, f32)", grid=(2,))
    with pytest.raises(DataRace, match=r"p, byte 0, is written, and block \(0, 0, 0\), thread \(0, 0, 0\) writes it"):
        run("if t == 0:\n    p[b % 64] = cast(b // 64, f32)", grid=(65,))


def test_threads_print_in_order(capsys):
    run('if t < 2:\n    printf("%d of %d\\n", t, b)', 32)
    assert capsys.readouterr().out == "0 of 0\n1 of 0\n"


def test_a_launch_adds_shared_memory():
    body = f"""
s: ~f32 @ shared = cast(call("gpu.dynamic_shared_memory", 16, type=~u8 @ shared), ~f32 @ shared)
s[t] = cast(t, f32)
{SYNC}
p[t] = s[31 - t]
"""
    assert run(body, 32, shared_bytes=144) == list(range(31, -1, -1))
    with pytest.raises(
        LaunchError, match="dynamic shared memory has 100 bytes, but 1 x 4 bytes are accessed at byte 100"
    ):
        run(body, 32, shared_bytes=100)
