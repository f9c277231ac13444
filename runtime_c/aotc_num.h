/* aotc_num.h: scalar arithmetic on values that come from data, with a meaning for every operand.
 *
 * Integers wrap; division and remainder by zero give 0.  Shift counts outside the width shift
 * everything out.  Narrow types are computed in 64 bits and cast back by the caller, which is the
 * same: wrapping twice is wrapping once. */
#ifndef AOTC_NUM_H
#define AOTC_NUM_H

#include <stdint.h>

/* A model may ask whether a number is more than its type can be. */
#if defined(__GNUC__) && !defined(__CUDACC__)
#pragma GCC diagnostic ignored "-Wtype-limits"
#endif

#if !defined(AOTC_SCALAR) && defined(__CUDACC__)
#define AOTC_SCALAR static __host__ __device__ inline
#elif !defined(AOTC_SCALAR)
#define AOTC_SCALAR static inline
#endif

/* A function that keeps its registers to itself. */
#define AOTC_APART static __attribute__((noinline))

/* ------------------------------------------------------------------ division */

/* Toward zero; INT64_MIN / -1 wraps. */
AOTC_SCALAR int64_t aotc_idiv(int64_t a, int64_t b)
{
    if (b == 0)
        return 0;
    return b == -1 ? (int64_t)(0u - (uint64_t)a) : a / b;
}

