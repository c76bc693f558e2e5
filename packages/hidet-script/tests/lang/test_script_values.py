"""Scripts compute what their text says: run by the interpreter."""

import math

import numpy as np
import pytest

from hidet import lang
from hidet.errors import ScriptError
from hidet.ir.interpret import run_module
from hidet.lang import (
    as_tensor_pointer,
    attrs,
    bitcast,
    cast,
    column_major,
    deref,
    exp,
    f16,
    f32,
    f32x4,
    f64,
    fma,
    grid,
    i8,
    i32,
    i64,
    if_then_else,
    load,
    printf,
    register_tensor,
    repeat,
    row_major,
    spatial,
    static,
    store,
    tensor,
    truncdiv,
    u32,
    unroll,
    view,
)
from hidet.lang.module import module_of

# ruff: noqa: B007, C416, E731  # scripts use the forms that are tested


def run(script, *arguments):
    """The result of a script, by the interpreter."""
    return run_module(module_of([script]), list(arguments), entry=script.name)


def zeros(*shape):
    return np.zeros(shape, np.float32)


def test_numbers_are_added_and_returned():
    @lang.script
    def add(a: f32, b: f32) -> f32:
        return a + b

    assert run(add, 3.0, 4.0) == 7.0


def test_loops_count_as_pythons_do():
    @lang.script
    def main(out: i64[7, 8]):
        for n in unroll(3):
            out[0, n] = n
        for n in range(2, 8):
            out[1, n] = n
        for n in range(1, 8, 3):
            out[2, n] = n
        for n in range(7, 0, -2):
            out[3, n] = n
        for i, j in grid(2, 3):
            out[4 + i, j] = i * 10 + j
        start = 1
        start += 1
        for n in range(start, start + 3):
            start = 100
            out[6, n] = n

    out = np.zeros((7, 8), np.int64)
    run(main, out)
    assert out[:4].tolist() == [
        [0, 1, 2, 0, 0, 0, 0, 0],
        [0, 0, 2, 3, 4, 5, 6, 7],
        [0, 1, 0, 0, 4, 0, 0, 7],
        [0, 1, 0, 3, 0, 5, 0, 7],
    ]
    assert out[4:6, :3].tolist() == [[0, 1, 2], [10, 11, 12]]
    assert out[6].tolist() == [0, 0, 2, 3, 4, 0, 0, 0]


def test_while_break_and_continue():
    @lang.script
    def main(n: i32) -> i32:
        total = 0
        i = 0
        while True:
            i += 1
            if i > n:
                break
            if i % 3 == 0:
                continue
            total += i
        return total

    assert run(main, 10) == sum(i for i in range(1, 11) if i % 3)


@pytest.mark.parametrize("value", [-1, 0, 3, 5, 7])
def test_conditions(value):
    @lang.script
    def main(x: i32) -> i32:
        small = 0 <= x < 5
        if (small and x != 3) or x == 7:
            return 1
        elif not small:
            return 2
        else:
            return 3 if x else 4

    expected = 1 if (0 <= value < 5 and value != 3) or value == 7 else 2 if not 0 <= value < 5 else 3
    assert run(main, value) == expected


def test_variables_keep_their_type_and_parameters_can_change():
    @lang.script
    def main(x: f16, n: i32) -> f32:
        total: f32 = 0
        while n > 0:
            total += x
            n -= 1
        a, b = total, total * 2.0
        a, b = b, a
        return a - b

    assert run(main, 0.5, 3) == 1.5


def test_integers_divide_downwards_or_toward_zero():
    @lang.script
    def main(a: i32, b: i32, out: i32[4]):
        out[0] = a // b
        out[1] = a % b
        out[2] = truncdiv(a, b)
        out[3] = cast(cast(a, f32) / b, i32)

    out = np.zeros(4, np.int32)
    run(main, -7, 2, out)
    assert out.tolist() == [-4, 1, -3, -3]


