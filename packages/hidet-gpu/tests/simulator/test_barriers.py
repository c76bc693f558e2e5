"""Barriers order what threads do; what they do not order is a race, and what never comes a deadlock."""

import numpy as np
import pytest

from hidet.errors import DataRace, Deadlock, LaunchError
from hidet.gpu.testing.launches import kernel_module, run_kernel
from hidet.loc import Loc

SYNC = 'call("gpu.syncthreads", type=None)'
SYNCWARP = 'call("gpu.syncwarp", u32(4294967295), type=None)'


def run(body, count=64, **launch):
    out = np.zeros(count, np.float32)
    run_kernel(body, "p: ~f32", [out], **{"block": (64,), **launch})
    return out.tolist()


def test_without_a_barrier_reading_what_another_thread_writes_is_a_race():
    with pytest.raises(
        DataRace, match=r"thread \(0, 0, 0\).*s, byte 252, is read, and .*thread \(63, 0, 0\) writes it"
    ) as e:
        run("s: f32[64] @ shared\ns[t] = 1.0\np[t] = s[63 - t]")
    assert "`s[t] = 1.0`" in str(e.value)


def test_writing_before_all_have_read_is_a_race():
    body = f"s: f32[64] @ shared\ns[t] = 1.0\n{SYNC}\np[t] = s[63 - t]\ns[t] = 2.0"
    with pytest.raises(DataRace, match=r"is written, and .* reads it in `p"):
        run(body)
    run(body.replace("\ns[t] = 2.0", f"\n{SYNC}\ns[t] = 2.0"))


def test_a_barrier_of_the_warp_orders_its_threads_only():
    body = f"s: f32[64] @ shared\ns[t] = cast(t, f32)\n{SYNCWARP}\np[t] = s[XX]"
    assert run(body.replace("XX", "t // 32 * 32 + 31 - t % 32"))[:3] == [31, 30, 29]
    with pytest.raises(DataRace):
        run(body.replace("XX", "63 - t"))


def test_parts_of_a_warp_meet_by_their_masks():
    meet = 'call("gpu.syncwarp", u32(65535) if t % 32 < 16 else u32(4294901760), type=None)'
    body = f"s: f32[64] @ shared\ns[t] = cast(t, f32)\n{meet}\np[t] = s[XX]"
    assert run(body.replace("XX", "t // 16 * 16 + 15 - t % 16"))[:3] == [15, 14, 13]
    with pytest.raises(DataRace):
        run(body.replace("XX", "t // 32 * 32 + 31 - t % 32"))


@pytest.mark.parametrize("left", [32, 40])
def test_a_barrier_of_the_block_waits_for_the_threads_that_are_left(left):
    """CUDA C++ Programming Guide, independent thread scheduling: all threads that have not ended come to it."""
    body = f"s: f32[64] @ shared\nif t >= {left}:\n    return\ns[t] = 1.0\n{SYNC}\np[t] = s[{left} - 1 - t]"
    assert run(body) == [1.0] * left + [0.0] * (64 - left)


def test_a_barrier_that_some_threads_skip_is_a_deadlock():
    with pytest.raises(Deadlock, match="at barrier 0, which 32 of 64 threads have come to"):
        run(f"if t < 32:\n    {SYNC}")


def test_a_barrier_that_part_of_a_warp_comes_to_is_refused():
    with pytest.raises(LaunchError, match="only 16 of the 32 threads of a warp come to barrier 0"):
        run(f"if t < 16:\n    {SYNC}")


def test_barriers_count_predicates():
    out = run('p[t] = cast(call("gpu.syncthreads_count", t < 10, type=i32), f32)')
    assert out == [10] * 64


def test_a_function_may_have_barriers_and_be_called_in_an_expression():
    total = f"""@device
def first(x: f32, t: i64) -> f32:
    s: f32[1] @ shared
    {SYNC}
    if t == 0:
        s[0] = x
    {SYNC}
    return s[0]
"""
    body = 'p[t] = call("first", cast(t + 3, f32), t, type=f32) + call("first", cast(t + 4, f32), t, type=f32)'
    assert run(body, functions=total) == [7] * 64


def test_a_release_by_one_block_is_acquired_by_another():
    fence = 'call("gpu.threadfence", type=None)'
    flag = "address(flags, 0)"
    body = f"""
if b == 0:
    p[t] = 3.0
    {SYNC}
    if t == 0:
        {fence}
        call("gpu.atomic_add", {flag}, i32(1), type=i32)
else:
    while call("gpu.load_acquire", {flag}, type=i32) == i32(0):
        pass
    p[64 + t] = p[t]
"""
    module = kernel_module(body, "p: ~f32, flags: ~i32", grid=(2,), block=(64,))
    from hidet.ir.interpret import run_module

    out = np.zeros(128, np.float32)
    run_module(module, [out, np.zeros(1, np.int32)])
    assert out[64:].tolist() == [3] * 64
    with pytest.raises(DataRace):
        run_kernel(
            body.replace(fence, "pass"), "p: ~f32, flags: ~i32", [out, np.zeros(1, np.int32)], grid=(2,), block=(64,)
        )


def test_asking_for_ever_is_a_deadlock():
    with pytest.raises(Deadlock, match="asks again and again"):
        run("while p[t] == 0.0:\n    pass")


def test_errors_carry_the_place_in_the_script(tmp_path):
    from hidet.ir import stmt as s
    from hidet.ir.func import Function, Module
    from hidet.ir.interpret import run_module

    script = tmp_path / "script.py"
    script.write_text("one\nsmem[t] = 1.0\nthree\n")
    module = kernel_module("s: f32[64] @ shared\ns[0] = cast(t, f32)", "p: ~f32", block=(64,))
    kernel, host = module.functions
    (*before, store) = kernel.body.stmts
    placed = s.Store(store.buffer, store.indices, store.value, loc=Loc(str(script), 2, 1))
    kernel = Function(kernel.name, kernel.params, s.Seq((*before, placed)), "kernel")
    with pytest.raises(DataRace) as error:
        run_module(Module((kernel, host), "main"), [np.zeros(1, np.float32)])
    assert "smem[t] = 1.0" in str(error.value)
    assert "^" in str(error.value)
