"""Creation and casts against torch; random numbers against the published test vectors and their distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hidet import dtypes
from hidet.compute.definition import compute, single
from hidet.compute.evaluate import evaluate
from hidet.dims import symbol
from hidet.errors import DTypeError, ShapeError
from hidet.graph import GraphBuilder, TensorType
from hidet.ir import build
from hidet.operators.random import SPECS, philox

torch = pytest.importorskip("torch")

ALL = ("float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool")


@pytest.mark.parametrize("name", ALL)
def test_full_agrees_with_torch(name: str, apply: Any, assert_matches: Any) -> None:
    for shape in ((), (3,), (2, 0), (2, 3)):
        for value in (0, 1, 2.5 if "float" in name else 1):
            ours = apply("full", shape=shape, value=value, dtype=dtypes.dtype(name))
            assert_matches(ours, torch.full(shape, value, dtype=getattr(torch, name)))


def test_full_of_a_symbolic_size_becomes_its_value(operators: Any) -> None:
    s = symbol("s0")
    definition = operators["full"].define(shape=(s,), value=2 * s, dtype=dtypes.f32, device="cpu")
    (result,) = evaluate(definition, [], {"s0": 3})
    assert result.tolist() == [6.0, 6.0, 6.0]


@pytest.mark.parametrize(
    ("start", "stop", "step", "name"),
    (
        (0, 7, 1, "int64"),
        (3, 20, 4, "int32"),
        (5, -6, -3, "int64"),
        (4, 4, 1, "int64"),
        (0, 1, 0.1, "float32"),
        (-1.5, 3.2, 0.7, "float64"),
        (0, 9, 2, "float16"),
        (10, 0, -2.5, "float32"),
    ),
)
def test_arange_agrees_with_torch(
    start: float, stop: float, step: float, name: str, apply: Any, assert_matches: Any
) -> None:
    ours = apply("arange", start=start, stop=stop, step=step, dtype=dtypes.dtype(name))
    assert_matches(ours, torch.arange(start, stop, step, dtype=getattr(torch, name)))


def test_arange_over_symbolic_sizes_has_symbolic_length(operators: Any) -> None:
    s = symbol("s0", lower=1)
    builder = GraphBuilder(operators)
    assert builder.emit("arange", start=0, stop=s).tensor.shape == (s,)
    assert builder.emit("arange", start=s, stop=3 * s, step=1).tensor.shape == (2 * s,)


def test_linspace_eye_and_tri_agree_with_torch(apply: Any, assert_matches: Any) -> None:
    for start, stop, steps in ((0, 1, 11), (-3.0, 5.0, 2), (2.0, 7.0, 1), (1.0, 1.0, 4), (0.0, 1.0, 0)):
        ours = apply("linspace", start=start, stop=stop, steps=steps)
        assert_matches(ours, torch.linspace(start, stop, steps))
    assert_matches(apply("eye", rows=3, columns=5), torch.eye(3, 5))
    assert_matches(apply("eye", rows=4, dtype=dtypes.i64), torch.eye(4, dtype=torch.int64))
    for offset in (-2, 0, 1):
        theirs = torch.ones((4, 5), dtype=torch.bool).tril(offset)
        assert_matches(apply("tri", rows=4, columns=5, offset=offset), theirs)


def test_creation_lands_on_the_device_asked_for(operators: Any) -> None:
    builder = GraphBuilder(operators)
    assert builder.emit("full", shape=(2,), value=0, device="cuda:1").type == TensorType(
        dtypes.f32, (2,), device="cuda:1"
    )


@pytest.mark.parametrize("source", ALL)
@pytest.mark.parametrize("target", ALL)
def test_cast_agrees_with_torch(source: str, target: str, apply: Any, make: Any, assert_matches: Any) -> None:
    x = make((3, 7), source, 0, 1 if source == "bool" else 100)
    assert_matches(apply("cast", x, dtype=dtypes.dtype(target)), x.to(getattr(torch, target)))


def test_cast_keeps_nan_infinity_and_rounds_to_even(apply: Any, assert_matches: Any) -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-8, 65520.0, 2049.0, 2051.0, 1e-45, 257.0])
    for name in ("float16", "bfloat16", "float64", "bool"):
        assert_matches(apply("cast", x, dtype=dtypes.dtype(name)), x.to(getattr(torch, name)))


def test_bitcast_reads_the_same_bits(apply: Any, assert_matches: Any) -> None:
    x = torch.tensor([1.0, -2.5, 0.0, float("inf")])
    assert_matches(apply("bitcast", x, dtype=dtypes.i32), x.view(torch.int32))
    assert_matches(apply("bitcast", x.half(), dtype=dtypes.bf16), x.half().view(torch.bfloat16))


@pytest.mark.parametrize("target", ["uint8", "int16", "float16", "float32", "int64", "float64", "bool"])
@pytest.mark.parametrize("source", ["uint8", "bfloat16", "int32", "float64", "bool"])
def test_bitcast_splits_and_joins_elements(
    source: str, target: str, apply: Any, assert_matches: Any, make: Any
) -> None:
    """defects.md, left to torch: view.dtype. Of types of other sizes."""
    x = make((3, 16), source, 0, 2)
    assert_matches(apply("bitcast", x, dtype=dtypes.dtype(target)), x.view(getattr(torch, target)))


def test_bitcast_refuses_parts_of_elements(apply: Any) -> None:
    with pytest.raises(ShapeError, match="3 elements of f32 are no whole number of elements of i64"):
        apply("bitcast", torch.zeros(2, 3), dtype=dtypes.i64)
    with pytest.raises(ShapeError, match="without axes"):
        apply("bitcast", torch.zeros(()), dtype=dtypes.f16)
    with pytest.raises(DTypeError, match="whole bytes that are not complex, got c64"):
        apply("bitcast", torch.zeros(2), dtype=dtypes.c64)


def test_philox_gives_the_published_words() -> None:
    # Known-answer vectors of the authors' Random123 distribution (philox4x32, 10 rounds).
    vectors = (
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    )
    for counter, key, expected in vectors:
        words = philox(*[[build.const(word, dtypes.u32) for word in given] for given in (counter, key)])
        got = [evaluate(single((), compute("word", (), lambda w=word: w)), [])[0].item() for word in words]
        assert got == list(expected)


SEED, OFFSET = torch.tensor(1234), torch.tensor(7)


@pytest.mark.parametrize("name", ("float32", "float16", "bfloat16", "float64"))
def test_uniform_and_normal_numbers_have_their_distributions(name: str, apply: Any) -> None:
    dtype, count = dtypes.dtype(name), 20000
    uniform = apply("rand", SEED, OFFSET, shape=(count,), dtype=dtype).double()
    assert uniform.min() >= 0 and uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.01 and abs(uniform.var() - 1 / 12) < 0.003
    normal = apply("randn", SEED, OFFSET, shape=(count,), dtype=dtype).double()
    assert abs(normal.mean()) < 0.03 and abs(normal.var() - 1) < 0.05
    assert abs((normal.abs() < 1).double().mean() - 0.6827) < 0.015


def test_random_numbers_depend_on_seed_offset_and_stream_only(apply: Any) -> None:
    def draw(shape: Any, **changes: Any) -> Any:
        given = {"seed": SEED, "offset": OFFSET, "stream": 0} | changes
        return apply("rand", given["seed"], given["offset"], shape=shape, stream=given["stream"])

    base = draw((6, 4))
    assert torch.equal(base, draw((6, 4)))
    assert torch.equal(base.reshape(24), draw((24,)))
    for change in ({"seed": SEED + 1}, {"offset": OFFSET + 1}, {"stream": 1}):
        assert (draw((6, 4), **change) != base).double().mean() > 0.9
    assert (draw((6, 4), offset=OFFSET + 1) != draw((6, 4), stream=1)).double().mean() > 0.9


def test_a_random_state_is_drawn_from_numpys_generator() -> None:
    (spec,) = [spec for spec in SPECS if spec.name == "random_state"]
    assert spec.call is not None
    np.random.seed(5)
    first, second = (spec.call(attrs=spec.attrs({})) for _ in range(2))
    np.random.seed(5)
    assert spec.call(attrs=spec.attrs({})) == first != second
    assert [(part.dtype, part.shape) for part in first] == [(np.int64, ()), (np.int64, ())]


def test_random_integers_cover_their_range_evenly(apply: Any) -> None:
    x = apply("randint", SEED, OFFSET, low=-2, high=5, shape=(14000,))
    assert x.dtype == torch.int64
    counts = torch.bincount(x + 2, minlength=7)
    assert counts.shape == (7,) and (counts - 2000).abs().max() < 200
    wide = apply("randint", SEED, OFFSET, low=0, high=2**40, shape=(2000,))
    assert wide.min() >= 0 and 2**39 < wide.max() < 2**40
    with pytest.raises(ShapeError, match="no integers from 3 up to"):
        apply("randint", SEED, OFFSET, low=3, high=3, shape=(1,))


def test_bernoulli_follows_its_probabilities(apply: Any) -> None:
    p = torch.tensor([0.0, 0.25, 1.0])[:, None].expand(3, 8000)
    drawn = apply("bernoulli", p, SEED, OFFSET)
    assert drawn.dtype == torch.float32
    np.testing.assert_allclose(drawn.mean(1), [0.0, 0.25, 1.0], atol=0.02)
    assert apply("bernoulli", p, SEED, OFFSET, dtype=dtypes.boolean).dtype == torch.bool