/* Toward minus infinity. */
AOTC_SCALAR int64_t aotc_ifloordiv(int64_t a, int64_t b)
{
    const int64_t q = aotc_idiv(a, b);
    return b != 0 && b != -1 && a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

/* The remainder with the divisor's sign. */
AOTC_SCALAR int64_t aotc_ifloormod(int64_t a, int64_t b)
{
    int64_t r;
    if (b == 0 || b == -1)
        return 0;
    r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

AOTC_SCALAR uint64_t aotc_udiv(uint64_t a, uint64_t b)
{
    return b == 0 ? 0 : a / b;
}

AOTC_SCALAR uint64_t aotc_umod(uint64_t a, uint64_t b)
{
    return b == 0 ? 0 : a % b;
}

/* ------------------------------------------------------------------ shifts of `bits` wide types */

AOTC_SCALAR uint64_t aotc_shl(uint64_t a, uint64_t n, unsigned bits)
{
    return n < bits ? a << n : 0;
}

AOTC_SCALAR uint64_t aotc_ushr(uint64_t a, uint64_t n, unsigned bits)
{
    return n < bits ? a >> n : 0;
}

/* With copies of the sign. */
AOTC_SCALAR int64_t aotc_ishr(int64_t a, uint64_t n, unsigned bits)
{
    const uint64_t sign = a < 0 ? UINT64_MAX : 0;
    return (int64_t)((n < bits ? ((uint64_t)a ^ sign) >> n : 0) ^ sign);
}

/* ------------------------------------------------------------------ powers */

AOTC_SCALAR uint64_t aotc_upow(uint64_t a, uint64_t n)
{
    uint64_t out = 1;
    for (; n > 0; n >>= 1, a *= a)
        if (n & 1)
            out *= a;
    return out;
}

/* Negative exponents: 1 and -1 are their own inverses, other inverses round to 0. */
AOTC_SCALAR int64_t aotc_ipow(int64_t a, int64_t n)
{
    if (n >= 0)
        return (int64_t)aotc_upow((uint64_t)a, (uint64_t)n);
    if (a == -1)
        return (n & 1) != 0 ? -1 : 1;
    return a == 1;
}

/* ------------------------------------------------------------------ choice and sign */

AOTC_SCALAR uint64_t aotc_umin(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

AOTC_SCALAR uint64_t aotc_umax(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* NaN if either is NaN. */
AOTC_SCALAR double aotc_dmin(double a, double b)
{
    return a < b || a != a ? a : b;
}

AOTC_SCALAR double aotc_dmax(double a, double b)
{
    return a > b || a != a ? a : b;
}

AOTC_SCALAR int64_t aotc_isign(int64_t x)
{
    return (x > 0) - (x < 0);
}

AOTC_SCALAR int64_t aotc_iabs(int64_t x)
{
    return x < 0 ? (int64_t)(0u - (uint64_t)x) : x;
}

/* NaN stays NaN. */
AOTC_SCALAR double aotc_dsign(double x)
{
    return x != x ? x : (x > 0) - (x < 0);
}

AOTC_SCALAR float aotc_fsign(float x)
{
    return x != x ? x : (float)((x > 0) - (x < 0));
}

/* ------------------------------------------------------------------ floats to integers */

/* Truncation; NaN and what does not fit give the least number, as x86 does. */
AOTC_SCALAR int32_t aotc_f32_to_i32(float x)
{
    return x >= -2147483648.0f && x < 2147483648.0f ? (int32_t)x : INT32_MIN;
}

AOTC_SCALAR int32_t aotc_f64_to_i32(double x)
{
    return x > -2147483649.0 && x < 2147483648.0 ? (int32_t)x : INT32_MIN;
}

AOTC_SCALAR int64_t aotc_f64_to_i64(double x)
{
    return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? (int64_t)x : INT64_MIN;
}

AOTC_SCALAR uint64_t aotc_f64_to_u64(double x)
{
    return x >= 9223372036854775808.0 && x < 18446744073709551616.0 ? (uint64_t)x
                                                                    : (uint64_t)aotc_f64_to_i64(x);
}

/* ------------------------------------------------------------------ floats and their bits */

typedef union aotc_word32 {
    uint32_t bits;
    float value;
} aotc_word32;

typedef union aotc_word64 {
    uint64_t bits;
    double value;
} aotc_word64;

AOTC_SCALAR uint32_t aotc_bits_f32(float x)
{
    aotc_word32 u;
    u.value = x;
    return u.bits;
}

AOTC_SCALAR float aotc_float_u32(uint32_t bits)
{
    aotc_word32 u;
    u.bits = bits;
    return u.value;
}

AOTC_SCALAR uint64_t aotc_bits_f64(double x)
{
    aotc_word64 u;
    u.value = x;
    return u.bits;
}

AOTC_SCALAR double aotc_float_u64(uint64_t bits)
{
    aotc_word64 u;
    u.bits = bits;
    return u.value;
}

/* ------------------------------------------------------------------ half precision, as bits
 *
 * By an instruction where there is one, else by arithmetic with the same results: to nearest, ties
 * to even; a NaN becomes the quiet NaN of the same sign with the upper bits of its payload (on a
 * GPU, some NaN). */

#if defined(__F16C__) && !defined(__CUDACC__)
#include <immintrin.h>
#define AOTC_HALF_TO_FLOAT(h) _cvtsh_ss(h)
#define AOTC_FLOAT_TO_HALF(x) _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT)
#elif defined(__CUDA_ARCH__)
static __device__ inline float aotc_cvt_f16_f32(uint16_t h)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
}

static __device__ inline uint16_t aotc_cvt_f32_f16(float x)
{
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
#define AOTC_HALF_TO_FLOAT(h) aotc_cvt_f16_f32(h)
#define AOTC_FLOAT_TO_HALF(x) aotc_cvt_f32_f16(x)
#endif

AOTC_SCALAR float aotc_f16_to_f32(uint16_t h)
{
#if defined(AOTC_HALF_TO_FLOAT)
    return AOTC_HALF_TO_FLOAT(h);
#else
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u;
    const uint32_t mantissa = h & 0x3ffu, quiet = exponent == 31 && mantissa != 0 ? 0x400000u : 0u;
    if (exponent == 0) { /* zero or subnormal: units of 2^-24 */
        const float x = (float)mantissa * 0x1p-24f;
        return sign != 0 ? -x : x;
    }
    return aotc_float_u32(sign | (exponent == 31 ? 255u : exponent + 112) << 23 | mantissa << 13
                          | quiet);
#endif
}

AOTC_SCALAR uint16_t aotc_f64_to_f16(double x)
{
    const uint64_t bits = aotc_bits_f64(x);
    const uint32_t sign = (uint32_t)(bits >> 48) & 0x8000u;
    const int exponent = (int)(bits >> 52 & 2047) - 1008; /* biased as in binary16 */
    uint64_t mantissa = bits & (UINT64_MAX >> 12);
    int drop = 42; /* low bits that do not fit */
    if (exponent >= 31)
        return (uint16_t)(sign | (x != x ? 0x7e00u | (uint32_t)(mantissa >> 42) : 0x7c00u));
    if (exponent >= 1) {
        mantissa |= (uint64_t)(uint32_t)exponent << 52;
    } else { /* subnormal: units of 2^-24 */
        mantissa |= UINT64_C(1) << 52;
        drop += 1 - exponent;
        if (drop > 54)
            return (uint16_t)sign;
    }
    const uint64_t rest = mantissa & ((UINT64_C(1) << drop) - 1), half = UINT64_C(1) << (drop - 1);
    const uint32_t kept = (uint32_t)(mantissa >> drop);
    return (uint16_t)(sign | (kept + (rest > half || (rest == half && (kept & 1u) != 0))));
}

AOTC_SCALAR uint16_t aotc_f32_to_f16(float x)
{
#if defined(AOTC_FLOAT_TO_HALF)
    return AOTC_FLOAT_TO_HALF(x);
#else
    const uint32_t bits = aotc_bits_f32(x), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    if (rest >= 0x47800000u) /* 2^16 and above */
        return (uint16_t)(sign | (rest > 0x7f800000u ? 0x7e00u | (rest >> 13 & 0x3ffu) : 0x7c00u));
    if (rest < 0x38800000u) /* below 2^-14: the sum's last bit is worth 2^-24 */
        return (uint16_t)(sign | (aotc_bits_f32(aotc_float_u32(rest) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | (rest - (112u << 23) + 0xfffu + (rest >> 13 & 1u)) >> 13);
#endif
}

#endif
