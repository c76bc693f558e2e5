"""Operators against TensorFlow, family by family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from hidet.errors import HidetError

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: nox -s tensorflow")

Make = Callable[[np.random.Generator], Sequence[Any]]


def floats(*shapes: tuple[int, ...]) -> Make:
    return lambda rng: [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def positive(*shapes: tuple[int, ...]) -> Make:
    return lambda rng: [(rng.random(shape) + 0.1).astype(np.float32) for shape in shapes]


def integers(low: int, high: int, *shapes: tuple[int, ...], dtype: Any = np.int32) -> Make:
    return lambda rng: [rng.integers(low, high, shape).astype(dtype) for shape in shapes]


def both(a: Make, b: Make) -> Make:
    return lambda rng: [*a(rng), *b(rng)]


def every(*functions: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: tuple(function(x) for function in functions)


_ONE = (3, 4)

ELEMENTWISE: dict[str, tuple[Callable[..., Any], Make]] = {
    "plain": (every(tf.abs, tf.sign, tf.negative, tf.square, tf.identity, tf.stop_gradient), floats(_ONE)),
    "rounding": (every(tf.round, tf.math.rint, tf.floor, tf.math.ceil), floats(_ONE)),
    "exponential": (every(tf.exp, tf.math.expm1, tf.math.sigmoid, tf.math.log_sigmoid, tf.tanh), floats(_ONE)),
    "logarithm": (every(tf.math.log, tf.math.log1p, tf.sqrt, tf.math.rsqrt, tf.math.reciprocal), positive(_ONE)),
    "trigonometric": (every(tf.sin, tf.cos, tf.tan, tf.atan, tf.sinh, tf.cosh, tf.asinh), floats(_ONE)),
    "special": (every(tf.math.erf, tf.math.erfc, tf.math.lgamma, tf.math.digamma, tf.math.bessel_i0e), positive(_ONE)),
    "activations": (every(tf.nn.relu, tf.nn.relu6, tf.nn.elu, tf.nn.selu, tf.nn.leaky_relu, tf.nn.silu), floats(_ONE)),
    "softplus": (every(tf.math.softplus, tf.nn.softsign, tf.nn.gelu), floats(_ONE)),
    "tests": (every(tf.math.is_nan, tf.math.is_inf, tf.math.is_finite, lambda x: x > 0), floats(_ONE)),
    "binary": (lambda x, y: (x + y, x - y, x * y, x / y, x // y, x % y), floats(_ONE, (3, 1))),
    "extremes": (lambda x, y: (tf.maximum(x, y), tf.minimum(x, y), tf.clip_by_value(x, -0.5, y)), floats(_ONE, _ONE)),
    "powers": (lambda x, y: (x**y, tf.math.squared_difference(x, y), tf.atan2(x, y)), positive(_ONE, _ONE)),
    "sum of many": (lambda x, y: tf.add_n([x, y, x]), floats(_ONE, _ONE)),
    "comparisons": (lambda x, y: (x < y, x <= y, x == y, x != y, (x > 0) & (y > 0)), floats(_ONE, (4,))),
    "choices": (lambda x, y: (tf.where(x > 0, x, y), tf.where(x[:, 0] > 0, x[:, 0], 0)), floats(_ONE, _ONE)),
    "whole numbers": (
        lambda x, y: (x // y, x % y, tf.truncatediv(x, y), tf.truncatemod(x, y), -x // y, x % -y),
        integers(1, 9, _ONE, _ONE),
    ),
    "bits": (
        lambda x, y: (
            tf.bitwise.bitwise_and(x, y),
            tf.bitwise.bitwise_xor(x, y),
            tf.bitwise.left_shift(x, y),
            tf.bitwise.right_shift(x, y),
            tf.bitwise.invert(x),
        ),
        integers(0, 8, _ONE, _ONE),
    ),
    "casts": (lambda x: (tf.cast(x, tf.int32), tf.cast(x, tf.bool), tf.cast(x, tf.int64)), floats(_ONE)),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elements_are_computed_as_tensorflow_does(name, check) -> None:
    function, make = ELEMENTWISE[name]
    check(function, make)


def test_functions_of_bessel_are_computed(check) -> None:
    special = tf.math.special
    named = (special.bessel_j0, special.bessel_j1, special.bessel_k0, special.bessel_k1e, special.bessel_y0)
    compiled = check(every(*named), positive(_ONE))
    assert compiled.report().nodes.eager == 0


def test_zero_makes_what_is_undefined_zero(check) -> None:
    def function(x: Any, y: Any) -> Any:
        x = tf.nn.relu(x)
        return tf.math.divide_no_nan(y, x), tf.math.xdivy(x, x), tf.math.xlogy(x, x), tf.math.multiply_no_nan(y / x, x)

    check(function, floats(_ONE, _ONE))


REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "sums": lambda x: (tf.reduce_sum(x, [0, 2]), tf.reduce_sum(x), tf.reduce_mean(x, -1, keepdims=True)),
    "extremes": lambda x: (tf.reduce_max(x, 1), tf.reduce_min(x, -1), tf.argmax(x, 1), tf.argmin(x, -1, tf.int32)),
    "products": lambda x: (tf.reduce_prod(x, 1), tf.math.cumprod(x, 1)),
    "truth": lambda x: (tf.reduce_any(x > 1, 1), tf.reduce_all(x > -1, -1)),
    "norms": lambda x: (tf.norm(x, axis=1), tf.nn.l2_loss(x), tf.nn.l2_normalize(x, -1), tf.math.reduce_std(x, 1)),
    "logarithms": lambda x: tf.reduce_logsumexp(x, 1),
    "scans": lambda x: (tf.cumsum(x, 1, exclusive=True), tf.cumsum(x, 2, reverse=True)),
    "softmax": lambda x: (tf.nn.softmax(x, 1), tf.nn.log_softmax(x)),
    "moments": lambda x: tf.nn.moments(x, [1, 2]),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_axes_are_reduced_as_tensorflow_does(name, check) -> None:
    check(REDUCTIONS[name], floats((3, 4, 5)))


def test_integers_have_a_whole_mean(check) -> None:
    check(lambda x: tf.reduce_mean(x, 1), integers(0, 9, (3, 4)))


def test_segments_are_reduced_whatever_their_order(check) -> None:
    def function(x: Any, ids: Any) -> Any:
        named = (tf.math.segment_sum, tf.math.segment_mean, tf.math.segment_max, tf.math.segment_prod)
        return tf.math.unsorted_segment_sum(x, ids, 5), *(segments(x, tf.sort(ids)) for segments in named)

    check(function, both(floats((6, 2)), integers(0, 4, (6,))), strict=False)


def test_rows_that_an_index_picks_are_reduced_by_segments(check) -> None:
    def function(x: Any, index: Any, ids: Any) -> Any:
        named = (tf.sparse.segment_sum, tf.sparse.segment_mean, tf.sparse.segment_sqrt_n)
        ids = tf.sort(ids)
        return *(reduce(x, index, ids) for reduce in named), *(
            reduce(x, index, ids, num_segments=6) for reduce in named
        )

    make = both(floats((6, 2)), both(integers(0, 6, (8,)), integers(0, 4, (8,))))
    compiled = check(function, make, strict=False)
    assert compiled.report().nodes.eager == 0


def test_numbers_find_their_places_among_sorted_ones(check) -> None:
    def function(x: Any, y: Any) -> Any:
        rows = tf.sort(tf.concat([x, y[:, :2]], 1))
        return tf.searchsorted(rows, y), tf.searchsorted(rows, y, side="right", out_type=tf.int64)

    compiled = check(function, floats((3, 7), (3, 4)), strict=False)
    assert compiled.report().nodes.eager == 0


def test_an_empty_segment_has_the_least_number(check) -> None:
    def function(x: Any) -> Any:
        ids = tf.constant([3, 1, 1])
        return tf.math.unsorted_segment_max(x, ids, 5), tf.math.unsorted_segment_min(x, ids, 5)

    check(function, integers(0, 9, (3, 2)), strict=False)


def test_elements_are_counted_in_bins(check) -> None:
    def function(x: Any, ids: Any) -> Any:
        whole = tf.math.bincount(ids, minlength=5, maxlength=5, axis=-1)
        flags = tf.math.bincount(ids, minlength=5, maxlength=5, axis=-1, binary_output=True)
        return whole, flags, tf.raw_ops.Bucketize(input=x, boundaries=[-1.0, 0.0, 0.5])

    check(function, both(floats((3, 4)), integers(0, 5, (3, 6))), strict=False)


PRODUCTS: dict[str, tuple[Callable[..., Any], Make]] = {
    "matrices": (lambda x, y: tf.matmul(x, y), floats((3, 4), (4, 5))),
    "transposed": (lambda x, y: tf.matmul(x, y, transpose_b=True), floats((3, 4), (3, 4))),
    "batches": (lambda x, y: (tf.matmul(x, y), tf.matmul(x, x, transpose_a=True)), floats((2, 3, 4), (2, 4, 5))),
    "einsum": (
        lambda x, y: (tf.einsum("bij,bjk->bik", x, y), tf.einsum("bij,bjk->ki", x, y)),
        floats((2, 3, 4), (2, 4, 5)),
    ),
    "tensordot": (lambda x, y: tf.tensordot(x, y[0], 1), floats((2, 3, 4), (2, 4, 5))),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_those_of_tensorflow(name, check) -> None:
    function, make = PRODUCTS[name]
    check(function, make)


SHAPES: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: (tf.reshape(x, [-1, 5]), tf.reshape(x, [tf.shape(x)[0], -1]), x[:, None], tf.shape(x)),
    "squeeze": lambda x: (tf.squeeze(x[:, :1], 1), tf.rank(x), tf.size(x)),
    "broadcast": lambda x: tf.broadcast_to(x[:, :1], tf.shape(x)),
    "slices": lambda x: (x[:, 1, ...], x[..., None, ::2], x[1:, :, -1], x[:, ::-1], x[0], x[..., -2:], x[:, 1:3]),
    "slice": lambda x: (tf.slice(x, [0, 1, 0], [-1, 2, 3]), tf.slice(x, [0, 0, 1], [2, -1, -1])),
    "parts": lambda x: (tf.split(x, 2, axis=1), tf.split(x, [1, -1, 2], axis=2), tf.unstack(x, axis=1)),
    "joined": lambda x: (tf.concat([x, x], 0), tf.concat([x, x], -1), tf.stack([x, x], 1), tf.tile(x, [2, 1, 3])),
    "order": lambda x: (tf.transpose(x, [2, 0, 1]), tf.reverse(x, [1]), tf.roll(x, 1, 1)),
    "padded": lambda x: (tf.pad(x, [[1, 0], [2, 1], [0, 0]]), tf.pad(x, [[0, 0], [2, 1], [1, 0]], constant_values=3)),
    "mirrored": lambda x: (
        tf.pad(x, [[0, 0], [2, 1], [1, 0]], "REFLECT"),
        tf.pad(x, [[1, 0], [2, 1], [0, 3]], "SYMMETRIC"),
    ),
    "diagonals": lambda x: (tf.linalg.band_part(x, 1, 0), tf.linalg.diag_part(x[..., :4]), tf.linalg.diag(x)),
    "filled": lambda x: (tf.zeros_like(x), tf.ones_like(x), tf.fill([tf.shape(x)[0], 2], 3.0), tf.eye(3)),
    "ranges": lambda x: (tf.range(tf.shape(x)[0]), tf.range(2.0, 5.0, 0.5)),
    "meshgrid": lambda x: tf.meshgrid(tf.range(3), tf.range(tf.shape(x)[0])),
    "largest": lambda x: tuple(tf.math.top_k(x, 3)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_elements_go_where_tensorflow_puts_them(name, check) -> None:
    check(SHAPES[name], floats((3, 4, 5)))


def test_a_shape_that_the_model_knows_is_taken_over(check) -> None:
    compiled = check(lambda x: tf.ensure_shape(x, [3, None, 5]) + 1, floats((3, 4, 5)))
    assert compiled.bundle.program.outputs[0].tensor.shape == (3, 4, 5)
    with pytest.raises(HidetError):
        compiled(np.ones((2, 4, 5), np.float32))


def test_evenly_spaced_numbers_end_where_they_should(check) -> None:
    check(lambda x: tf.linspace(x[0], x[1], 7), floats((2,)))


def test_positions_that_data_decide_are_read_while_the_model_runs(check) -> None:
    def function(x: Any, at: Any) -> Any:
        first = at[0]
        return x[:, first], x[:, first : first + 2], x[:, :first], tf.slice(x, [0, first, 0], [-1, 1, -1])

    check(function, both(floats((3, 4, 5)), integers(1, 3, (1,))))


def test_rows_are_gathered_along_any_axis_of_any_batch(check) -> None:
    def function(x: Any, at: Any) -> Any:
        plain = tf.gather(x, at, axis=1), tf.gather(x, at[:, 0], axis=2)
        batched = tf.gather(x, at, axis=1, batch_dims=1), tf.gather(x, at, axis=2, batch_dims=1)
        return *plain, *batched, tf.gather_nd(x, tf.stack([at, at], -1))

    check(function, both(floats((3, 4, 5)), integers(0, 3, (3, 2))))


def test_places_become_ones(check) -> None:
    def function(at: Any) -> Any:
        return tf.one_hot(at, 5), tf.one_hot(at, 5, axis=1), tf.one_hot(at, 4, on_value=7, off_value=2)

    check(function, integers(0, 5, (3, 2)))


def test_updates_are_scattered(check) -> None:
    def function(x: Any, updates: Any) -> Any:
        at = tf.constant([[2], [0]])
        new = tf.tensor_scatter_nd_update(x, at, updates), tf.tensor_scatter_nd_max(x, at, updates)
        return (
            *new,
            tf.tensor_scatter_nd_add(x, at, updates),
            tf.tensor_scatter_nd_sub(x, at, updates),
            tf.scatter_nd(at, updates, [5, 4]),
        )

    check(function, floats((3, 4), (2, 4)), strict=False)


def test_sequences_are_reversed_up_to_their_length(check) -> None:
    check(lambda x, n: tf.reverse_sequence(x, n, 1, 0), both(floats((3, 5, 2)), integers(0, 5, (3,))))


def test_what_is_kept_depends_on_data(check) -> None:
    def function(x: Any, ids: Any) -> Any:
        return tf.where(x > 0), tf.boolean_mask(x, x[:, 0] < 9), *tf.unique(ids)

    check(function, both(floats((3, 4)), integers(0, 4, (9,))), strict=False)


def test_losses_are_computed(check) -> None:
    def function(x: Any, classes: Any) -> Any:
        labels = tf.nn.softmax(x[:, ::-1])
        dense = tf.nn.softmax_cross_entropy_with_logits(labels, x)
        return dense, tf.nn.sparse_softmax_cross_entropy_with_logits(classes, x)

    check(function, both(floats((3, 5)), integers(0, 5, (3,))))
    check(
        lambda x, classes: tf.math.in_top_k(classes, x, 2), both(floats((3, 5)), integers(0, 5, (3,))), in_float64=False
    )


def test_older_versions_of_operators_are_known_as_well(check) -> None:
    def function(x: Any) -> Any:
        raw = tf.raw_ops
        square = x[:, :, :4]
        return (
            raw.MatrixDiag(diagonal=x),
            raw.MatrixDiagPart(input=square),
            raw.MatrixDiagPartV2(input=square, k=1, padding_value=0.0),
            raw.MatrixSetDiag(input=square, diagonal=x[:, :, 0] * 2),
            raw.ConjugateTranspose(x=x, perm=[2, 0, 1]),
            raw.InTopK(predictions=tf.cast(x[0], tf.float32), targets=[0, 3, 1, 2], k=2),
        )

    compiled = check(function, floats((3, 4, 5)), strict=False)
    assert compiled.report().nodes.eager == 0


def test_a_diagonal_is_written(check) -> None:
    check(lambda x, d: tf.linalg.set_diag(x, d), floats((3, 4, 5), (3, 4)), strict=False)
