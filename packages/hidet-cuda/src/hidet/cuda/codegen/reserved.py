"""Names that CUDA C++ has for something already."""

from __future__ import annotations

import re

from hidet.gpu.codegen.dialect import ReservedNames
from hidet.gpu.codegen.names import CPP_WORDS

_WORDS = """
    f16 bf16 f8e4m3 f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0 f4e2m1
    Lanes threadIdx blockIdx blockDim gridDim warpSize exp log sin cos tan
    pow min max abs floor ceil round trunc sqrt erf tanh j0 j1 jn y0 y1 yn gamma main printf assert half"""
"""Words of the prelude, and what errors of compilers speak of."""

_NAMES_OF_FUNCTIONS = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 erf erfc
    erfcinv erfcx erfinv exp exp10 exp2 expm1 fabs fdim fdivide floor fma fmax fmin fmod frexp hypot ilogb ldexp
    lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint nextafter norm norm3d norm4d
    normcdf normcdfinv pow rcbrt remainder remquo rhypot rint rnorm rnorm3d rnorm4d round rsqrt scalbln scalbn sin
    sincos sincospi sinh sinpi sqrt tan tanh tgamma trunc j0 j1 jn y0 y1 yn"""

FUNCTIONS = _NAMES_OF_FUNCTIONS.split()
"""Mathematical functions of CUDA, each with a twin for floats whose name ends with f (CUDA Math API)."""

_MACROS = r"NULL|(?:CU|NV_|__)\w*|(?:MAJOR|MINOR)_VERSION|PATCH_LEVEL"
"""Macros of CUDA, which replace every name that equals theirs."""

_KEYWORDS = CPP_WORDS | frozenset(_WORDS.split())

RESERVED = ReservedNames(
    words=_KEYWORDS,
    # What NVRTC declares before it reads a source, and PTX's name for nothing.
    declared=re.compile(
        rf"(?:{'|'.join(FUNCTIONS)})f?|{'|'.join(sorted(_KEYWORDS))}"
        r"|labs|llabs|u(?:min|max)|u?ll(?:min|max)|dim3|make_\w+[1-4]|(?:size|ptrdiff|clock|wchar)_t|clock64|malloc|free"
        rf"|std|va_\w+|cuda[A-Z]\w*|{_MACROS}|_"
    ),
    macros=re.compile(_MACROS),
)
