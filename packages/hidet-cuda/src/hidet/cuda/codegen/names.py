"""Names of variables and functions in CUDA C++: those of the script, where C++ and CUDA leave them free."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from hidet.ir.func import Function

_WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl const
    const_cast constexpr continue decltype default delete do double dynamic_cast else enum explicit export extern false
    float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
    protected public register reinterpret_cast return short signed sizeof static static_assert static_cast struct switch
    template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t
    while xor xor_eq f16 bf16 f8e4m3 f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0 f4e2m1
    Lanes threadIdx blockIdx blockDim gridDim warpSize exp log sin cos tan
    pow min max abs floor ceil round trunc sqrt erf tanh j0 j1 jn y0 y1 yn gamma main printf assert half"""

_KEYWORDS = frozenset(re.findall(r"\w+", _WORDS))
"""Names of nothing that a script defines: words of C++, of the prelude, and what errors of compilers speak of."""

_FUNCTIONS = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 erf erfc
    erfcinv erfcx erfinv exp exp10 exp2 expm1 fabs fdim fdivide floor fma fmax fmin fmod frexp hypot ilogb ldexp
    lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint nextafter norm norm3d norm4d
    normcdf normcdfinv pow rcbrt remainder remquo rhypot rint rnorm rnorm3d rnorm4d round rsqrt scalbln scalbn sin
    sincos sincospi sinh sinpi sqrt tan tanh tgamma trunc j0 j1 jn y0 y1 yn"""
"""Mathematical functions of CUDA, each with a twin for floats whose name ends with f (CUDA Math API)."""

_MACROS = r"NULL|(?:CU|NV_|__)\w*|(?:MAJOR|MINOR)_VERSION|PATCH_LEVEL"
"""Macros of CUDA, which replace every name that equals theirs."""

_MACRO = re.compile(_MACROS)

_PREDECLARED = re.compile(
    rf"(?:{'|'.join(_FUNCTIONS.split())})f?|{'|'.join(_KEYWORDS)}"
    r"|labs|llabs|u(?:min|max)|u?ll(?:min|max)|dim3|make_\w+[1-4]|(?:size|ptrdiff|clock|wchar)_t|clock64|malloc|free|std|va_\w+"
    rf"|cuda[A-Z]\w*|{_MACROS}|_"
)
"""What NVRTC declares before it reads a source, and PTX's name for nothing: no kernel can have such a name."""


class CNames:
    """Names of variables: their own where possible, else with a number, one a variable.

    taken: names of other things. given: the names of this table.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._names: dict[object, str] = {}
        self._used: set[str] = set(taken)
        self.given: set[str] = set()

    def __call__(self, thing: object, wanted: str) -> str:
        """The name of `thing`, made from `wanted` when it has none yet."""
        known = self._names.get(thing)
        if known is None:
            known = self._names[thing] = self.fresh(wanted)
        return known

    def __contains__(self, thing: object) -> bool:
        """Whether `thing` has a name."""
        return thing in self._names

    def fresh(self, wanted: str) -> str:
        """A name nothing else has."""
        plain = _plain(wanted) or "value"
        plain = f"_{plain}" if plain[0].isdigit() else plain
        plain = f"value_{plain}" if _MACRO.fullmatch(plain) else plain
        name, number = plain, 1
        while name in self._used or name in _KEYWORDS:
            number += 1
            name = f"{plain}_{number}"
        self._used.add(name)
        self.given.add(name)
        return name

    def hidden(self, lines: Iterable[str]) -> frozenset[str]:
        """Functions that the lines call and cannot reach, because a variable has their name."""
        return frozenset(name for line in lines for name in _CALLED.findall(line) if name in self.given)


_CALLED = re.compile(r"\b([A-Za-z_]\w*)[(<]")


def _plain(name: str) -> str:
    """A name with an underscore for each letter that C++ does not have; different names may become equal."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def function_names(functions: Iterable[Function]) -> Mapping[str, str]:
    """The names of functions in C++ by those in the module, no two equal: the same where C++ has it and CUDA has none
    like it, else after `script_`."""
    own = [function.name for function in functions]
    names = {name: name for name in own if _plain(name) == name and not _PREDECLARED.fullmatch(name)}
    used = set(names)
    for name in own:
        if name not in names:
            found = f"script_{_plain(name)}"
            while found in used:
                found = f"script_{found}"
            names[name] = found
            used.add(found)
    return names
