"""Operators and forms of them that ONNX's own suite does not test, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from hidet.errors import ImportFailed, UnsupportedOp

Make = Callable[..., onnx.ModelProto]
Run = Callable[..., Any]
F32 = np.float32


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


@pytest.fixture
def apply(make_model: Make, run: Run) -> Callable[..., Any]:
    """`apply(operator, inputs, constants, **attributes)`: the result of one node, compiled.

    inputs: arrays by name; constants: those of them that are initialisers. None is an absent input.
    """

    def call(
        operator: str, inputs: dict[str, Any], constants: tuple[str, ...] = (), opset: int = 21, **attributes: Any
    ) -> Any:
        *_, name = operator.rsplit(".", 1)
        domain = operator.removesuffix(name).rstrip(".")
        node = helper.make_node(
            name,
            [key if array is not None else "" for key, array in inputs.items()],
            ["y"],
            domain=domain,
            **attributes,
        )
        given = {key: array for key, array in inputs.items() if array is not None}
        model = make_model(
            [node],
            {key: (array.dtype, array.shape) for key, array in given.items() if key not in constants},
            ["y"],
            {key: array for key, array in given.items() if key in constants},
            opset=opset,
            domains={domain: 5 if domain == "ai.onnx.ml" else 1} if domain else None,
        )
        return run(model, **{key: array for key, array in given.items() if key not in constants})

    return call


EQUATIONS = {
    "ij,jk->ik": ((3, 4), (4, 5)),
    "ij,kj": ((3, 4), (5, 4)),
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
    "bhid,bhjd->bhij": ((2, 2, 3, 4), (2, 2, 5, 4)),
    "i,j->ij": ((3,), (4,)),
    "i,i->": ((3,), (3,)),
    "ii->i": ((4, 4),),
    "ii": ((4, 4),),
    "iij,j->i": ((3, 3, 4), (4,)),
    "ijk->kj": ((2, 3, 4),),
    "...ij,...jk->...ik": ((2, 3, 4), (4, 5)),
    "...i,...i->...": ((2, 3, 4), (3, 4)),
    "b...,bc->c...": ((2, 3, 4), (2, 5)),
    "ab,bc,cd->ad": ((2, 3), (3, 4), (4, 5)),
    "ab,ab,ab->ba": ((2, 3), (2, 3), (2, 3)),
    "ab,cd->": ((2, 3), (4, 5)),
}


@pytest.mark.parametrize("equation", EQUATIONS)
@pytest.mark.thorough(every=2)
def test_einsum_is_that_of_numpy(equation: str, apply: Any) -> None:
    arrays = {f"x{n}": random(*shape, seed=n) for n, shape in enumerate(EQUATIONS[equation])}
    np.testing.assert_allclose(
        apply("Einsum", arrays, equation=equation), np.einsum(equation, *arrays.values()), rtol=1e-4, atol=1e-5
    )


def test_an_equation_that_does_not_fit_is_refused(apply: Any) -> None:
    with pytest.raises(ImportFailed, match="names other axes than the 2"):
        apply("Einsum", {"a": random(2, 3)}, equation="ijk->i")
    with pytest.raises(ImportFailed, match="no operand has"):
        apply("Einsum", {"a": random(2, 3)}, equation="ij->ik")


@pytest.mark.parametrize("n", (1, 7, 67, 72, 400))
@pytest.mark.thorough(every=2)
def test_transforms_of_any_length_are_those_of_numpy(n: int, apply: Any) -> None:
    x = random(2, n, 2)
    whole = np.fft.fft(x[..., 0] + 1j * x[..., 1])
    got = apply("DFT", {"x": x})
    np.testing.assert_allclose(got, np.stack([whole.real, whole.imag], -1), rtol=1e-4, atol=1e-4 * n**0.5)
    half = np.fft.rfft(x[..., 0])
    got = apply("DFT", {"x": x[..., :1]}, onesided=1)
    np.testing.assert_allclose(got, np.stack([half.real, half.imag], -1), rtol=1e-4, atol=1e-4 * n**0.5)
    bins = x[:, : n // 2 + 1]
    back = np.fft.irfft(bins[..., 0] + 1j * bins[..., 1], n)
    length = np.array(n)
    got = apply("DFT", {"x": bins, "n": length}, ("n",), inverse=1, onesided=1)
    np.testing.assert_allclose(got[..., 0], back, rtol=1e-4, atol=1e-4)


def test_a_short_time_transform_is_one_of_each_windowed_frame(apply: Any) -> None:
    signal, window = random(2, 50, 1), np.hanning(16).astype(F32)
    got = apply("STFT", {"x": signal, "step": np.array(8), "window": window, "n": np.array(16)}, ("step", "n"))
    frames = np.stack([signal[:, s : s + 16, 0] for s in range(0, 35, 8)], 1) * window
    expected = np.fft.rfft(frames)
    np.testing.assert_allclose(got, np.stack([expected.real, expected.imag], -1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", (2, 4, 8))
@pytest.mark.parametrize("has_zero", (False, True))
def test_packed_weights_are_spread_out_block_by_block(bits: int, has_zero: bool, apply: Any) -> None:
    n, k, block = 5, 50, 16
    blocks, generator = -(-k // block), np.random.default_rng(0)
    codes = generator.integers(0, 2**bits, (n, blocks * block), dtype=np.uint8)
    zeros = generator.integers(0, 2**bits, (n, blocks), dtype=np.uint8)

    def packed(values: Any) -> Any:
        per = 8 // bits
        values = np.pad(values, [(0, 0), (0, -values.shape[1] % per)]).reshape(n, -1, per)
        return np.bitwise_or.reduce(values << (np.arange(per, dtype=np.uint8) * np.uint8(bits)), axis=-1)

    scales, a = random(n, blocks), random(3, k)
    given = {"a": a, "b": packed(codes).reshape(n, blocks, -1), "s": scales.reshape(-1)}
    if has_zero:
        given["z"] = packed(zeros).reshape(-1)
    got = apply("com.microsoft.MatMulNBits", given, ("b", "s", "z"), K=k, N=n, bits=bits, block_size=block)
    middle = zeros if has_zero else np.full((n, blocks), 2 ** (bits - 1))
    weights = (codes.reshape(n, blocks, block) - middle[..., None].astype(F32)) * scales[..., None]
    np.testing.assert_allclose(got, a @ weights.reshape(n, -1)[:, :k].T, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("round_mode", ("up", "down", "nearest"))
def test_powers_of_two_are_rounded_as_asked(round_mode: str, apply: Any) -> None:
    x = np.array([1.0, 1.2, 1.5, 1.7, 3.9, 0.0, np.inf, np.nan, 3e38], F32)
    expected = {
        "up": [1, 2, 2, 2, 4, 2.0**-127, np.nan, np.nan, 2.0**127],
        "down": [1, 1, 1, 1, 2, 2.0**-127, np.nan, np.nan, 2.0**127],
        "nearest": [1, 1, 2, 2, 4, 2.0**-127, np.nan, np.nan, 2.0**127],
    }
    got = apply("Cast", {"x": x}, opset=24, to=onnx.TensorProto.FLOAT8E8M0, round_mode=round_mode)
    np.testing.assert_array_equal(got.astype(np.float64), expected[round_mode])


@pytest.mark.parametrize("opset", (7, 9, 10))
def test_early_upsampling_repeats_elements(opset: int, apply: Any) -> None:
    x = random(1, 2, 3, 2)
    scales = np.array([1, 1, 2, 3], F32)
    if opset == 7:
        got = apply("Upsample", {"x": x}, opset=7, scales=scales.tolist())
    else:
        got = apply("Upsample" if opset == 9 else "Resize", {"x": x, "s": scales}, ("s",), opset=opset)
    np.testing.assert_array_equal(got, x.repeat(2, 2).repeat(3, 3))


def test_one_import_resizes_images_of_any_size(make_model: Make, run: Run) -> None:
    node = helper.make_node(
        "Resize", ["x", "", "s"], ["y"], mode="nearest", coordinate_transformation_mode="asymmetric"
    )
    model = make_model([node], {"x": (F32, [1, 1, "h", "w"])}, ["y"], {"s": np.array([1, 1, 2, 0.5], F32)})
    for shape in ((1, 1, 3, 4), (1, 1, 5, 10)):
        x = random(*shape)
        np.testing.assert_array_equal(run(model, x=x), x.repeat(2, 2)[..., ::2])


def test_resized_integers_are_rounded(apply: Any) -> None:
    x = np.array([[0, 255]], np.uint8)
    got = apply("Resize", {"x": x, "r": None, "s": np.array([1, 2], F32)}, ("s",), mode="linear")
    assert got.tolist() == [[0, 64, 191, 255]]


def test_pooled_regions_name_their_image(apply: Any) -> None:
    x = random(2, 3, 6, 6)
    boxes = np.array([[1, 0, 0, 5, 5], [0, 2, 2, 3, 3]], F32)
    got = apply("MaxRoiPool", {"x": x, "boxes": boxes}, pooled_shape=[1, 1])
    expected = np.stack([x[1].max((1, 2)), x[0, :, 2:4, 2:4].max((1, 2))])
    np.testing.assert_array_equal(got[..., 0, 0], expected)


def test_random_numbers_with_a_seed_are_the_same_with_every_import(apply: Any) -> None:
    for operator, attributes in (
        ("RandomNormal", {"mean": 5.0, "scale": 0.1}),
        ("RandomUniform", {"low": 4.5, "high": 5.5}),
    ):
        first, again = (apply(operator, {}, shape=[1000], seed=3.0, **attributes) for _ in range(2))
        other = apply(operator, {}, shape=[1000], **attributes)
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()
        assert abs(first.mean() - 5) < 0.05


def test_classes_are_drawn_by_their_weights(apply: Any) -> None:
    x = np.log(np.array([[0.1, 0.6, 0.3], [1e-9, 1e-9, 1.0]], F32))
    got = apply("Multinomial", {"x": x}, sample_size=4000, seed=1.0)
    assert got.shape == (2, 4000) and got.dtype == np.int32
    np.testing.assert_allclose(np.bincount(got[0], minlength=3) / 4000, [0.1, 0.6, 0.3], atol=0.04)
    assert (got[1] == 2).all()


def test_features_are_scaled_and_combined(apply: Any) -> None:
    x = random(4, 3)
    got = apply("ai.onnx.ml.Scaler", {"x": x}, offset=[1.0, 2.0, 3.0], scale=[0.5])
    np.testing.assert_allclose(got, (x - F32([1, 2, 3])) * F32(0.5), rtol=1e-6)
    got = apply(
        "ai.onnx.ml.LinearRegressor",
        {"x": x},
        coefficients=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        intercepts=[0.5, -0.5],
        targets=2,
    )
    np.testing.assert_allclose(got, x @ F32([[1, 4], [2, 5], [3, 6]]) + F32([0.5, -0.5]), rtol=1e-4, atol=1e-5)


def test_labels_are_looked_up_and_nan_is_one(apply: Any) -> None:
    x = np.array([1.5, np.nan, 7.0, -2.0], F32)
    got = apply(
        "ai.onnx.ml.LabelEncoder",
        {"x": x},
        keys_floats=[-2.0, float("nan"), 1.5],
        values_int64s=[10, 20, 30],
        default_int64=-1,
    )
    assert got.tolist() == [30, 20, -1, 10]


def test_a_product_of_packed_weights_in_another_order_is_refused(apply: Any) -> None:
    given = {
        "a": random(1, 16),
        "b": np.zeros((2, 1, 8), np.uint8),
        "s": random(2),
        "z": None,
        "g": np.zeros(16, np.int32),
    }
    with pytest.raises(UnsupportedOp, match="g_idx"):
        apply("com.microsoft.MatMulNBits", given, K=16, N=2, bits=4, block_size=16)


def test_ngrams_of_words_are_counted_and_weighted(apply: Any) -> None:
    x = np.array([["a", "b", "a", "b", "c"], ["b", "z", "a", "b", "b"]], object)
    pool = {
        "pool_strings": ["a", "b", "a", "b", "b", "a"], "ngram_counts": [0, 2], "ngram_indexes": [1, 0, 3, 2],
        "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 1,
    }  # fmt: skip
    counts = [[2, 2, 1, 2], [3, 1, 1, 2]]
    assert apply("TfIdfVectorizer", {"x": x}, mode="TF", **pool).tolist() == counts
    weights = [0.5, 2.0, 3.0, 4.0]
    placed = np.array([2.0, 0.5, 4.0, 3.0])
    expected = np.minimum(counts, 1) * placed
    np.testing.assert_array_equal(apply("TfIdfVectorizer", {"x": x}, mode="IDF", weights=weights, **pool), expected)


def tree_attributes(modes: list[int]) -> dict[str, Any]:
    """Two trees: of nodes 0 and 1, with leaves 0 to 2, and of node 2, with leaves 3 and 4."""
    from onnx import numpy_helper

    return {
        "nodes_featureids": [0, 1, 1],
        "nodes_splits": numpy_helper.from_array(np.array([0.5, -0.5, 1.0], F32)),
        "nodes_modes": numpy_helper.from_array(np.array(modes, np.uint8)),
        "nodes_truenodeids": [1, 0, 3],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_falsenodeids": [2, 1, 4],
        "nodes_falseleafs": [1, 1, 1],
        "nodes_missing_value_tracks_true": [1, 0, 0],
        "leaf_targetids": [0, 1, 0, 0, 1],
        "leaf_weights": numpy_helper.from_array(np.array([1, 2, 4, 8, 16], F32)),
        "tree_roots": [0, 2],
        "n_targets": 2,
    }


@pytest.mark.parametrize(("kind", "fold"), ((0, "mean"), (1, "sum"), (2, "min"), (3, "max")))
def test_trees_are_followed_to_their_leaves(kind: int, fold: str, apply: Any) -> None:
    x = np.array([[0.0, -1.0], [0.0, 3.0], [2.0, 0.0], [np.nan, -1.0]], F32)
    first, second = [0, 1, 2, 0], [3, 4, 3, 3]
    weights, targets = np.array([1, 2, 4, 8, 16], F32), np.array([0, 1, 0, 0, 1])
    got = apply("ai.onnx.ml.TreeEnsemble", {"x": x}, aggregate_function=kind, **tree_attributes([0, 1, 0]))
    for row, leaves in enumerate(zip(first, second, strict=True)):
        for target in (0, 1):
            found = [weights[leaf] for leaf in leaves if targets[leaf] == target]
            if fold in ("sum", "mean"):
                assert got[row, target] == sum(found) / (2 if fold == "mean" else 1)
            elif found:
                assert got[row, target] == (min if fold == "min" else max)(found)


def test_trees_with_missing_nodes_are_refused(apply: Any) -> None:
    attributes = {**tree_attributes([0, 0, 0]), "nodes_truenodeids": [7, 0, 3]}
    with pytest.raises(ImportFailed, match="do not exist"):
        apply("ai.onnx.ml.TreeEnsemble", {"x": np.zeros((1, 2), F32)}, **attributes)
    circle = {**tree_attributes([0, 0, 0]), "nodes_truenodeids": [0, 0, 3]}
    with pytest.raises(ImportFailed, match="circle"):
        apply("ai.onnx.ml.TreeEnsemble", {"x": np.zeros((1, 2), F32)}, **circle)


def test_absurd_sizes_are_refused(apply: Any) -> None:
    huge = np.array([1, 1, 2.0**19, 2.0**19], F32)
    with pytest.raises(ImportFailed, match="no machine holds"):
        apply("Resize", {"x": random(1, 1, 4, 4), "r": None, "s": huge}, ("s",))
    for length in (2**40, 100_003):
        with pytest.raises(UnsupportedOp, match="prime factor"):
            apply("DFT", {"x": random(1, 4, 1), "n": np.array(length)}, ("n",))
    with pytest.raises(ImportFailed, match="negative extent"):
        apply("RandomNormal", {}, shape=[2, -1])


@pytest.mark.parametrize("ratio", [1e1, 1e6])
def test_batch_norms_in_training_keep_their_digits_where_means_are_large(
    make_model: Make, run: Run, ratio: float
) -> None:
    """red-team.md goal 5."""
    names = ["x", "scale", "bias", "mean", "variance"]
    node = helper.make_node("BatchNormalization", names, ["y", "m", "v"], training_mode=1, epsilon=1e-9)
    random = np.random.default_rng(0)
    x = (random.standard_normal((16, 3, 50)) + ratio).astype(np.float32)
    parameters = [random.uniform(0.5, 2, 3).astype(np.float32) for _ in names[1:]]
    arrays = dict(zip(names, [x, *parameters], strict=True))
    model = make_model([node], {k: (a.dtype, a.shape) for k, a in arrays.items()}, ["y", "m", "v"], opset=15)
    wide, (scale, bias, old_mean, old_variance) = (
        x.astype(np.float64),
        [p[:, None].astype(np.float64) for p in parameters],
    )
    mean, variance = (v[:, None] for v in (wide.mean((0, 2)), wide.var((0, 2))))
    wanted = [
        (wide - mean) / np.sqrt(variance + 1e-9) * scale + bias,
        (0.9 * old_mean + 0.1 * mean)[:, 0],
        (0.9 * old_variance + 0.1 * variance)[:, 0],
    ]
    for got, right in zip(run(model, **arrays), wanted, strict=True):
        assert np.abs(got - right).max() <= 1e-6 * np.abs(right).max()
