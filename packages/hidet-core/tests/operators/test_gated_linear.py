"""Gated linear units: what they mean, and what they are taken apart to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from hidet.errors import DTypeError, OptionError, ShapeError

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_linear_scales_another_one(
    activation: str, dtype: str, apply: Any, decomposed: Any, make: Any, assert_matches: Any
) -> None:
    gate, up = make((7, 5), dtype, seed=1), make((7, 5), dtype, seed=2)
    gate_bias, up_bias = make((2, 7), dtype, seed=3)
    for shape in ((5,), (2, 3, 5)):
        x = make(shape, dtype)
        for biases in ((None, None), (gate_bias, None), (gate_bias, up_bias)):
            linears = [F.linear(x, weight, bias) for weight, bias in zip((gate, up), biases, strict=True)]
            right = ACTIVATIONS[activation](linears[0]) * linears[1]
            given = (x, gate, up, *biases)
            assert_matches(apply("gated_linear", *given, activation=activation), right, scale=16)
            assert_matches(decomposed("gated_linear", *given, activation=activation)[0], right, scale=16)


def test_what_does_not_fit_is_named(apply: Any, make: Any) -> None:
    x, weight = make((3, 5)), make((7, 5))
    with pytest.raises(OptionError, match=r"activation is 'swish', expected one of silu, gelu"):
        apply("gated_linear", x, weight, weight, activation="swish")
    with pytest.raises(ShapeError, match=r"rows of gate against rows of up: extents 7 and 6 differ"):
        apply("gated_linear", x, weight, make((6, 5)))
    with pytest.raises(ShapeError, match=r"up_bias against rows of gate: extents 5 and 7 differ"):
        apply("gated_linear", x, weight, weight, None, make((5,)))
    with pytest.raises(DTypeError, match=r"gated_linear"):
        apply("gated_linear", make((3, 5), "int32", 0, 9), make((7, 5), "int32", 0, 9), make((7, 5), "int32", 0, 9))
