"""The committed polynomials are those that the derivation gives, and are as exact as the code relies on."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from hidet.cpu.math import coefficients

mpmath = pytest.importorskip("mpmath")
SCRIPT = Path(__file__).parents[2] / "tools" / "derive_coefficients.py"
# Relative error of a result that a polynomial's own error may cause: half an ulp and less.
LIMITS = {"single": -24, "short": -28, "double": -53}


@pytest.fixture(scope="module")
def tool():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPT.parent)
        module = importlib.import_module(SCRIPT.stem)
    mpmath.mp.dps = 50
    return module


@pytest.mark.parametrize("name", ["EXP", "LOG", "SIN", "TANH"])
def test_deriving_again_gives_the_same_polynomials(name, tool):
    polynomial = next(p for p in tool.polynomials() if p.name == name)
    for level in polynomial.degrees:
        derived, error = tool.derive(polynomial, level)
        assert derived == getattr(coefficients, name)[level]
        assert error < LIMITS[level]
