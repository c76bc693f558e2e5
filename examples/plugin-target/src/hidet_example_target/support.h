/* What every module begins with: thread IR's types, and those of its operations that C leaves undefined. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>

typedef int8_t i8; typedef int16_t i16; typedef int32_t i32; typedef int64_t i64;
typedef uint8_t u8; typedef uint16_t u16; typedef uint32_t u32; typedef uint64_t u64;
typedef float f32; typedef double f64;

_Noreturn void example_fail(const char *text, i64 first, i64 second);

/* Sums and products wrap around by -fwrapv. A division by zero gives 0, the smallest number divided by -1 itself, and
   shifts act as on a number without end; a negative count is a large one. */
#define INTEGER(T, U, BITS) \
static inline T neg_##T(T a) { return (T)(0 - (U)a); } \
static inline T abs_##T(T a) { return a < 0 ? neg_##T(a) : a; } \
static inline T min_##T(T a, T b) { return a < b ? a : b; } \
static inline T max_##T(T a, T b) { return a < b ? b : a; } \
static inline T truncdiv_##T(T a, T b) { return b == 0 ? 0 : (T)-1 < 0 && b == (T)-1 ? neg_##T(a) : (T)(a / b); } \
static inline T rem_##T(T a, T b) { return b == 0 || ((T)-1 < 0 && b == (T)-1) ? 0 : (T)(a % b); } \
static inline T mod_##T(T a, T b) { T r = rem_##T(a, b); return r != 0 && (r < 0) != (b < 0) ? (T)(r + b) : r; } \
static inline T floordiv_##T(T a, T b) \
{ T q = truncdiv_##T(a, b), r = rem_##T(a, b); return r != 0 && (r < 0) != (b < 0) ? (T)(q - 1) : q; } \
static inline T shl_##T(T a, T b) { return (U)b < BITS ? (T)((u64)a << b) : 0; } \
static inline T shr_##T(T a, T b) { return (U)b < BITS ? (T)(a >> b) : a < 0 ? (T)-1 : 0; } \
static inline T pow_##T(T a, T b) \
{ \
    if (b < 0) return a == 1 ? 1 : a == (T)-1 ? (T)(b & 1 ? -1 : 1) : 0; \
    u64 result = 1, base = (u64)a; \
    for (; b > 0; b >>= 1, base *= base) if (b & 1) result *= base; \
    return (T)result; \
}
INTEGER(i8, u8, 8) INTEGER(i16, u16, 16) INTEGER(i32, u32, 32) INTEGER(i64, u64, 64)
INTEGER(u8, u8, 8) INTEGER(u16, u16, 16) INTEGER(u32, u32, 32) INTEGER(u64, u64, 64)

/* NaN of either side goes to the result of min and max. Remainders have the sign of the divisor. */
#define FLOAT(T, S) \
static inline T min_##T(T a, T b) { return a != a || a < b ? a : b; } \
static inline T max_##T(T a, T b) { return a != a || a > b ? a : b; } \
static inline T rsqrt_##T(T a) { return 1 / sqrt##S(a); } \
static inline T truncdiv_##T(T a, T b) { return trunc##S(a / b); } \
static inline T mod_##T(T a, T b) \
{ T r = fmod##S(a, b); return r == 0 ? copysign##S(r, b) : (r < 0) != (b < 0) ? r + b : r; } \
static inline T floordiv_##T(T a, T b) \
{ \
    T r = fmod##S(a, b), q = (a - r) / b; \
    if (b == 0) return a / b; \
    if (r != 0 && (r < 0) != (b < 0)) q -= 1; \
    if (q == 0) return copysign##S(0, a / b); \
    return floor##S(q) + (q - floor##S(q) > (T)0.5); \
}
FLOAT(f32, f) FLOAT(f64, )

/* Floats to integers: truncated, the nearest where out of range, 0 for NaN. Every f32 is an f64. */
#define FROM_FLOAT(T, LOW, HIGH, BEYOND) \
static inline T to_##T(f64 a) { return a != a ? 0 : a <= (f64)LOW ? LOW : a >= BEYOND ? HIGH : (T)a; }
FROM_FLOAT(i32, INT32_MIN, INT32_MAX, 0x1p31) FROM_FLOAT(i64, INT64_MIN, INT64_MAX, 0x1p63)
FROM_FLOAT(u32, 0, UINT32_MAX, 0x1p32) FROM_FLOAT(u64, 0, UINT64_MAX, 0x1p64)
