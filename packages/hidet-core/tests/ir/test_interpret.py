"""The interpreter of programs."""

import numpy as np
import pytest

from hidet import dtypes
from hidet.cuda.intrinsics import INTRINSICS
from hidet.errors import LaunchError, UnsupportedOp
from hidet.ir import expr as e
from hidet.ir import stmt as s
from hidet.ir.func import Function, Module
from hidet.ir.interpret import run_module
from hidet.ir.parser import parse_module


def program(text, externals=""):
    return parse_module(f'module(entry="main"{externals})\n{text}')


def host(body, parameters="p: ~f32, n: i64"):
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return program(f"@host\ndef main({parameters}):\n{lines}\n")


def floats(*values):
    return np.array(values, np.float32)


def test_a_launch_with_threads_runs_its_kernel_once_a_thread():
    module = parse_module(
        'module(entry="main")\n'
        "@kernel\ndef k(p: ~f32):\n    b = grid()\n    t: i64 = cast(call('gpu.thread_idx.x', type=i32), i64)\n"
        "    p[b * 32 + t] = cast(b * 100 + t, f32)\n"
        "@host\ndef main(p: ~f32):\n    launch('k', [2], [p], block=[32])\n",
        INTRINSICS,
    )
    out = np.zeros(64, np.float32)
    run_module(module, [out])
    assert out.tolist() == [*range(32), *range(100, 132)]


def test_a_launch_runs_its_kernel_for_every_index_of_the_grid():
    module = program(
        "@kernel\ndef k(p: ~f32, n: i64):\n    i, j = grid()\n    p[i * n + j] = cast(i * 10 + j, f32)\n"
        "@host\ndef main(p: ~f32, n: i64):\n    launch('k', [2, n], [p, n])\n"
    )
    out = np.zeros(6, np.float32)
    run_module(module, [out, 3])
    assert out.tolist() == [0, 1, 2, 10, 11, 12]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("for i in range(n):\n    p[i] = 1.0", [1, 1, 1, 1]),
        ("for i in range(n, start=-1, step=2):\n    p[i + 1] = 1.0", [1, 0, 1, 0]),
        ("for i in unroll(4):\n    p[i] = p[i] + cast(i, f32)", [0, 1, 2, 3]),
        ("for i in range(n):\n    if i == 2:\n        break\n    p[i] = 1.0", [1, 1, 0, 0]),
        ("for i in range(n):\n    if i == 2:\n        continue\n    p[i] = 1.0", [1, 1, 0, 1]),
        ("i: i64 = 0\nwhile i < n:\n    p[i] = 2.0\n    i = i + 3", [2, 0, 0, 2]),
        ("if n > 3:\n    p[0] = 1.0\nelse:\n    p[1] = 1.0", [1, 0, 0, 0]),
        ("p[0] = 1.0\nreturn\np[1] = 1.0", [1, 0, 0, 0]),
        ("q: ~f32 = p + 1\nq[1] = 5.0\n(address(p, 3))[0] = 7.0", [0, 0, 5, 7]),
        ("store(p, [1], f32x2(3.0))", [0, 3, 3, 0]),
        ("store(p, [1], f32x3(3.0), mask=load(p, [0], f32x3) < load(p, [1], f32x3))", [0, 0, 0, 0]),
        ("p[0] = extract(broadcast(2.0, 4) * f32x4(3.0), 1)", [6, 0, 0, 0]),
        ("store(p, [0], shuffle(f32x2(1.0), f32x2(2.0), [3, 0, 0, 2]))", [2, 1, 1, 2]),
        ("p[0] = bitcast(i32(1065353216), f32)", [1, 0, 0, 0]),
        ("p[0] = call('fma', 2.0, 3.0, 4.0, type=f32)", [10, 0, 0, 0]),
        ("p[0] = p[100] if n < 0 else 1.0", [1, 0, 0, 0]),
        ("p[0] = 1.0 if n < 0 and p[100] > 0.0 else 2.0", [2, 0, 0, 0]),
        ("t: f32x2[2, 2] @ local\nt[1, 0] = f32x2(4.0)\nstore(p, [2], t[1, 0])", [0, 0, 4, 4]),
        ("t: strided(f32[2, 2], [1, 2]) @ local\nt[0, 1] = 4.0\np[0] = (address(t, 0, 0))[2]", [4, 0, 0, 0]),
    ],
)
def test_statements_and_expressions_do_what_they_say(body, expected):
    out = np.zeros(4, np.float32)
    run_module(host(body), [out, 4])
    assert out.tolist() == expected


def test_masked_reads_leave_memory_outside_alone():
    body = "m: boolx4 = load(p, [0], f32x4) > f32x4(1.0)\nstore(p, [0], load(p, [2], f32x4, mask=m), mask=m)"
    out = floats(2, 3, 0, 0)
    run_module(host(body), [out, 4])
    assert out.tolist() == [0, 0, 0, 0]


def test_tables_of_addresses_lead_to_memory():
    module = host("p: ~f32 = bitcast(table[0], ~f32)\np[1] = 2.0\ntable[1] = bitcast(p + 1, i64)", "table: ~i64")
    data = np.zeros(2, np.float32)
    table = np.array([data.ctypes.data, 0])
    run_module(module, [table], reachable=[data])
    assert data.tolist() == [0, 2]
    assert table[1] == data.ctypes.data + 4
    with pytest.raises(LaunchError, match="lies in no known memory"):
        run_module(module, [np.array([12345, 0])])


