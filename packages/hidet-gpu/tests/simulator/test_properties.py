"""What holds for every kernel: without races threads compute what they do one by one, and lost barriers are found."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hidet import dtypes
from hidet.errors import DataRace
from hidet.gpu.intrinsics import intrinsic_call
from hidet.gpu.testing.launches import run_kernel
from hidet.ir import expr as e
from hidet.ir import stmt as s
from hidet.ir.func import Function, Module
from hidet.ir.interpret import run_module
from hidet.ir.types import PointerType, VectorType
from hidet.ir.visit import rewrite
from hidet.testing.program_strategies import ARRAY_ELEMENTS, LANES, arguments, modules

BLOCKS, THREADS = 2, 6
I64 = dtypes.i64

quick = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def aligned(node):
    """The same access, at a multiple of the vector's size: several elements at once need that on a GPU."""
    if not isinstance(node, e.Load | s.Store) or not isinstance(node.buffer.type, PointerType):
        return None
    type_ = node.type if isinstance(node, e.Load) else node.value.type
    if not isinstance(type_, VectorType):
        return None
    four = e.Const(LANES, I64)
    index = e.Binary("mul", e.Binary("floordiv", node.indices[0], four, I64), four, I64)
    if isinstance(node, e.Load):
        return e.Load(node.buffer, (index,), node.type, node.mask)
    return s.Store(node.buffer, (index,), node.value, node.mask)


def as_device(module):
    """The kernel as a function of one thread's part of the arrays, and of two numbers in place of grid indices."""
    kernel = module.function("kernel")
    numbers = (*kernel.grid_vars, *(e.Var("unused", I64) for _ in range(2 - len(kernel.grid_vars))))
    return Function("work", (*kernel.params, *numbers), rewrite(kernel.body, aligned), "device")


def launched(work):
    """A module whose entry runs `work` in every thread of a few blocks, on the thread's own part of the arrays."""
    params = tuple(e.Var(var.name, var.type) for var in work.params[:-2])
    thread = e.Cast(intrinsic_call("gpu.thread_idx.x"), I64)
    block = e.Cast(intrinsic_call("gpu.block_idx.x"), I64)
    number = e.Binary("add", e.Binary("mul", block, e.Const(THREADS, I64), I64), thread, I64)
    start = e.Binary("mul", number, e.Const(ARRAY_ELEMENTS, I64), I64)
    own = [e.Binary("add", var, start, var.type) if isinstance(var.type, PointerType) else var for var in params]
    body = s.Evaluate(e.Call("work", (*own, thread, block), None))
    outer = tuple(e.Var(var.name, var.type) for var in params)
    launch = s.Launch("kernel", (e.Const(BLOCKS, I64),), outer, None, (e.Const(THREADS, I64),))
    kernel = Function("kernel", params, body, "kernel")
    return Module((work, kernel, Function("main", outer, launch, "host")), "main")


@quick
@given(modules(), st.integers(0, 3))
def test_threads_of_a_launch_compute_what_they_compute_one_by_one(module, seed):
    work = as_device(module)
    count = BLOCKS * THREADS
    given_values = [arguments(seed + 10 * number) for number in range(count)]
    arrays, scalars = [value for value in given_values[0] if isinstance(value, np.ndarray)], given_values[0][-2:]
    together = [np.concatenate([values[i] for values in given_values]) for i in range(len(arrays))]
    one_by_one = [array.copy() for array in together]
    for number in range(count):
        parts = [array[number * ARRAY_ELEMENTS : (number + 1) * ARRAY_ELEMENTS] for array in one_by_one]
        run_module(Module((work,), "work"), [*parts, *scalars, number % THREADS, number // THREADS])
    run_module(launched(work), [*together, *scalars])
    for expected, found in zip(one_by_one, together, strict=True):
        assert found.tobytes() == expected.tobytes()


SYNC = 'call("gpu.syncthreads", type=None)'


@quick
@given(st.lists(st.integers(1, 63), min_size=1, max_size=4), st.data())
def test_a_lost_barrier_is_found(distances, data):
    """Threads write a cell each, meet, read that of a thread `distance` further, meet, and so on."""
    lines = ["s: i32[64] @ shared", "x: i32 = cast(t, i32)"]
    for distance in distances:
        lines += ["s[t] = x", SYNC, f"x = s[(t + {distance}) % 64] + i32(1)", SYNC]
    body = "\n".join([*lines[:-1], "p[t] = x"])
    out = np.zeros(64, np.int32)
    run_kernel(body, "p: ~i32", [out], block=(64,))
    assert (out == (np.arange(64) + sum(distances)) % 64 + len(distances)).all()
    lost = data.draw(st.integers(0, body.count(SYNC) - 1))
    parts = body.split(SYNC)
    without = SYNC.join(parts[: lost + 1]) + "pass" + SYNC.join(parts[lost + 1 :])
    with pytest.raises(DataRace):
        run_kernel(without, "p: ~i32", [out], block=(64,))


@quick
@given(st.integers(1, 32), st.integers(0, 40), st.integers(0, 9))
def test_an_index_beyond_an_array_is_found_whichever_thread_has_it(threads, start, extra):
    out = np.zeros(threads + start + extra, np.float32)
    run_kernel(f"p[t + {start}] = 1.0", "p: ~f32", [out], block=(threads,))
    with pytest.raises(Exception, match=rf"thread \({threads - 1}, 0, 0\).*p has {out.nbytes} bytes"):
        run_kernel(f"p[t + {start + extra + 1}] = 1.0", "p: ~f32", [out], block=(threads,))
