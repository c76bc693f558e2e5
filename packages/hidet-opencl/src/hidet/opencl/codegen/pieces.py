"""What OpenCL C that is printed may need: narrow floats, rounding, saturating conversions, division that rounds down.

Narrow floats are structs of their bits, so that no device needs arithmetic of them: f16 is converted by vload_half and
vstore_half, which every device has. C has no templates: helpers of several types are overloaded, as those of OpenCL's
own library are, or made for a type when it asks for them. What needs doubles is left out where a device has none.
"""

from __future__ import annotations

import re

from hidet.gpu.codegen.cpp import CppWords
from hidet.gpu.codegen.prelude import Piece
from hidet.gpu.codegen.small_float import SMALL_FLOATS, small_float

INLINE = "static inline __attribute__((overloadable))"
"""In front of a function that has namesakes for other types."""

_WORDS = CppWords(
    device=INLINE,
    inline=INLINE,
    align="aligned",
    infinity="as_double(0x7ff0000000000000L)",
    nan="as_double(0x7ff8000000000000L)",
    bits_of_float="as_uint",
    float_of_bits="as_float",
)

_F16 = """typedef struct { ushort bits; } f16;
INLINE float to_f32(f16 a) { return vload_half(0, (const __private half*)&a.bits); }
INLINE f16 to_f16(float a) {
  f16 r;
  vstore_half_rte(a, 0, (__private half*)&r.bits);
  return r;
}
#ifdef WITH_DOUBLES
INLINE f16 to_f16(double a) {
  f16 r;
  vstore_half_rte(a, 0, (__private half*)&r.bits);
  return r;
}
#endif"""

_BF16 = """typedef struct { ushort bits; } bf16;
INLINE float to_f32(bf16 a) { return as_float((uint)a.bits << 16); }
// To nearest, ties to even; a NaN stays one.
INLINE bf16 to_bf16(float a) {
  uint word = as_uint(a);
  uint rounded = word + 0x7fffu + (word >> 16 & 1u);
  bf16 r;
  r.bits = (ushort)(((word & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : rounded) >> 16);
  return r;
}
#ifdef WITH_DOUBLES
// Rounded to odd on the way, so that the second rounding sees what the first one dropped.
INLINE bf16 to_bf16(double a) {
  float low = convert_float_rtz(a);
  uint bits = as_uint(low);
  if ((double)low != a && (bits & 0x7fffffffu) < 0x7f800000u) bits |= 1u;
  return to_bf16(as_float(bits));
}
#endif"""

_MIN_MAX = """// NaN where one is NaN.
INLINE TYPE min_nan(TYPE a, TYPE b) { return a != a || a < b ? a : b; }
INLINE TYPE max_nan(TYPE a, TYPE b) { return a != a || a > b ? a : b; }"""

_TRUNCATE = """// Toward zero, saturating; NaN gives 0.
INLINE int to_i32(TYPE a) { return a != a ? 0 : convert_int_sat_rtz(a); }
INLINE uint to_u32(TYPE a) { return a != a ? 0u : convert_uint_sat_rtz(a); }
INLINE long to_i64(TYPE a) { return a != a ? 0L : convert_long_sat_rtz(a); }
INLINE ulong to_u64(TYPE a) { return a != a ? 0UL : convert_ulong_sat_rtz(a); }"""

_FLOAT_FLOOR = """// As Python's, for floats: the remainder has the sign of b, and is exact.
INLINE TYPE floor_mod(TYPE a, TYPE b) {
  TYPE r = fmod(a, b);
  return r == 0 ? copysign((TYPE)0, b) : (r < 0) != (b < 0) ? r + b : r;
}
INLINE TYPE floor_div(TYPE a, TYPE b) {
  if (b == 0) return a / b;
  TYPE r = fmod(a, b), q = (a - r) / b;
  if (r != 0 && (r < 0) != (b < 0)) q -= 1;
  if (q == 0) return copysign((TYPE)0, a / b);
  TYPE low = floor(q);
  return q - low > (TYPE)0.5 ? low + 1 : low;
}"""

_INVERSE_ERF = """// Newton's steps from a guess that is off by a few thousandths (Winitzki, 2008).
// Near one by erfc, whose digits erf has lost there.
INLINE TYPE inverse_erf(TYPE a) {
  TYPE x = fabs(a), rest = 1 - x;
  if (!(x < 1)) return x == 1 ? copysign((TYPE)INFINITY, a) : (TYPE)NAN;
  TYPE w = log(rest * (1 + x)), t = (TYPE)4.330746750799873 + w / 2;
  TYPE r = sqrt(sqrt(t * t - w / (TYPE)0.147) - t);
  for (int step = 0; step < 3; ++step) {
    TYPE wrong = x < (TYPE)0.5 ? erf(r) - x : rest - erfc(r);
    r -= wrong * (TYPE)0.886226925452758 * exp(r * r);
  }
  return x < (TYPE)1e-4 ? a * (TYPE)0.886226925452758 : copysign(r, a);
}"""

_TF32 = """// To nearest, ties away from zero.
INLINE float to_tf32(float a) {
  uint word = as_uint(a);
  return (word & 0x7f800000u) == 0x7f800000u ? a : as_float((word + 0x1000u) & 0xffffe000u);
}"""

_DIGAMMA = """#ifdef WITH_DOUBLES
// Recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.5, 6.3.18).
// Below zero by reflection (6.3.7).
INLINE double digamma(double x) {
  if (x == 0.0) return copysign((double)INFINITY, -x);
  double r = 0.0;
  if (x < 0.0) {
    if (x == floor(x)) return NAN;
    r = -M_PI / tan(M_PI * (x - floor(x)));
    x = 1.0 - x;
  }
  for (; x < 10.0; x += 1.0) r -= 1.0 / x;
  double z = 1.0 / (x * x);
  double tail = 1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12));
  double series = z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * tail)));
  return r + log(x) - 0.5 / x - series;
}
#endif"""

