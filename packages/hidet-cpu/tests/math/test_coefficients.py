"""The committed polynomials are those that the derivation gives, and are as exact as the code relies on."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from hidet.cpu.math import coefficients

mpmath = pytest.importorskip("mpmath")
SCRIPT = Path(__file__).parents[2] / "tools" / "derive_coefficients.py"
# Relative error of a result that a polynomial's own error may cause: half an ulp and less.
LIMITS = {"single": -24, "short": -28, "double": -53}


@pytest.fixture(scope="module")
def tool():
    specification = importlib.util.spec_from_file_location("derive_coefficients", SCRIPT)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    # Dataclasses look their module up by name.
    sys.modules[module.__name__] = module
    specification.loader.exec_module(module)
    del sys.modules[module.__name__]
    mpmath.mp.dps = 50
    return module


@pytest.mark.parametrize("name", ["EXP", "LOG", "SIN", "TANH"])
def test_deriving_again_gives_the_same_polynomials(name, tool):
    polynomial = next(p for p in tool.polynomials() if p.name == name)
    for level in polynomial.degrees:
        derived, error = tool.derive(polynomial, level)
        assert derived == getattr(coefficients, name)[level]
        assert error < LIMITS[level]
