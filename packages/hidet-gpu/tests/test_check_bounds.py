"""Checks of indices in kernels."""

import numpy as np
import pytest

from hidet.errors import LaunchError, ScheduleError
from hidet.gpu.check_bounds import FAULT_WORDS, check_bounds
from hidet.gpu.testing.launches import kernel_module
from hidet.ir.func import Module
from hidet.ir.interpret import run_module
from hidet.ir.verify import verify_module


def run(body, parameters="a: f32[n], n: i64", count=32, functions=""):
    """What the array holds after a run with checks, and the error if there was one."""
    checked = check_bounds(kernel_module(body, parameters, functions=functions))
    verify_module(checked.module)
    data, words = np.zeros(count, np.float32), np.zeros(FAULT_WORDS, np.int32)
    run_module(checked.module, [data, count, words])
    return data.tolist(), checked.error(words.tolist())


def test_accesses_inside_change_nothing():
    data, error = run("if t < n:\n    a[t] = cast(t, f32)")
    assert data == list(range(32))
    assert error is None


@pytest.mark.parametrize(
    ("body", "thread", "text"),
    [
        ("a[t + 1] = 1.0", 31, r"a\[t \+ 1\]: index 32 of dim 0 is outside of its 32 elements"),
        ("a[t - 1] = 1.0", 0, r"a\[t - 1\]: index -1 of dim 0 is outside of its 32 elements"),
        ("a[t * 268435456] = 1.0", 1, r"a\[.*\]: index 268435456 of dim 0 is outside of its 32 elements"),
        ("a[0 - t * 1073741824 * 8] = 1.0", 1, r"a\[.*\]: index -8589934592 of dim 0 is outside of its 32 elements"),
        ("x: f32 = a[t * 2]", 16, r"a\[t \* 2\]"),
        ("x: f32x4 = load(a, [t * 4], f32x4)", 8, r"a\[t \* 4\]: index 35 of dim 0 is outside of its 32 elements"),
        (
            "s: f32[2, 4] @ shared\ns[t // 16, t % 16 // 3] = 1.0",
            12,
            r"s\[t // 16.*index 4 of dim 1 is .* its 4 elements",
        ),
        ("for i in range(cast(a[t + 30], i64)):\n    pass", 2, r"a\[t \+ 30\]"),
        ("if a[t + 9] > 1.0:\n    pass", 23, r"a\[t \+ 9\]"),
        ("i: i64 = t\nwhile a[i] == 0.0 and i < 40:\n    i = i + 40", 0, r"a\[i\]"),
    ],
)
def test_the_first_access_outside_is_reported(body, thread, text):
    _, error = run(body)
    assert error is not None
    with pytest.raises(LaunchError, match=rf"in kernel, block \(0, 0, 0\), thread \({thread}, 0, 0\): {text}"):
        raise error


@pytest.mark.parametrize(
    "body",
    [
        "x: f32 = a[t + 1] if t + 1 < n else 0.0",
        "x: bool = t > 0 and a[t - 1] == 0.0",
        "x: bool = t == 0 or a[t - 1] == 0.0",
        "q: ~f32 = address(a, t + 1)",
        "i: i64 = t\nwhile i < n and a[i] == 0.0:\n    i = i + 1",
        "i: i64 = t\nwhile i < n:\n    i = i + 1\n    if i % 2 == 0:\n        continue\n    if i > 20:\n        break",
    ],
)
def test_accesses_that_are_not_made_are_not_reported(body):
    assert run(body)[1] is None


def test_functions_that_kernels_call_are_checked():
    read = "@device\ndef read(a: f32[4], i: i64) -> f32:\n    return a[i]\n"
    _, error = run('x: f32 = call("read", a, t // 4, type=f32)', functions=read)
    assert error is not None
    assert "in read, block (0, 0, 0), thread (16, 0, 0): a[i]" in error.message


def test_a_module_that_is_linked_to_others_is_refused():
    module = kernel_module("a[t] = 1.0", "a: f32[32]")
    with pytest.raises(ScheduleError, match="linked to other"):
        check_bounds(Module(module.functions, module.entry, ("other",)))