_NEXT_AFTER = """// The neighbour of a towards b among the values of a struct of 16 bits.
INLINE TYPE next_after(TYPE a, TYPE b) {
  float x = to_f32(a), y = to_f32(b);
  if (x != x) return a;
  if (y != y || x == y) return b;
  a.bits = x == 0.0f ? (y > 0.0f ? 1 : 0x8001) : a.bits + ((y > x) == (x > 0.0f) ? 1 : -1);
  return a;
}"""

HEADER = f"""#if defined(cl_khr_fp64) || defined(__opencl_c_fp64)
#define WITH_DOUBLES
#endif
{INLINE} int magnitude(int a) {{ return (int)abs(a); }}
{INLINE} long magnitude(long a) {{ return (long)abs(a); }}
"""
"""What every source begins with."""

_BY_TYPE = {
    "floor_div": """INLINE TYPE floor_div_TYPE(TYPE a, TYPE b) {
  if (b == 0) return 0;
  if (IS_SIGNED && b == (TYPE)-1) return (TYPE)(0 - (UNSIGNED)a);
  TYPE q = a / b;
  return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}""",
    "floor_mod": """INLINE TYPE floor_mod_TYPE(TYPE a, TYPE b) {
  if (b == 0 || IS_SIGNED && b == (TYPE)-1) return 0;
  TYPE r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}""",
    "safe_div": """INLINE TYPE safe_div_TYPE(TYPE a, TYPE b) {
  return b == 0 ? 0 : IS_SIGNED && b == (TYPE)-1 ? (TYPE)(0 - (UNSIGNED)a) : a / b;
}""",
    "safe_rem": """INLINE TYPE safe_rem_TYPE(TYPE a, TYPE b) {
  return b == 0 || IS_SIGNED && b == (TYPE)-1 ? 0 : a % b;
}""",
    "shift_left": """INLINE TYPE shift_left_TYPE(TYPE a, TYPE b) {
  return (ulong)b >= sizeof(TYPE) * 8 ? 0 : (TYPE)((ulong)a << b);
}""",
    "shift_right": """INLINE TYPE shift_right_TYPE(TYPE a, TYPE b) {
  return (ulong)b >= sizeof(TYPE) * 8 ? (TYPE)(a < 0 ? -1 : 0) : (TYPE)(a >> b);
}""",
    "integer_power": """// 1 / a ** -b truncated toward zero for negative b.
INLINE TYPE integer_power_TYPE(TYPE a, TYPE b) {
  if (b < 0) return a == 1 ? 1 : a == (TYPE)-1 ? ((b & 1) ? (TYPE)-1 : (TYPE)1) : 0;
  ulong r = 1, base = (ulong)a;
  for (ulong e = (ulong)b; e; e >>= 1) {
    if (e & 1) r *= base;
    base *= base;
  }
  return (TYPE)r;
}""",
}


def integer_piece(function: str, type_name: str) -> Piece:
    """A helper for one type of integers."""
    is_unsigned = type_name.startswith("u") or type_name == "bool"
    text = _BY_TYPE[function].replace("IS_SIGNED", "0" if is_unsigned else "1")
    text = text.replace("UNSIGNED", type_name if is_unsigned else f"u{type_name}")
    return Piece(f"{function}_{type_name}", _spelled(text.replace("TYPE", type_name)))


def bits_piece(new: str, old: str) -> Piece:
    """`bits_as_<new>_<old>`: the bits of one type as another one of its size."""
    text = (
        f"INLINE {new} bits_as_{new}_{old}({old} a) {{ union {{ {old} from; {new} to; }} u; u.from = a; return u.to; }}"
    )
    return Piece(f"bits_as_{new}_{old}", _spelled(text))


def _spelled(text: str) -> str:
    return text.replace("INLINE", INLINE)


def _of_floats(name: str, text: str) -> Piece:
    """A helper for float, and for double where there is that."""
    both = f"{text.replace('TYPE', 'float')}\n#ifdef WITH_DOUBLES\n{text.replace('TYPE', 'double')}\n#endif"
    return Piece(name, _spelled(both))


def _small_float(short: str, text: str) -> str:
    """The struct and its conversions, which are written in C++, in C."""
    text = _WORDS.put_into(text)
    text = text.replace(f"struct {short} {{ unsigned char bits; }};", f"typedef struct {{ uchar bits; }} {short};")
    return re.sub(r"return \{(.*)\};", rf"return ({short}){{\1}};", text)


PIECES: dict[str, Piece] = {
    row.name: row
    for row in (
        *(Piece(dtype.short, _small_float(dtype.short, small_float(dtype))) for dtype in SMALL_FLOATS),
        Piece("f16", _spelled(_F16)),
        Piece("bf16", _spelled(_BF16)),
        Piece("tf32", _spelled(_TF32)),
        Piece("digamma", _spelled(_DIGAMMA)),
        Piece(
            "next_after",
            _spelled("\n".join(_NEXT_AFTER.replace("TYPE", short) for short in ("f16", "bf16"))),
            ("f16", "bf16"),
        ),
        _of_floats("min_max", _MIN_MAX),
        _of_floats("truncate", _TRUNCATE),
        _of_floats("float_floor", _FLOAT_FLOOR),
        _of_floats("inverse_erf", _INVERSE_ERF),
    )
}
"""By name."""