def test_types_meet_in_the_wider_one():
    @lang.script
    def main(a: i8, b: i32, c: i64, h: f16, x: f32, out: f64[5]):
        out[0] = a + b
        out[1] = b + c
        out[2] = h * x
        out[3] = a * 0.5
        out[4] = h + 1

    out = np.zeros(5)
    run(main, 100, 100, 2**40, 0.5, 3.0, out)
    assert out.tolist() == [200, 2**40 + 100, 1.5, 50, 1.5]


def test_functions_of_the_thread_ir_and_of_python():
    @lang.script
    def main(x: f32, out: f32[6]):
        out[0] = exp(x)
        out[1] = math.sqrt(x)
        out[2] = max(x, 1.0, x * 2)
        out[3] = min([x, 1.0])
        out[4] = abs(-x) + fma(x, x, 1.0)
        out[5] = if_then_else(x > 1.0, x**2, int(x))

    out = zeros(6)
    run(main, 2.0, out)
    np.testing.assert_allclose(out, [math.e**2, 2**0.5, 4, 1, 7, 4], rtol=1e-6)


def test_python_functions_of_the_user_build_expressions():
    def norm(values):
        total = 0
        for value in values:
            total = total + value * value
        return total

    same = lambda a, b: a == b

    @lang.script
    def main(x: f32[3]) -> f32:
        flag = same(x[0], x[1])
        return norm([x[i] for i in range(3)]) + (1.0 if flag else 0.0)

    assert run(main, np.array([2, 2, 3], np.float32)) == 18


def test_python_functions_of_the_user_read_elements_and_parts():
    def difference(matrix, at):
        row = matrix[at - 1]
        return row[0] - matrix[at, at]

    def last(matrix, at):
        return matrix[at:, 1][0]

    @lang.script
    def main(x: f32[3, 2], at: i32) -> f32:
        return difference(x, at) * last(x, at)

    assert run(main, np.array([[1, 2], [3, 5], [8, 13]], np.float32), 1) == (1 - 5) * 5

    def listed(values):
        return list(values)

    with pytest.raises(ScriptError, match="TypeError: 'TensorValue' object is not iterable"):

        @lang.script
        def walks(x: f32[3]) -> f32:
            return max(listed(x))


def test_tensors_slices_and_layouts():
    @lang.script
    def main(x: f32[2, 4], out: f32[8]):
        copy = register_tensor(f32, [2, 4])
        columns = tensor("register", "float32", layout=column_major(2, 4))
        for i, j in grid(2, 4):
            copy[i, j] = x[i, j]
            columns[i, j] = x[i, j]
        row = copy[1]
        part = copy[:, 2:]
        out[0] = row[3]
        out[1] = part[1, 0] + part.shape[1]
        flat = as_tensor_pointer(~columns[0, 0], f32, [8])
        out[2] = flat[1]
        part[0, 1] += 100
        out[3] = copy[0, 3]
        out[4] = x.read([5, 0])
        x.write([0, 9], 5.0)
        out[5] = x.read([1, 0], protected=False)
        out[6] = part.shape[0]

    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    out = zeros(8)
    run(main, x, out)
    assert out[:7].tolist() == [7, 8, 4, 103, 0, 4, 2]


def test_pointers():
    @lang.script
    def main(p: ~f32, n: i32):
        q = p + n
        q[0] = 1.0
        r = q - 1
        r[0] = 2.0
        p[0] = deref(p, 1) + 10.0
        words = cast(p, ~u32)
        words[2] = bitcast(f32(1.0), u32)
        square = view(p, f32[2, 2])
        square[1, 1] = square[1, 0] + 5.0

    values = zeros(4)
    run(main, values, 2)
    assert values.tolist() == [12, 2, 1, 6]


def test_vectors():
    @lang.script
    def main(x: ~f32):
        v = load(x, 0, f32x4)
        store(x, 4, v * 2.0 + f32x4(1.0))
        x[8] = v[3]

    x = np.arange(9, dtype=np.float32)
    run(main, x)
    assert x[4:].tolist() == [1, 3, 5, 7, 3]


