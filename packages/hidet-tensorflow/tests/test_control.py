"""Branches, loops and lists of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hidet

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: nox -s tensorflow")


def rows(rng: np.random.Generator) -> list[Any]:
    return [rng.standard_normal((3, 4)).astype(np.float32)]


def test_a_condition_on_data_chooses_while_the_model_runs(check) -> None:
    compiled = check(lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: (x * 2, x[0]), lambda: (x - 1, x[1])), rows)
    assert compiled.report().nodes.control == 1


def test_a_condition_on_known_sizes_chooses_at_once(check) -> None:
    compiled = check(lambda x: tf.cond(tf.shape(x)[1] > 3, lambda: x * 2, lambda: x - 1), rows)
    assert compiled.report().nodes.control == 0


@pytest.mark.parametrize("chosen", [-1, 0, 1, 2, 7])
def test_an_index_of_no_branch_means_the_last(chosen) -> None:
    @tf.function
    def function(index: Any, x: Any) -> Any:
        return tf.switch_case(index, [lambda: x, lambda: x * 2, lambda: x * 3])

    compiled = hidet.compile(function, [tf.TensorSpec((), tf.int32), tf.TensorSpec((2,))])
    x = np.ones(2, np.float32)
    assert compiled(np.int32(chosen), x).tolist() == function(tf.constant(chosen), x).numpy().tolist()


def test_a_loop_runs_until_data_end_it(check) -> None:
    def function(x: Any) -> Any:
        return tf.while_loop(lambda i, a: tf.reduce_sum(a) < 100.0, lambda i, a: (i + 1, a * a + 1), (0, x))

    check(function, rows)


def test_a_loop_that_counts_knows_how_often_it_runs(check) -> None:
    def function(x: Any) -> Any:
        return tf.while_loop(lambda i, a: i < 25, lambda i, a: (i + 1, a * 0.5 + tf.cast(i, a.dtype)), (2, x))

    check(function, rows)


def test_a_loop_over_rows_stacks_its_results(check) -> None:
    def function(x: Any) -> Any:
        sums = tf.scan(lambda total, row: total + row, x)
        return tf.map_fn(lambda row: tf.reduce_sum(row) * row, x), sums

    check(function, rows, strict=False)


def test_a_list_grows_in_a_loop_that_data_end(check) -> None:
    def function(x: Any) -> Any:
        made, count = tf.TensorArray(x.dtype, size=0, dynamic_size=True, element_shape=(4,)), tf.constant(0)

        def body(count: Any, x: Any, made: Any) -> Any:
            return count + 1, x + 1, made.write(count, x[0])

        count, x, made = tf.while_loop(lambda n, x, _: tf.reduce_sum(x) < 50, body, (count, x, made))
        return count, made.stack()

    check(function, rows)


def test_a_carried_tensor_may_grow(check) -> None:
    def function(x: Any) -> Any:
        return tf.while_loop(
            lambda i, a: i < 3,
            lambda i, a: (i + 1, tf.concat([a, a[:1] * 2], 0)),
            (0, x),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, 4])),
        )

    check(function, rows)


def test_lists_are_written_and_read_in_any_order(check) -> None:
    def function(x: Any) -> Any:
        made = tf.TensorArray(x.dtype, size=3, element_shape=(4,), clear_after_read=False)
        made = made.write(2, x[0]).write(0, x[1]).write(1, x[2])
        return made.read(0), made.stack(), made.gather([2, 1]), made.concat()

    check(function, rows, strict=False)


def test_a_list_that_a_loop_reads_while_it_fills_it_is_carried(check) -> None:
    def function(x: Any) -> Any:
        made = tf.TensorArray(x.dtype, size=6, element_shape=(4,), clear_after_read=False)

        def body(i: Any, made: Any) -> Any:
            return i + 1, made.write(i, made.read(i) + x[i] * 2)

        return tf.while_loop(lambda i, made: i < 6, body, (tf.constant(0), made))[1].stack()

    check(function, lambda rng: [rng.standard_normal((6, 4)).astype(np.float32)], strict=False)


def test_lists_are_taken_apart_and_put_together(check) -> None:
    def function(x: Any) -> Any:
        raw = tf.raw_ops
        parts = tf.TensorArray(x.dtype, size=3, element_shape=(2, 4)).split(x, [2, 2, 2])
        spread = tf.TensorArray(x.dtype, size=6, element_shape=(4,)).scatter([4, 1, 0, 5, 2, 3], x)
        pushed = raw.EmptyTensorList(element_shape=[4], max_num_elements=-1, element_dtype=x.dtype)
        for row in range(3):
            pushed = raw.TensorListPushBack(input_handle=pushed, tensor=x[row])
        pushed, last = raw.TensorListPopBack(input_handle=pushed, element_shape=[4], element_dtype=x.dtype)
        rest = raw.TensorListStack(input_handle=pushed, element_shape=[4], element_dtype=x.dtype)
        return parts.stack(), parts.concat(), spread.stack(), last, rest

    compiled = check(function, lambda rng: [rng.standard_normal((6, 4)).astype(np.float32)], strict=False)
    assert compiled.report().nodes.eager == 0


def test_functions_that_functions_call_are_written_out(check) -> None:
    @tf.function
    def inner(x: Any) -> Any:
        return tf.nn.relu(x), x + 1

    @tf.function
    def outer(x: Any) -> Any:
        a, b = inner(x)
        return inner(a * b)

    check(outer, rows)


def test_a_loop_holds_variables() -> None:
    weight = tf.Variable(np.random.default_rng(3).standard_normal((4, 4)).astype(np.float32))

    @tf.function
    def function(x: Any) -> Any:
        return tf.while_loop(lambda i, a: i < 20, lambda i, a: (i + 1, tf.tanh(a @ weight)), (0, x))[1]

    compiled = hidet.compile(function, tf.TensorSpec((None, 4)))
    (x,) = rows(np.random.default_rng(0))
    np.testing.assert_allclose(compiled(x), function(x), rtol=0, atol=1e-5)
    assert compiled.report().nodes.fallback == 0
