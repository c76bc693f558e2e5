"""Scripts compute their values where Python does: from left to right, once, and names keep what they are given."""

import numpy as np

from hidet import lang
from hidet.gpu.testing.launches import script_results
from hidet.ir.interpret import run_module
from hidet.lang import address, as_tensor_pointer, i64, register_tensor, spatial, tensor_pointer
from hidet.lang.module import module_of

# ruff: noqa: F841  # scripts use the forms that are tested


@lang.script
def nxt(p: ~i64) -> i64:
    p[0] = p[0] + 1
    return p[0]


# ---- parts of tensors, pointers and shapes ---------------------------------------------------------------------------


def test_a_part_stays_where_it_began():
    @lang.script
    def main(o: i64[4]):
        s = 1
        q = o[s:]
        s = 2
        q[0] = 5
        while s < 3:
            cell = o[s + 1 :]
            s += 1
            cell[0] = 7

    assert script_results(main) == [0, 5, 0, 7]


def test_a_part_that_began_at_a_parameter_stays_there():
    @lang.script
    def main(o: i64[4], n: i64):
        q = o[n:]
        n = 3
        q[0] = n

    out = np.zeros(4, np.int64)
    run_module(module_of([main]), [out, 1], entry="main")
    assert out.tolist() == [0, 3, 0, 0]


def test_two_buffers_take_turns():
    @lang.script
    def main(o: i64[4]):
        buffers = register_tensor(i64, [2, 2])
        s = 0
        for i in range(2):
            current = buffers[s]
            s = 1 - s
            current[0] = i + 1
            current[1] = i + 3
        o[0] = buffers[0, 0]
        o[1] = buffers[0, 1]
        o[2] = buffers[1, 0]
        o[3] = buffers[1, 1]

    assert script_results(main) == [1, 3, 2, 4]


def test_a_tensor_behind_a_pointer_stays_there():
    @lang.script
    def main(o: i64[4]):
        p = ~o[2]
        a = as_tensor_pointer(p, i64, [2])
        p = p - 2
        a[0] = 7
        p[0] = 1

    assert script_results(main) == [1, 0, 7, 0]


def test_a_part_behind_a_late_pointer_stays_there():
    @lang.script
    def main(o: i64[4]):
        a = tensor_pointer(i64, [2])
        a = ~o[0]
        part = a[1:]
        a = ~o[2]
        part[0] = 5
        a[0] = 6

    assert script_results(main) == [0, 5, 6, 0]


def test_a_shape_keeps_its_extents():
    @lang.script
    def main(o: i64[4]):
        w = 2
        a = as_tensor_pointer(~o[0], i64, [2, w])
        w = 1
        a[1, 0] = 7
        o[0] = a.shape[1]

    assert script_results(main) == [2, 0, 7, 0]


def test_where_a_part_begins_is_computed_once():
    @lang.script
    def main(o: i64[4]):
        q = o[nxt(~o[0]) :]
        q[0] = 4
        q[1] = q.shape[0]

    assert script_results(main) == [1, 4, 3, 0]


# ---- tuples, lists, dictionaries and loops over them -----------------------------------------------------------------


def test_containers_keep_what_they_were_made_of():
    @lang.script
    def main(o: i64[8]):
        x = 1
        x += 0
        pair = (o[0], x)
        listed = [o[k] + x for k in range(2)]
        named = {"a": x, "b": {"c": o[0]}}
        o[0] = 7
        x = 5
        o[1] = pair[0] * 10 + pair[1]
        o[2] = listed[0]
        o[3] = named["a"]
        o[4] = named["b"]["c"]
        o[5] = x

    assert script_results(main, 8) == [7, 1, 1, 1, 0, 5, 0, 0]


def test_lists_grow_by_what_values_are_then():
    @lang.script
    def main(o: i64[4]):
        found = []
        for k in lang.meta.range(2):
            found.append(o[0] + k)
            o[0] = 5
        o[1] = found[0]
        o[2] = found[1]

    assert script_results(main) == [5, 0, 6, 0]


def test_items_of_loops_at_build_time_are_read_before_the_first_turn():
    @lang.script
    def main(o: i64[4]):
        x = 3
        for a in (x, o[1]):
            x += 4
            o[1] = 9
            o[2] = o[2] * 10 + a
        o[0] = x

    assert script_results(main) == [11, 9, 30, 0]


def test_functions_in_scripts_and_lambdas_keep_their_arguments():
    @lang.script
    def main(o: i64[4]):
        def cleared(pair):
            o[0] = 0
            return pair[0]

        def set_to(v):
            o[0] = v
            return v

        o[0] = 4
        o[1] = cleared((o[0], 1))
        o[0] = 3
        o[2] = (lambda v: set_to(8) + v)(o[0])
        o[3] = sum([set_to(2) + v for v in (o[0], 1)])

    assert script_results(main) == [2, 4, 11, 13]


def test_variables_change_places():
    @lang.script
    def main(o: i64[4]):
        a = 1
        b = 2
        p = ~a
        q = address(b)
        a, b = b, a
        o[0] = a
        o[1] = b
        o[2] = p[0]
        o[3] = q[0]

    assert script_results(main) == [2, 1, 2, 1]


def test_the_target_of_a_loop_in_a_function_is_its_own():
    @lang.script
    def main(o: i64[4]):
        def fill():
            for x in range(3):
                o[x] = x

        x = 7
        x += 0
        fill()
        o[3] = x

    assert script_results(main) == [0, 1, 2, 7]


# ---- calls with an effect --------------------------------------------------------------------------------------------


def test_what_stands_left_of_a_call_is_read_before_it():
    @lang.script
    def main(o: i64[8]):
        def get():
            return o[0]

        def inc():
            o[0] += 1
            return o[0]

        o[1] = get() + inc()
        o[2] = o[0] * 10 + inc()
        pair = (o[0], inc())
        o[3] = pair[0]
        o[4] = [o[0], inc()][0]
        first, second = o[0], inc()
        o[5] = first
        o[0] += inc()
        o[inc() - 5] = o[0]

    assert script_results(main, 8) == [12, 1, 12, 2, 3, 4, 0, 11]


def test_what_stands_left_of_a_call_of_a_script_is_read_before_it():
    @lang.script
    def main(o: i64[4]):
        o[1] = o[0] * 10 + nxt(~o[0])
        o[2] = nxt(~o[0]) * 10 + nxt(~o[0])

    assert script_results(main) == [3, 1, 23, 0]


def test_a_function_with_an_array_of_its_own_changes_nothing_else():
    @lang.script
    def main(o: i64[4]):
        def double(v):
            sums = register_tensor(i64, [1])
            sums[0] = v
            sums[0] += v
            return sums[0]

        o[1] = o[0] + double(o[2])

    assert [stmt.var.name for stmt in main.function.body.stmts if hasattr(stmt, "var")] == ["v", "sums"]


def test_calls_with_an_effect_are_made_once():
    @lang.script
    def main(o: i64[8]):
        p = ~o[0]
        pair = (nxt(p), 7)
        o[1] = pair[0]
        o[2] = pair[0] + pair[1]
        o[3] = (lambda v: 3)(nxt(p))
        i, j = spatial(4, 2).map(nxt(p))
        o[4] = i * 10 + j
        o.write([nxt(p) + 1], 9)
        unused = (nxt(p), 1)

    assert script_results(main, 8) == [5, 1, 8, 3, 11, 9, 0, 0]
