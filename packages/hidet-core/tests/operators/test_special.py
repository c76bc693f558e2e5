"""Special functions against references of 30 digits, and at their limits against torch."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from hidet import dtypes
from hidet.operators import all_operators

torch = pytest.importorskip("torch")
mp = pytest.importorskip("mpmath")

Function = Callable[..., Any]


def _scaled(function: Function, sign: int) -> Function:
    return lambda x: function(x) * mp.exp(sign * abs(x))


def _bessel(kind: str, order: int) -> Function:
    function = getattr(mp, f"bessel{kind}")
    return lambda x: function(order, x)


NEAR = (1e-9, 1e-3, 0.3, 0.999, 1.0, 1.5, 2.0, 3.9, 4.1, 7.9, 8.1, 20.0, 60.0)
BOTH = (*NEAR, *(-x for x in NEAR))
# operator -> reference, places, largest error in units of 2^-53 of the result; of what oscillates, of 1
UNARY: dict[str, tuple[Function, tuple[float, ...], float]] = {
    "bessel_i0": (_bessel("i", 0), BOTH, 4),
    "bessel_i1": (_bessel("i", 1), BOTH, 4),
    "bessel_i0e": (_scaled(_bessel("i", 0), -1), BOTH, 4),
    "bessel_i1e": (_scaled(_bessel("i", 1), -1), BOTH, 4),
    "bessel_k0": (_bessel("k", 0), NEAR, 6),
    "bessel_k1": (_bessel("k", 1), NEAR, 6),
    "bessel_k0e": (_scaled(_bessel("k", 0), 1), NEAR, 6),
    "bessel_k1e": (_scaled(_bessel("k", 1), 1), NEAR, 6),
    "bessel_j0": (_bessel("j", 0), BOTH, 4),
    "bessel_j1": (_bessel("j", 1), BOTH, 4),
    "bessel_y0": (_bessel("y", 0), NEAR, 4),
    "bessel_y1": (_bessel("y", 1), NEAR, 4),
    "spherical_bessel_j0": (lambda x: mp.sin(x) / x, BOTH, 8),
    "airy_ai": (mp.airyai, (-10.0, -6.1, -5.9, -4.1, -3.9, -1.1, -0.9, 0.0, 1.9, 2.1, 10.0, 20.0), 64),
    "erfcx": (lambda x: mp.exp(x * x) * mp.erfc(x), (-5.0, -1.0, -1e-6, 0.0, 0.999, 1.001, 2.999, 3.001, 9.0), 64),
    "ndtri": (lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1), (1e-14, 1e-6, 0.01, 0.125, 0.127, 0.4, 0.5, 0.999), 8),
}
Step = Callable[[Fraction, int], tuple[Fraction, Fraction]]


def _polynomial(first: Callable[[Fraction], Fraction], step: Step, is_shifted: bool = False) -> Function:
    """Its recurrence in exact fractions."""

    def value(n: int, x: float) -> Fraction:
        place = 2 * Fraction(x) - 1 if is_shifted else Fraction(x)
        before, current = Fraction(1), first(place)
        for k in range(1, n):
            a, b = step(place, k)
            before, current = current, a * current + b * before
        return current if n else Fraction(1)

    return value


def _doubled(x: Fraction, k: int) -> tuple[Fraction, Fraction]:
    return 2 * x, Fraction(-1)


STARTS: dict[str, Callable[[Fraction], Fraction]] = {
    "t": lambda x: x,
    "u": lambda x: 2 * x,
    "v": lambda x: 2 * x - 1,
    "w": lambda x: 2 * x + 1,
}
POLYNOMIALS: dict[str, Function] = {
    "chebyshev_polynomial_t": _polynomial(STARTS["t"], _doubled),
    "chebyshev_polynomial_u": _polynomial(STARTS["u"], _doubled),
    "chebyshev_polynomial_v": _polynomial(STARTS["v"], _doubled),
    "chebyshev_polynomial_w": _polynomial(STARTS["w"], _doubled),
    "shifted_chebyshev_polynomial_t": _polynomial(STARTS["t"], _doubled, True),
    "shifted_chebyshev_polynomial_u": _polynomial(STARTS["u"], _doubled, True),
    "shifted_chebyshev_polynomial_v": _polynomial(STARTS["v"], _doubled, True),
    "shifted_chebyshev_polynomial_w": _polynomial(STARTS["w"], _doubled, True),
    "hermite_polynomial_h": _polynomial(lambda x: 2 * x, lambda x, k: (2 * x, Fraction(-2 * k))),
    "hermite_polynomial_he": _polynomial(lambda x: x, lambda x, k: (x, Fraction(-k))),
    "laguerre_polynomial_l": _polynomial(
        lambda x: 1 - x, lambda x, k: ((2 * k + 1 - x) / (k + 1), Fraction(-k, k + 1))
    ),
    "legendre_polynomial_p": _polynomial(lambda x: x, lambda x, k: ((2 * k + 1) * x / (k + 1), Fraction(-k, k + 1))),
}


def _require_near(ours: Any, references: list[Any], units: float, scale: Any = None) -> None:
    theirs = torch.tensor([float(value) for value in references], dtype=torch.float64)
    size = theirs.abs() if scale is None else torch.full_like(theirs, scale)
    error = (ours.double() - theirs).abs() / size.clamp_min(1e-300)
    assert float(error.max()) <= units * 2**-53, (error, theirs)


@pytest.mark.parametrize("name", UNARY)
def test_a_function_in_double_precision(name: str, apply: Any) -> None:
    function, places, units = UNARY[name]
    with mp.workdps(60):
        references = [function(mp.mpf(x)) for x in places]
    oscillates = name.startswith(("bessel_j", "bessel_y"))
    for one, reference in zip(places, references, strict=True):
        ours = apply(name, torch.tensor([one], dtype=torch.float64))
        _require_near(ours, [reference], units, 1.0 if oscillates and abs(one) > 0.5 else None)


@pytest.mark.parametrize("name", UNARY)
def test_a_function_is_rounded_once_to_narrower_types(name: str, apply: Any) -> None:
    places = torch.tensor(UNARY[name][1], dtype=torch.float64)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = places.to(dtype)
        wide = apply(name, x.double()).to(torch.float32).to(dtype)
        torch.testing.assert_close(apply(name, x), wide, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_a_polynomial_of_every_degree(name: str, apply: Any) -> None:
    degrees = torch.tensor([0.0, 1, 2, 3, 6, 7, 12], dtype=torch.float64)
    for x in (-1.5, -1.0, -0.3, 0.0, 0.5, 0.99, 1.0, 1.25):
        ours = apply(name, torch.full_like(degrees, x), degrees)
        references = [POLYNOMIALS[name](int(n), x) for n in degrees]
        _require_near(ours, references, 256, max(1.0, *(abs(float(value)) for value in references)))
    outside = apply(name, torch.tensor([0.5, 2.0, 0.5]), torch.tensor([-1.0, -2.0, float("nan")]))
    assert outside.tolist() == [0, 0, 0]


def test_zeta_and_polygamma_in_double_precision(apply: Any) -> None:
    for x, q in ((1.5, 0.25), (2.0, 1.0), (3.0, 9.75), (40.0, 0.5), (100.0, 10.0), (7.0, 300.0)):
        ours = apply("zeta", *(torch.tensor([value], dtype=torch.float64) for value in (x, q)))
        with mp.workdps(40):
            _require_near(ours, [mp.zeta(mp.mpf(x), mp.mpf(q))], 32)
    for n in (1, 2, 3, 4):
        for x in (-2.25, -0.5, 0.25, 1.0, 8.0, 1e3):
            with mp.workdps(40):
                _require_near(apply("polygamma", torch.tensor([x], dtype=torch.float64), n=n), [mp.psi(n, x)], 128)


NOT_IN_TORCH_BY_THAT_NAME = {
    "bessel_i0": "modified_bessel_i0",
    "bessel_i1": "modified_bessel_i1",
    "bessel_i0e": "i0e",
    "bessel_i1e": "i1e",
    "bessel_k0": "modified_bessel_k0",
    "bessel_k1": "modified_bessel_k1",
    "bessel_k0e": "scaled_modified_bessel_k0",
    "bessel_k1e": "scaled_modified_bessel_k1",
}


@pytest.mark.parametrize("name", UNARY)
def test_limits_are_those_of_torch(name: str, apply: Any) -> None:
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, float("inf"), -float("inf"), float("nan")])
    theirs = getattr(torch.special, NOT_IN_TORCH_BY_THAT_NAME.get(name, name))(x)
    torch.testing.assert_close(apply(name, x), theirs, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_limits_of_zeta_are_those_of_torch(apply: Any) -> None:
    x = torch.tensor([1.0, 2, 2.5, 0.5, float("inf"), float("nan")]).repeat_interleave(7)
    q = torch.tensor([0.0, -1, -0.5, 2, float("inf"), -float("inf"), float("nan")]).repeat(6)
    torch.testing.assert_close(apply("zeta", x, q), torch.special.zeta(x, q), rtol=1e-5, atol=1e-6, equal_nan=True)


def test_every_operator_of_the_family_is_tested_here() -> None:
    from hidet.operators.special import SPECS

    names = {spec.name for spec in SPECS}
    assert names == {*UNARY, *POLYNOMIALS, "zeta", "polygamma"}
    assert names <= {spec.name for spec in all_operators()}
    assert dtypes.f64.is_compute
