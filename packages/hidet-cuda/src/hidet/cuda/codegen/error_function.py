"""1 + erf(a) in f32, the heart of gelu, in half the instructions of the library's erf.

It is erfc(-a), which is 2^(x g(x)) of x = -a for negative a and 2 less that of x = a for others. The polynomial g was
fitted to log2(erfc(x)) / x over [0, 4.2], weighted by erfc(x), so that the sum is within 1.5e-7 and a negative `a` has
more digits of it than adding 1 would leave. Beyond, x g(x) falls to minus infinity, as log2(erfc(x)) does.
"""

from __future__ import annotations

COEFFICIENTS = (
    -1.6279083490371704,
    -0.9184234142303467,
    -0.14841727912425995,
    0.028002124279737473,
    -0.0002755507011897862,
    -0.0020316008012741804,
    0.0007737632258795202,
    -0.00015186320524662733,
    1.6149895600392483e-05,
    -7.335042369049916e-07,
)
"""Of g, from the constant one on."""


def one_plus_erf() -> str:
    """The function in CUDA C++. What 2^p flushes to zero is far below the half unit of 1 that erf would leave."""
    steps = [f"  p = fmaf(p, x, {coefficient!r}f);" for coefficient in reversed(COEFFICIENTS[:-1])]
    return "\n".join(
        [
            "// erfc(-a): 2^p for negative a, 2 - 2^p for others.",
            "__device__ __forceinline__ float one_plus_erf(float a) {",
            f"  float x = fabsf(a), p = {COEFFICIENTS[-1]!r}f, q;",
            *steps,
            '  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(q) : "f"(p * x));',
            "  return a < 0.0f ? q : 2.0f - q;",
            "}",
        ]
    )
