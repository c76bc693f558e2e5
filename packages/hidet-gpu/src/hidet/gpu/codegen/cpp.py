"""Helpers that any C++ of a GPU spells the same, but for what stands in front of a function.

Others are the target's own, under these names, which the printer asks for:

| piece | functions |
|---|---|
| short names of structs (`f16`, `f8e4m3`) | the struct of their `bits`, `to_f32` of it, `to_f16(float)` and the like |
| `tf32` | `to_tf32(float)`: rounded to nearest, ties away from zero |
| `truncate` | `to_i32`, `to_u32`, `to_i64`, `to_u64` of floats: toward zero, saturating; NaN gives 0 |
| `min_max` | `min_nan`, `max_nan` of floats: NaN where one is NaN |
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from hidet.gpu.codegen.prelude import Piece
from hidet.gpu.codegen.small_float import SMALL_FLOATS, small_float

_LANES = """// Aligned to its size up to 16 bytes, the widest access, where that is a power of two.
DEVICE constexpr int lanes_align(int element, int size) {
  return size & (size - 1) ? element : size < 16 ? size : 16;
}
template <class T, int N> struct ALIGN(lanes_align(sizeof(T), sizeof(T) * N)) Lanes { T lane[N]; };
template <class T, int N, class F> INLINE Lanes<T, N> lanes(F f) {
  Lanes<T, N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.lane[i] = f(i);
  return r;
}"""

_BIT_CAST = """template <class To, class From> INLINE To bits_as(const From& a) {
  static_assert(sizeof(To) == sizeof(From), "bits_as keeps the number of bits");
  To r;
  memcpy(&r, &a, sizeof(To));
  return r;
}"""

_FLOOR_DIV = """// Rounds toward minus infinity; division by zero gives zero.
template <class T> INLINE T floor_div(T a, T b) {
  if (b == 0) return 0;
  T q = a / b;
  return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}"""

_FLOOR_MOD = """// The remainder that has the sign of b; by zero, zero.
template <class T> INLINE T floor_mod(T a, T b) {
  if (b == 0) return 0;
  T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}"""

_SAFE_DIV = """template <class T> INLINE T safe_div(T a, T b) { return b == 0 ? 0 : a / b; }
template <class T> INLINE T safe_rem(T a, T b) { return b == 0 ? 0 : a % b; }"""

_FLOAT_FLOOR_MOD = """// As Python's %, for floats: the sign of b, exact.
INLINE float floor_mod(float a, float b) {
  float r = fmodf(a, b);
  return r == 0.0f ? copysignf(0.0f, b) : (r < 0.0f) != (b < 0.0f) ? r + b : r;
}
INLINE double floor_mod(double a, double b) {
  double r = fmod(a, b);
  return r == 0.0 ? copysign(0.0, b) : (r < 0.0) != (b < 0.0) ? r + b : r;
}
INLINE float floor_div(float a, float b) {
  if (b == 0.0f) return a / b;
  float r = fmodf(a, b), q = (a - r) / b;
  if (r != 0.0f && (r < 0.0f) != (b < 0.0f)) q -= 1.0f;
  if (q == 0.0f) return copysignf(0.0f, a / b);
  float low = floorf(q);
  return q - low > 0.5f ? low + 1.0f : low;
}
INLINE double floor_div(double a, double b) {
  if (b == 0.0) return a / b;
  double r = fmod(a, b), q = (a - r) / b;
  if (r != 0.0 && (r < 0.0) != (b < 0.0)) q -= 1.0;
  if (q == 0.0) return copysign(0.0, a / b);
  double low = floor(q);
  return q - low > 0.5 ? low + 1.0 : low;
}"""

_SHIFTS = """// Shifts by the width or more give what shifting bit by bit would.
template <class T> INLINE T shift_left(T a, T b) {
  return (unsigned long long)b >= sizeof(T) * 8 ? 0 : (T)((unsigned long long)a << b);
}
template <class T> INLINE T shift_right(T a, T b) {
  return (unsigned long long)b >= sizeof(T) * 8 ? (T)(a < 0 ? -1 : 0) : (T)(a >> b);
}"""

_INTEGER_POWER = """// 1 / a ** -b truncated toward zero for negative b.
template <class T> INLINE T integer_power(T a, T b) {
  if (b < 0) return a == 1 ? 1 : a == (T)-1 ? ((b & 1) ? (T)-1 : (T)1) : 0;
  unsigned long long r = 1, base = (unsigned long long)a;
  for (unsigned long long e = (unsigned long long)b; e; e >>= 1) {
    if (e & 1) r *= base;
    base *= base;
  }
  return (T)r;
}"""

_DIGAMMA = """// Recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.5, 6.3.18).
// Below zero by reflection (6.3.7).
DEVICE inline double digamma(double x) {
  if (x == 0.0) return copysign(INFINITY, -x);
  double r = 0.0;
  if (x < 0.0) {
    if (x == floor(x)) return NAN;
    double fraction = x - floor(x);
    r = -3.14159265358979323846 / tan(3.14159265358979323846 * fraction);
    x = 1.0 - x;
  }
  for (; x < 10.0; x += 1.0) r -= 1.0 / x;
  double z = 1.0 / (x * x);
  double tail = 1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12));
  double series = z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * tail)));
  return r + log(x) - 0.5 / x - series;
}"""

_NEXT_AFTER = """// The neighbour of a towards b among the values of a struct of 16 bits.
template <class T> INLINE T next_after(T a, T b) {
  float x = to_f32(a), y = to_f32(b);
  if (x != x) return a;
  if (y != y || x == y) return b;
  if (x == 0.0f) return {(unsigned short)(y > 0.0f ? 1 : 0x8001)};
  return {(unsigned short)(a.bits + ((y > x) == (x > 0.0f) ? 1 : -1))};
}"""


@dataclass(frozen=True, slots=True)
class CppWords:
    """What a dialect of C++ has its own words for.

    device, inline: in front of a function of the device, and of one that is inlined. align: the name of what aligns a
    struct to bytes. infinity, nan: literals of a double. bits_of_float, float_of_bits: functions between a float and
    its word.
    """

    device: str
    inline: str
    align: str
    infinity: str
    nan: str
    bits_of_float: str
    float_of_bits: str

    def put_into(self, text: str) -> str:
        """The text with these in place of the names of the fields in capitals."""
        for field in fields(self):
            text = text.replace(field.name.upper(), getattr(self, field.name))
        return text


def cpp_pieces(words: CppWords) -> dict[str, Piece]:
    """The helpers by name."""

    def piece(name: str, text: str, *needs: str) -> Piece:
        return Piece(name, words.put_into(text), needs)

    made = (
        *(piece(dtype.short, small_float(dtype)) for dtype in SMALL_FLOATS),
        piece("lanes", _LANES),
        piece("bits_as", _BIT_CAST),
        piece("floor_div", _FLOOR_DIV),
        piece("floor_mod", _FLOOR_MOD),
        piece("safe_div", _SAFE_DIV),
        piece("float_floor", _FLOAT_FLOOR_MOD),
        piece("shifts", _SHIFTS),
        piece("integer_power", _INTEGER_POWER),
        piece("digamma", _DIGAMMA),
        piece("next_after", _NEXT_AFTER, "f16", "bf16"),
    )
    return {row.name: row for row in made}