def test_every_worker_does_its_tasks():
    mapping = spatial(2, 3) * repeat(2, 1)

    @lang.script
    def main(out: i32[4, 3], order: i64[6]):
        for worker in range(6):
            for i, j in mapping.on(worker):
                out[i, j] = worker
            for task in repeat(2).on(0):
                order[worker] += task
            for task in spatial(6).on(worker, bind_tuple=True):
                order[worker] += task[0]
            for i, j in mapping.on(worker):
                if i % 2 == 0:
                    continue
                order[worker] += 100

    out, order = np.zeros((4, 3), np.int32), np.zeros(6, np.int64)
    run(main, out, order)
    assert out.tolist() == [[0, 1, 2], [0, 1, 2], [3, 4, 5], [3, 4, 5]]
    assert order.tolist() == [101, 102, 103, 104, 105, 106]


def test_build_time_loops_and_static_values():
    table = [("a", 1.5), ("b", 2.5)]

    @lang.script
    def main(out: f32[4]):
        total = static(0)
        for name, value in table:
            total = total + 1
            out[total] = value
            if name == "b":
                out[0] = total
        pairs = {name: value for name, value in table}
        out[3] = pairs["a"]

    out = zeros(4)
    run(main, out)
    assert out.tolist() == [2, 1.5, 2.5, 1.5]


def test_printf(capsys):
    @lang.script
    def main(x: f32, n: i32):
        printf("%d: %.1f\n", n, x)

    run(main, 1.5, 3)
    assert capsys.readouterr().out == "3: 1.5\n"


def test_sizes_among_the_parameters_in_annotations_kept_as_text():
    @lang.script
    def total(x: "f32[m, n]", m: i32, n: i32) -> "f32":  # noqa: F821  # parameters
        s = 0.0
        for i, j in grid(m, n):
            s += x[i, j]
        return s

    assert run(total, np.ones((2, 3), np.float32), 2, 3) == 6


def test_a_kernel_swizzles_shared_memory_without_two_elements_meeting():
    layout = row_major(8, 8).swizzle(1, 0)

    @lang.script
    def main(x: f32[8, 8], out: f32[8, 8]):
        attrs.func_kind = "public"
        tile = tensor("local", f32, [8, 8], layout)
        for i, j in grid(8, 8):
            tile[i, j] = x[i, j]
        for i, j in grid(8, 8):
            out[j, i] = tile[i, j]

    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    out = zeros(8, 8)
    run(main, x, out)
    np.testing.assert_array_equal(out, x.T)


def test_a_loop_runs_over_what_its_bounds_were():
    @lang.script
    def main(out: i64[4]):
        n = 3
        for i in range(n):
            n = 100
            out[i] = i + n
        worker = 1
        for i in (spatial(2) * repeat(2)).on(worker):
            worker = 0
            out[3] += i

    out = np.zeros(4, np.int64)
    run(main, out)
    assert out.tolist() == [100, 101, 102, 5]


def test_long_loops_are_not_written_out():
    @lang.script
    def main(out: i64[1]):
        for i in unroll(5000):
            out[0] += i

    out = np.zeros(1, np.int64)
    run(main, out)
    assert out[0] == 5000 * 4999 // 2
    with pytest.raises(ScriptError, match="10000000 items known at build time is too long"):

        @lang.script
        def endless(out: i64[1]):
            for i in static(range(10_000_000)):
                out[0] = i


def test_a_loop_changes_a_variable_of_its_name():
    @lang.script
    def main(i: i64, out: i64[3]):
        last = -1
        for last in range(3):
            out[last] = i
        for i in range(0):
            pass
        out[0] = last
        out[1] = i

    out = np.zeros(3, np.int64)
    run(main, 7, out)
    assert out.tolist() == [2, 7, 7]


def test_a_loop_does_not_hide_a_counter():
    with pytest.raises(ScriptError, match="i has another meaning around the loop"):

        @lang.script
        def main(out: i64[3]):
            for i in range(3):
                for i in range(2):  # the mistake that is tested
                    out[i] = i


def test_errors_of_python_functions_say_where_they_were_called():
    def broken(value):
        raise RuntimeError("no such table")

    with pytest.raises(RuntimeError, match="no such table") as caught:

        @lang.script
        def main(out: i64[3]):
            out[0] = broken(3)

    assert "called while script main was translated" in caught.value.__notes__[0]
    assert "out[0] = broken(3)" in caught.value.__notes__[1]
