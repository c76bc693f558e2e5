"""What CUDA C++ that is printed may need: narrow floats, rounding and wide stores by PTX.

The types of narrow floats are structs of their bits: CUDA's headers are not on users' machines, and their operators
would hide where a kernel rounds. Conversions round to nearest even unless they say otherwise (PTX ISA, cvt).
"""

from __future__ import annotations

from hidet.cuda.codegen.error_function import one_plus_erf
from hidet.gpu.codegen.cpp import CppWords, cpp_pieces
from hidet.gpu.codegen.prelude import Piece


def inline(signature: str, body: str) -> str:
    """A device function that is always inlined."""
    return f"__device__ __forceinline__ {signature} {{ {body} }}"


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

_BF16_AT = """// An element of an array of registers, by one instruction of its word; halves by themselves take two.
__device__ __forceinline__ float bf16_at(const bf16* a, int i) {
  unsigned pair;
  memcpy(&pair, a + (i & ~1), 4);
  return __uint_as_float(i & 1 ? pair & 0xffff0000u : pair << 16);
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

_ONE_PLUS_TANH = """// 2 / (1 + e^(-2a)), which has all digits where tanh is near -1.
__device__ __forceinline__ float one_plus_tanh(float a) {
  float q, r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(q) : "f"(a * -2.8853900817779268f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + q));
  return 2.0f * r;
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

_SHARED_ADDRESS = inline("unsigned shared_address(const void* p)", "return (unsigned)__cvta_generic_to_shared(p);")

INFINITY, NAN = "__longlong_as_double(0x7ff0000000000000ll)", "__longlong_as_double(0x7ff8000000000000ll)"
"""Doubles."""

_WORDS = CppWords(
    device="__device__",
    inline="__device__ __forceinline__",
    align="__align__",
    infinity=INFINITY,
    nan=NAN,
    bits_of_float="__float_as_uint",
    float_of_bits="__uint_as_float",
)


def _own_pieces(*rows: Piece) -> dict[str, Piece]:
    return {row.name: row for row in rows}


PIECES: dict[str, Piece] = {
    **cpp_pieces(_WORDS),
    **_own_pieces(
        Piece("f16", _F16),
        Piece("bf16", _BF16),
        Piece("bf16_at", _BF16_AT, ("bf16",)),
        Piece("rounded_to_bf16", _ROUNDED_TO_BF16),
        Piece("quotient", _QUOTIENT),
        Piece("min_max", _MIN_MAX),
        Piece("truncate", _TRUNCATE),
        Piece("tf32", _TF32),
        Piece("one_plus_erf", one_plus_erf()),
        Piece("one_plus_tanh", _ONE_PLUS_TANH),
        Piece("shared_address", _SHARED_ADDRESS),
        Piece("store_words", _STORE_WORDS, ("lanes", "bits_as", "shared_address")),
    ),
}
"""By name."""
