"""Whole matrices against torch."""

from __future__ import annotations

from typing import Any

import pytest

from hidet.errors import ShapeError

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", ("float32", "float64", "float16", "bfloat16"))
def test_determinants_agree_with_torch(dtype: str, apply: Any, make: Any, assert_matches: Any) -> None:
    for shape in ((3, 3), (1, 1), (2, 0, 3, 3), (2, 3, 6, 6)):
        x = make(shape, dtype)
        expected = torch.linalg.det(x.double())
        bound = {"float32": 1e-4, "float64": 1e-10, "float16": 1e-2, "bfloat16": 1e-1}[dtype]
        got = apply("determinant", x)
        assert got.dtype == x.dtype
        torch.testing.assert_close(got.double(), expected, rtol=bound, atol=bound)


def test_a_singular_matrix_has_determinant_zero(apply: Any) -> None:
    assert apply("determinant", torch.zeros(3, 3)).item() == 0


def test_matrices_that_are_not_square_are_refused(apply: Any, make: Any) -> None:
    with pytest.raises(ShapeError, match="rows against columns"):
        apply("determinant", make((2, 3)))
