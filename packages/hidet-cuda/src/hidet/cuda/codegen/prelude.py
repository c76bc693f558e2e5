"""C++ that generated code may need, as pieces that name what they need themselves.

The types of narrow floats are structs of their bits: CUDA's headers are not on users' machines, and their operators
would hide where a kernel rounds. Conversions round to nearest even unless they say otherwise (PTX ISA, cvt).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hidet.cuda.codegen.error_function import one_plus_erf
from hidet.cuda.codegen.small_float import SMALL_FLOATS, small_float
from hidet.errors import CodegenError


@dataclass(frozen=True, slots=True)
class Piece:
    """Some C++ under a name, and the names of the pieces that must stand before it."""

    name: str
    text: str
    needs: tuple[str, ...] = ()


def inline(signature: str, body: str) -> str:
    """A device function that is always inlined."""
    return f"__device__ __forceinline__ {signature} {{ {body} }}"


def _pieces(*rows: Piece) -> dict[str, Piece]:
    return {row.name: row for row in rows}


_F16 = """struct __align__(2) f16 { unsigned short bits; };
__device__ __forceinline__ float to_f32(f16 a) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(a.bits));
  return r;
}
__device__ __forceinline__ f16 to_f16(float a) {
  f16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(a));
  return r;
}
__device__ __forceinline__ f16 to_f16(double a) {
  f16 r;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(r.bits) : "d"(a));
  return r;
}"""

_BF16 = """struct __align__(2) bf16 { unsigned short bits; };
__device__ __forceinline__ float to_f32(bf16 a) { return __uint_as_float((unsigned)a.bits << 16); }
__device__ __forceinline__ bf16 to_bf16(float a) {
  bf16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(a));
  return r;
}
// Rounded to odd on the way, so that the second rounding sees what the first one dropped.
__device__ __forceinline__ bf16 to_bf16(double a) {
  float low = __double2float_rz(a);
  unsigned bits = __float_as_uint(low);
  if ((double)low != a && (bits & 0x7fffffffu) < 0x7f800000u) bits |= 1u;
  return to_bf16(__uint_as_float(bits));
}"""


_LANES = """// Aligned to its size up to 16 bytes, the widest access, where that is a power of two.
__device__ constexpr int lanes_align(int element, int size) {
  return size & (size - 1) ? element : size < 16 ? size : 16;
}
template <class T, int N> struct __align__(lanes_align(sizeof(T), sizeof(T) * N)) Lanes { T lane[N]; };
template <class T, int N, class F> __device__ __forceinline__ Lanes<T, N> lanes(F f) {
  Lanes<T, N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.lane[i] = f(i);
  return r;
}"""

_BIT_CAST = """template <class To, class From> __device__ __forceinline__ To bits_as(const From& a) {
  static_assert(sizeof(To) == sizeof(From), "bits_as keeps the number of bits");
  To r;
  memcpy(&r, &a, sizeof(To));
  return r;
}"""

_STORE_WORDS = """// 8 or 16 bytes in one instruction, which compilers do not always make of what a long block computes.
template <class T, int N> struct Words {
  unsigned word[N * sizeof(T) / 4];
  __device__ __forceinline__ Words(const Lanes<T, N>& a) {
#pragma unroll
    for (int i = 0; i < N * (int)sizeof(T) / 4; ++i) {
      if constexpr (sizeof(T) == 4) word[i] = bits_as<unsigned>(a.lane[i]);
      else asm("mov.b32 %0, {%1, %2};" : "=r"(word[i]) : "h"(bits_as<unsigned short>(a.lane[2 * i])),
               "h"(bits_as<unsigned short>(a.lane[2 * i + 1])));
    }
  }
};
template <class T, int N> __device__ __forceinline__ void store_global(T* p, const Lanes<T, N>& a) {
  Words<T, N> w(a);
  auto place = __cvta_generic_to_global(p);
  if constexpr (sizeof(w) == 16)
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" :: "l"(place), "r"(w.word[0]), "r"(w.word[1]),
                 "r"(w.word[2]), "r"(w.word[3]) : "memory");
  else
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" :: "l"(place), "r"(w.word[0]), "r"(w.word[1]) : "memory");
}
template <class T, int N> __device__ __forceinline__ void store_shared(T* p, const Lanes<T, N>& a) {
  Words<T, N> w(a);
  unsigned place = shared_address(p);
  if constexpr (sizeof(w) == 16)
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" :: "r"(place), "r"(w.word[0]), "r"(w.word[1]),
                 "r"(w.word[2]), "r"(w.word[3]) : "memory");
  else
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" :: "r"(place), "r"(w.word[0]), "r"(w.word[1]) : "memory");
}"""

_ROUNDED_TO_BF16 = """// The upper half of a pair is an f32; alone it may be rounded at a sixteenth of the rate.
__device__ __forceinline__ float rounded_to_bf16(float a) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, 0f00000000;" : "=r"(pair) : "f"(a));
  return __uint_as_float(pair);
}"""

_QUOTIENT = """// Within two units of the last place, without branches: for what is rounded to 16 bits (PTX ISA, div).
__device__ __forceinline__ float quotient(float a, float b) {
  float r;
  asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}"""

_FLOOR_DIV = """// Rounds toward minus infinity; division by zero gives zero.
template <class T> __device__ __forceinline__ T floor_div(T a, T b) {
  if (b == 0) return 0;
  T q = a / b;
  return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}"""

_FLOOR_MOD = """// The remainder that has the sign of b; by zero, zero.
template <class T> __device__ __forceinline__ T floor_mod(T a, T b) {
  if (b == 0) return 0;
  T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}"""

_SAFE_DIV = """template <class T> __device__ __forceinline__ T safe_div(T a, T b) { return b == 0 ? 0 : a / b; }
template <class T> __device__ __forceinline__ T safe_rem(T a, T b) { return b == 0 ? 0 : a % b; }"""

_FLOAT_FLOOR_MOD = """// As Python's %, for floats: the sign of b, exact.
__device__ __forceinline__ float floor_mod(float a, float b) {
  float r = fmodf(a, b);
  return r == 0.0f ? copysignf(0.0f, b) : (r < 0.0f) != (b < 0.0f) ? r + b : r;
}
__device__ __forceinline__ double floor_mod(double a, double b) {
  double r = fmod(a, b);
  return r == 0.0 ? copysign(0.0, b) : (r < 0.0) != (b < 0.0) ? r + b : r;
}
__device__ __forceinline__ float floor_div(float a, float b) {
  if (b == 0.0f) return a / b;
  float r = fmodf(a, b), q = (a - r) / b;
  if (r != 0.0f && (r < 0.0f) != (b < 0.0f)) q -= 1.0f;
  if (q == 0.0f) return copysignf(0.0f, a / b);
  float low = floorf(q);
  return q - low > 0.5f ? low + 1.0f : low;
}
__device__ __forceinline__ double floor_div(double a, double b) {
  if (b == 0.0) return a / b;
  double r = fmod(a, b), q = (a - r) / b;
  if (r != 0.0 && (r < 0.0) != (b < 0.0)) q -= 1.0;
  if (q == 0.0) return copysign(0.0, a / b);
  double low = floor(q);
  return q - low > 0.5 ? low + 1.0 : low;
}"""

_MIN_MAX = """// NaN where one is NaN.
__device__ __forceinline__ float min_nan(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
__device__ __forceinline__ float max_nan(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
__device__ __forceinline__ double min_nan(double a, double b) { return a != a || a < b ? a : b; }
__device__ __forceinline__ double max_nan(double a, double b) { return a != a || a > b ? a : b; }"""

_SHIFTS = """// Shifts by the width or more give what shifting bit by bit would.
template <class T> __device__ __forceinline__ T shift_left(T a, T b) {
  return (unsigned long long)b >= sizeof(T) * 8 ? 0 : (T)((unsigned long long)a << b);
}
template <class T> __device__ __forceinline__ T shift_right(T a, T b) {
  return (unsigned long long)b >= sizeof(T) * 8 ? (T)(a < 0 ? -1 : 0) : (T)(a >> b);
}"""

_INTEGER_POWER = """// 1 / a ** -b truncated toward zero for negative b.
template <class T> __device__ __forceinline__ T integer_power(T a, T b) {
  if (b < 0) return a == 1 ? 1 : a == (T)-1 ? ((b & 1) ? (T)-1 : (T)1) : 0;
  unsigned long long r = 1, base = (unsigned long long)a;
  for (unsigned long long e = (unsigned long long)b; e; e >>= 1) {
    if (e & 1) r *= base;
    base *= base;
  }
  return (T)r;
}"""

_TRUNCATE = """// Toward zero, saturating; NaN gives 0 (PTX ISA, cvt).
__device__ __forceinline__ int to_i32(float a) { return __float2int_rz(a); }
__device__ __forceinline__ int to_i32(double a) { return a != a ? 0 : __double2int_rz(a); }
__device__ __forceinline__ unsigned to_u32(float a) { return __float2uint_rz(a); }
__device__ __forceinline__ unsigned to_u32(double a) { return a != a ? 0u : __double2uint_rz(a); }
__device__ __forceinline__ long long to_i64(float a) { return a != a ? 0ll : __float2ll_rz(a); }
__device__ __forceinline__ long long to_i64(double a) { return a != a ? 0ll : __double2ll_rz(a); }
__device__ __forceinline__ unsigned long long to_u64(float a) { return a != a ? 0ull : __float2ull_rz(a); }
__device__ __forceinline__ unsigned long long to_u64(double a) { return a != a ? 0ull : __double2ull_rz(a); }"""

_TF32 = """// To nearest, ties away from zero (PTX ISA, cvt.rna.tf32).
__device__ __forceinline__ float to_tf32(float a) {
  unsigned r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(a));
  return __uint_as_float(r);
}"""

_DIGAMMA = """// Recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.5, 6.3.18).
// Below zero by reflection (6.3.7).
__device__ inline double digamma(double x) {
  if (x == 0.0) return copysign(__longlong_as_double(0x7ff0000000000000ll), -x);
  double r = 0.0;
  if (x < 0.0) {
    if (x == floor(x)) return __longlong_as_double(0x7ff8000000000000ll);
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
template <class T> __device__ __forceinline__ T next_after(T a, T b) {
  float x = to_f32(a), y = to_f32(b);
  if (x != x) return a;
  if (y != y || x == y) return b;
  if (x == 0.0f) return {(unsigned short)(y > 0.0f ? 1 : 0x8001)};
  return {(unsigned short)(a.bits + ((y > x) == (x > 0.0f) ? 1 : -1))};
}"""

_SHARED_ADDRESS = inline("unsigned shared_address(const void* p)", "return (unsigned)__cvta_generic_to_shared(p);")

PIECES: dict[str, Piece] = _pieces(
    Piece("f16", _F16),
    Piece("bf16", _BF16),
    *(Piece(dtype.short, small_float(dtype)) for dtype in SMALL_FLOATS),
    Piece("lanes", _LANES),
    Piece("bits_as", _BIT_CAST),
    Piece("rounded_to_bf16", _ROUNDED_TO_BF16),
    Piece("quotient", _QUOTIENT),
    Piece("floor_div", _FLOOR_DIV),
    Piece("floor_mod", _FLOOR_MOD),
    Piece("safe_div", _SAFE_DIV),
    Piece("float_floor", _FLOAT_FLOOR_MOD),
    Piece("min_max", _MIN_MAX),
    Piece("shifts", _SHIFTS),
    Piece("integer_power", _INTEGER_POWER),
    Piece("truncate", _TRUNCATE),
    Piece("tf32", _TF32),
    Piece("digamma", _DIGAMMA),
    Piece("one_plus_erf", one_plus_erf()),
    Piece("next_after", _NEXT_AFTER, ("f16", "bf16")),
    Piece("shared_address", _SHARED_ADDRESS),
    Piece("store_words", _STORE_WORDS, ("lanes", "bits_as", "shared_address")),
)


class Prelude:
    """The pieces one source needs, in an order in which each comes after what it needs."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def use(self, *names: str) -> None:
        """Ask for pieces of the table."""
        for name in names:
            piece = PIECES.get(name)
            if piece is None:
                raise CodegenError(f"the prelude has no piece {name!r}")
            self.add(piece)

    def add(self, piece: Piece) -> None:
        """Ask for a piece that is not in the table."""
        if piece.name not in self._texts:
            self.use(*piece.needs)
            self._texts[piece.name] = piece.text

    def texts(self) -> Iterable[str]:
        """The pieces asked for, in order."""
        return self._texts.values()
