"""Named barriers and those of clusters order what threads do."""

import numpy as np
import pytest

from hidet.errors import DataRace, LaunchError
from hidet.gpu.testing.launches import run_kernel

SYNC = 'call("gpu.syncthreads", type=None)'


def named(number, threads, what="sync"):
    return f'call("cuda.barrier_{what}", i32({number}), i32({threads}), type=None)'


def run(body, count=64, **launch):
    out = np.zeros(count, np.float32)
    run_kernel(body, "p: ~f32", [out], **{"block": (64,), **launch})
    return out.tolist()


def test_threads_that_end_later_let_those_go_on_that_wait_already():
    body = f"s: f32[64] @ shared\nif t >= 32:\n    {named(1, 32)}\n    return\n{SYNC}\np[t] = 1.0"
    assert run(body) == [1.0] * 32 + [0.0] * 32


def test_named_barriers_order_the_threads_that_come_to_them():
    body = f"s: f32[64] @ shared\nif t < 32:\n    s[t] = 5.0\n    {named(1, 64, 'arrive')}\nelse:\n"
    body += f"    {named(1, 64)}\n    p[t] = s[t - 32]"
    assert run(body)[32:] == [5] * 32
    with pytest.raises(DataRace):
        run(body.replace(f"    {named(1, 64)}\n", f"    {named(2, 32)}\n").replace(named(1, 64, "arrive"), "pass"))


def test_producers_and_consumers_wait_for_each_other_in_turn():
    body = f"""
s: f32[1] @ shared
for i in range(3):
    if t < 32:
        if t == 0:
            s[0] = cast(i, f32)
        {named(1, 64)}
        {named(2, 64)}
    else:
        {named(1, 64)}
        p[i * 64 + t] = s[0]
        {named(2, 64)}
"""
    out = run(body, 192)
    assert [out[64 * i + 40] for i in range(3)] == [0, 1, 2]


def test_warp_groups_take_turns_in_the_same_statements():
    """Each waits at a barrier of its own, and lets the other one go on there, of which it is ahead by half a round."""
    body = f"""
s: f32[1] @ shared
if t < 256:
    if t // 128 == 1:
        {named(1, 256, "arrive")}
    for i in range(3):
        if t // 128 == 0:
            {named(1, 256)}
        else:
            {named(2, 256)}
        if t % 128 == 0:
            s[0] = cast(2 * i + cast(t // 128, i64), f32)
            p[2 * i + cast(t // 128, i64)] = s[0]
        if t // 128 == 0:
            {named(2, 256, "arrive")}
        else:
            {named(1, 256, "arrive")}
"""
    assert run(body, 6, block=(288,)) == [0, 1, 2, 3, 4, 5]
    with pytest.raises(DataRace):
        run(body.replace(named(2, 256), "pass").replace(named(2, 256, "arrive"), "pass"), 6, block=(288,))
    own = [f"@device\ndef open{n}():\n    {named(n, 256, 'arrive')}\n" for n in (1, 2)]
    for n in (1, 2):
        body = body.replace(named(n, 256, "arrive"), f'call("open{n}", type=None)')
    assert run(body, 6, block=(288,), functions="\n".join(own)) == [0, 1, 2, 3, 4, 5]


def test_a_barrier_with_two_counts_is_refused():
    with pytest.raises(LaunchError, match="expect 64 and 96 threads there"):
        run(f"if t < 32:\n    {named(1, 64)}\nelse:\n    {named(1, 96)}")


def test_blocks_of_a_cluster_meet():
    arrive, wait = (f'call("cuda.cluster_{verb}", type=None)' for verb in ("arrive", "wait"))
    body = f"p[b * 64 + t] = cast(b, f32)\n{arrive}\n{wait}\np[128 + b * 64 + t] = p[(1 - b) * 64 + t]"
    assert run(body, 256, grid=(2,), cluster=(2,))[128:] == [1] * 64 + [0] * 64
    with pytest.raises(DataRace):
        run(body.replace(f"{arrive}\n{wait}\n", ""), 256, grid=(2,), cluster=(2,))