def test_addresses_of_local_memory_lead_back_to_it():
    body = """
t: f32[2] @ local
word: i64 = bitcast(address(t, 1), i64)
q: ~f32 @ local = bitcast(word, ~f32 @ local)
q[0] = 5.0
p[0] = t[1]
"""
    out = np.zeros(4, np.float32)
    run_module(host(body), [out, 4])
    assert out[0] == 5


def test_an_array_without_elements_begins_somewhere():
    module = host("p[0] = bitcast(address(x, 0, 0), i64)", "n: i64, x: f32[n, 4], p: ~i64")
    x, place = np.zeros((0, 4), np.float32), np.zeros(1, np.int64)
    run_module(module, [0, x, place])
    assert place[0] == x.ctypes.data


def test_memory_may_be_read_as_another_type():
    module = host("q: ~u8 = cast(p, ~u8)\nq[3] = u8(64)", "p: ~f32")
    out = np.zeros(1, np.float32)
    run_module(module, [out])
    assert out[0] == 2.0


def test_buffers_are_indexed_by_their_own_shape_and_strides():
    text = "@host\ndef main(a: strided(f32[n, 2], [1, n]), n: i64):\n    a[2, 1] = 1.0\n"
    out = np.zeros(6, np.float32)
    run_module(program(text), [out, 3])
    assert out.tolist() == [0, 0, 0, 0, 0, 1]


def test_functions_return_values_and_modules_link():
    library = parse_module('module(entry="twice")\n@device\ndef twice(x: f32) -> f32:\n    return x * 2.0\n')
    module = host("p[0] = call('twice', p[0], type=f32)\ninvoke('other', [p])")
    other = parse_module('module(entry="other")\n@host\ndef other(p: ~f32):\n    p[1] = 9.0\n')
    out = floats(3, 0)
    run_module(module, [out, 0], linked=[library, other])
    assert out.tolist() == [6, 9]
    assert run_module(library, [floats(4)[0]]) == 8


def test_a_local_that_nothing_wrote_is_nan():
    out = np.zeros(2, np.float32)
    run_module(host("x: f32\nt: f32[1] @ local\np[0] = x\np[1] = t[0]"), [out, 0])
    assert np.isnan(out).all()


def test_a_bool_in_memory_is_any_byte_that_is_not_zero():
    out = np.zeros(2, np.float32)
    flags = np.array([2, 0], np.uint8).view(np.bool_)
    run_module(host("for i in range(2):\n    p[i] = 1.0 if f[i] else 3.0", "p: ~f32, f: ~bool"), [out, flags])
    assert out.tolist() == [1, 3]


def test_an_expression_with_shared_parts_takes_linear_time():
    x = e.Var("x", dtypes.f32)
    total = x
    for _ in range(100):
        total = e.Binary("add", total, total, dtypes.f32)
    function = Function("main", (x,), s.Return(total), result=dtypes.f32)
    assert run_module(Module((function,), "main"), [1.0]) == np.float32(2.0**100)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("p[n] = 1.0", r"in main, `p\[n\] = 1.0`: p has 16 bytes, but 1 x f32 are accessed at byte 16"),
        ("p[-1] = 1.0", "accessed at byte -4"),
        ("x: f32 = extract(load(p, [1], f32x4), 0)", "4 x f32 are accessed at byte 4"),
        ("t: f32[4, 4] @ local\nt[0, 4] = 1.0", r"t is accessed at \(0, 4\): axis 1 has 4 elements"),
        ("q: ~f32 = pointer(0, ~f32)\nq[0] = 1.0", "a null pointer to f32 is followed"),
        ("assert n < 0, 'n is negative'", "`: n is negative$"),
        ("launch('k', [n], [p])", "'k' is not linked"),
    ],
)
def test_errors_name_the_function_and_the_statement(body, message):
    with pytest.raises(LaunchError, match=message):
        run_module(host(body), [np.zeros(4, np.float32), 4])


def test_errors_in_kernels_name_the_grid_index():
    module = program(
        "@kernel\ndef k(p: ~f32):\n    i = grid()\n    p[i] = 1.0\n"
        "@host\ndef main(p: ~f32):\n    launch('k', [3], [p])\n"
    )
    with pytest.raises(LaunchError, match=r"in k\[2\], `p\[i\] = 1.0`: p has 8 bytes"):
        run_module(module, [np.zeros(2, np.float32)])


def test_unknown_intrinsics_and_wrong_arguments_are_refused():
    with pytest.raises(UnsupportedOp, match="'warp_shuffle' is neither a function nor an intrinsic"):
        run_module(host("call('warp_shuffle', n, type=i64)"), [np.zeros(1, np.float32), 1])
    with pytest.raises(LaunchError, match=r"main takes 2 arguments \(p, n\), got 1"):
        run_module(host("pass"), [np.zeros(1, np.float32)])
    with pytest.raises(LaunchError, match="array p must be contiguous and writeable"):
        run_module(host("pass"), [np.zeros((4, 4), np.float32)[:, 0], 1])
    with pytest.raises(LaunchError, match="the module has no function 'mian'"):
        run_module(host("pass"), [], entry="mian")
