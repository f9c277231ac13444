/* aotc_math.h: the functions of libm that kernels call, for builds without it (AOTC_NO_LIBM).
 *
 * Double results are good to about 1e-14 (pow: 1e-12), float ones are correct to a unit in the last
 * place. */
#ifndef AOTC_MATH_H
#define AOTC_MATH_H

#include <stdint.h>
#include <string.h>

#include "aotc_compiler.h"

#if !defined(__GNUC__)
#error "without libm, aotc_math.h needs gcc or clang"
#endif
#define AOTC_MATH static inline AOTC_MAY_BE_UNUSED
/* Where doubles are computed in software, float functions do without. */
#if defined(__arm__) && !(defined(__ARM_FP) && (__ARM_FP & 8)) \
    || defined(__riscv) && !(defined(__riscv_flen) && __riscv_flen >= 64)
#define AOTC_DOUBLES_IN_SOFTWARE
#endif
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define HUGE_VAL (__builtin_inf())
#define isinf(x) __builtin_isinf(x)
#define isnan(x) __builtin_isnan(x)

AOTC_MATH uint64_t aotc_bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

AOTC_MATH double aotc_from_bits(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

AOTC_MATH double aotc_m_fabs(double x)
{
    return aotc_from_bits(aotc_bits(x) & (UINT64_MAX >> 1));
}

/* To the nearest integer, halves to even: beyond 2^52 every double is one.  The volatile keeps
 * compilers from simplifying the sum away. */
AOTC_MATH double aotc_m_nearbyint(double x)
{
    const double big = 4503599627370496.0, a = aotc_m_fabs(x);
    volatile double y;
    if (!(a < big)) {
        return x;
    }
    y = a + big;
    y = y - big;
    return aotc_from_bits(aotc_bits(y) | (aotc_bits(x) & ~(UINT64_MAX >> 1)));
}

AOTC_MATH double aotc_m_floor(double x)
{
    const double y = aotc_m_nearbyint(x);
    return y > x ? y - 1.0 : y;
}

AOTC_MATH double aotc_m_ceil(double x)
{
    return -aotc_m_floor(-x);
}

/* Heron's iteration from a guess that halves the exponent. */
AOTC_MATH double aotc_m_sqrt(double x)
{
    double y, scale = 1.0;
    if (!(x > 0.0) || isinf(x)) {
        return x < 0.0 ? (double)NAN : x;
    }
    if (x < 1e-300) {
        x *= 18014398509481984.0; /* 2^54 */
        scale = 7.450580596923828125e-9; /* 2^-27 */
    }
    y = aotc_from_bits((aotc_bits(x) >> 1) + UINT64_C(0x1ff8000000000000));
    for (int i = 0; i < 5; i++) {
        y = 0.5 * (y + x / y);
    }
    return y * scale;
}

/* x * 2^n for -1022 <= n <= 1023. */
AOTC_MATH double aotc_scale(double x, int n)
{
    return x * aotc_from_bits((uint64_t)(n + 1023) << 52);
}

AOTC_MATH double aotc_m_exp(double x)
{
    double n, r, sum = 1.0;
    int half;
    if (!(x < 710.0)) {
        return x != x ? x : HUGE_VAL;
    }
    if (x < -746.0) {
        return 0.0;
    }
    n = aotc_m_nearbyint(x * 1.44269504088896340736);
    r = (x - n * 6.93147180369123816490e-1) - n * 1.90821492927058770002e-10;
    for (int k = 14; k > 0; k--) {
        sum = 1.0 + sum * r / (double)k;
    }
    half = (int)n / 2;
    return aotc_scale(aotc_scale(sum, half), (int)n - half);
}

/* atanh(s) for |s| < 0.18. */
AOTC_MATH double aotc_atanh_small(double s)
{
    double sum = 0.0;
    for (int k = 25; k > 0; k -= 2) {
        sum = sum * s * s + 1.0 / (double)k;
    }
    return s * sum;
}

AOTC_MATH double aotc_m_log(double x)
{
    int e = 0;
    double m;
    if (!(x > 0.0)) {
        return x == 0.0 ? -HUGE_VAL : (double)NAN;
    }
    if (isinf(x)) {
        return x;
    }
    if (x < 2.2250738585072014e-308) {
        x *= 18014398509481984.0; /* 2^54 */
        e = -54;
    }
    e += (int)(aotc_bits(x) >> 52) - 1023;
    m = aotc_from_bits((aotc_bits(x) & (UINT64_MAX >> 12)) | UINT64_C(0x3ff0000000000000));
    if (m > 1.4142135623730951) {
        m *= 0.5;
        e++;
    }
    m = 2.0 * aotc_atanh_small((m - 1.0) / (m + 1.0));
    return (double)e * 6.93147180369123816490e-1 + ((double)e * 1.90821492927058770002e-10 + m);
}

/* Of x >= 1e5, the multiples of pi/2 nearest to it, modulo 4, and what is left of it, at most pi/4
 * either way.  x is m * 2^e; words of 2/pi (bits behind the point) that give multiples of 4 are
 * passed over, and six more give all that a double tells apart. */
AOTC_MATH int64_t aotc_quarters(double x, double *rest)
{
    static const uint32_t two_by_pi[36] = {
        0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041,
        0xfe5163ab, 0xdebbc561, 0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c,
        0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41,
        0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f,
        0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d,
        0x7527bac7, 0xebe5f17b, 0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08
    };
    const uint64_t m = (aotc_bits(x) & (UINT64_MAX >> 12)) | UINT64_C(1) << 52;
    const int e = (int)(aotc_bits(x) >> 52) - 1075, first = e > 2 ? (e - 2) / 32 : 0;
    const int point = 192 - (e - 32 * first); /* of the product, in 160 .. 228 */
    uint32_t product[8] = {0}, above, below, inverse;
    double sum = 0.0;
    for (int half = 0; half < 2; half++) {
        const uint64_t digit = (m >> 32 * half) & UINT32_MAX;
        uint64_t carry = 0;
        for (int j = 0; j < 6; j++) {
            carry += digit * two_by_pi[first + 5 - j] + product[half + j];
            product[half + j] = (uint32_t)carry;
            carry >>= 32;
        }
        product[half + 6] = (uint32_t)carry;
    }
    above = ((product[point / 32] >> point % 32) & 1)
            + 2 * ((product[(point + 1) / 32] >> (point + 1) % 32) & 1);
    below = (product[(point - 1) / 32] >> (point - 1) % 32) & 1;
    inverse = below != 0 ? UINT32_MAX : 0; /* beyond a half: 1 less what is left, the other way */
    for (int j = 7; j >= 0; j--) {
        uint32_t digit = product[j] ^ inverse;
        if (32 * j >= point) {
            digit = 0;
        } else if (32 * j + 32 > point) {
            digit &= (UINT32_C(1) << (point - 32 * j)) - 1;
        }
        sum += aotc_scale((double)digit, 32 * j - point);
    }
    *rest = (below != 0 ? -1.57079632679489661923 : 1.57079632679489661923) * sum;
    return (int64_t)above + (int64_t)below;
}

/* sin(x + quarter*pi/2). */
AOTC_MATH double aotc_sine(double x, int64_t quarter)
{
    double n, r, s = 0.0, c = 0.0;
    if (!(aotc_m_fabs(x) < HUGE_VAL)) {
        return (double)NAN;
    }
    if (aotc_m_fabs(x) < 1e5) {
        n = aotc_m_nearbyint(x * 0.636619772367581343076);
        r = ((x - n * 1.57079632673412561417) - n * 6.07710050630396597660e-11)
            - n * 2.02226624879595063154e-21;
    } else {
        n = (double)aotc_quarters(aotc_m_fabs(x), &r);
        n = x < 0.0 ? -n : n;
        r = x < 0.0 ? -r : r;
    }
    for (int k = 18; k > 0; k -= 2) {
        s = (1.0 + s) * -r * r / (double)(k * (k + 1));
        c = (1.0 + c) * -r * r / (double)(k * (k - 1));
    }
    quarter += (int64_t)n;
    r = (quarter & 1) != 0 ? 1.0 + c : r + r * s;
    return (quarter & 2) != 0 ? -r : r;
}

AOTC_MATH double aotc_m_sin(double x)
{
    return x == 0.0 ? x : aotc_sine(x, 0);
}

AOTC_MATH double aotc_m_cos(double x)
{
    return aotc_sine(x, 1);
}

AOTC_MATH double aotc_m_tan(double x)
{
    return aotc_m_sin(x) / aotc_sine(x, 1);
}

/* Halving the angle three times leaves |x| < 0.2. */
AOTC_MATH double aotc_m_atan(double x)
{
    double sum = 0.0;
    if (!(aotc_m_fabs(x) < 1e17)) {
        return x != x ? x : x > 0.0 ? 1.57079632679489661923 : -1.57079632679489661923;
    }
    for (int i = 0; i < 3; i++) {
        x = x / (1.0 + aotc_m_sqrt(1.0 + x * x));
    }
    for (int k = 23; k > 0; k -= 2) {
        sum = sum * -x * x + 1.0 / (double)k;
    }
    return 8.0 * x * sum;
}

AOTC_MATH double aotc_m_asin(double x)
{
    return aotc_m_fabs(x) > 1.0 ? (double)NAN : aotc_m_atan(x / aotc_m_sqrt((1.0 - x) * (1.0 + x)));
}

AOTC_MATH double aotc_m_acos(double x)
{
    return aotc_m_fabs(x) > 1.0 ? (double)NAN
                                : 2.0 * aotc_m_atan(aotc_m_sqrt((1.0 - x) / (1.0 + x)));
}

AOTC_MATH double aotc_m_sinh(double x)
{
    double sum = 0.0;
    if (aotc_m_fabs(x) > 1.0) {
        const double root = aotc_m_exp(0.5 * aotc_m_fabs(x));
        const double y = 0.5 * root * root - 0.5 / root / root;
        return x < 0.0 ? -y : y;
    }
    for (int k = 18; k > 0; k -= 2) {
        sum = (1.0 + sum) * x * x / (double)(k * (k + 1));
    }
    return x + x * sum;
}

AOTC_MATH double aotc_m_cosh(double x)
{
    const double half = aotc_m_exp(0.5 * aotc_m_fabs(x));
    return 0.5 * half * half + 0.5 / half / half;
}

AOTC_MATH double aotc_m_tanh(double x)
{
    const double e = aotc_m_exp(-2.0 * aotc_m_fabs(x));
    if (aotc_m_fabs(x) < 1.0) {
        return aotc_m_sinh(x) / aotc_m_cosh(x);
    }
    return x < 0.0 ? -(1.0 - e) / (1.0 + e) : (1.0 - e) / (1.0 + e);
}

AOTC_MATH double aotc_m_atanh(double x)
{
    return aotc_m_fabs(x) < 0.18 ? aotc_atanh_small(x) : 0.5 * aotc_m_log((1.0 + x) / (1.0 - x));
}

AOTC_MATH double aotc_m_asinh(double x)
{
    const double a = aotc_m_fabs(x);
    double y;
    if (!(a < 1e9)) {
        y = aotc_m_log(a) + 6.93147180559945309417e-1;
    } else {
        y = a < 0.1 ? aotc_atanh_small(a / aotc_m_sqrt(1.0 + a * a))
                    : aotc_m_log(a + aotc_m_sqrt(a * a + 1.0));
    }
    return x > 0.0 ? y : x < 0.0 ? -y : x;
}

AOTC_MATH double aotc_m_acosh(double x)
{
    if (!(x >= 1.0)) {
        return (double)NAN;
    }
    return x > 1e9 ? aotc_m_log(x) + 6.93147180559945309417e-1
                   : aotc_m_log(x + aotc_m_sqrt((x - 1.0) * (x + 1.0)));
}

/* exp(-x^2) * sum of positive terms: nothing cancels. */
AOTC_MATH double aotc_m_erf(double x)
{
    double term = x, sum = x;
    if (!(aotc_m_fabs(x) < 6.0)) {
        return x != x ? x : x > 0.0 ? 1.0 : -1.0;
    }
    for (int k = 1; k < 160 && aotc_m_fabs(term) > 1e-17 * aotc_m_fabs(sum); k++) {
        term *= 2.0 * x * x / (double)(2 * k + 1);
        sum += term;
    }
    return 1.12837916709551257390 * aotc_m_exp(-x * x) * sum;
}

AOTC_MATH double aotc_m_pow(double a, double b)
{
    const int whole = aotc_m_nearbyint(b) == b;
    const double halved = 0.5 * b;
    const int odd = whole && aotc_m_nearbyint(halved) != halved;
    double y;
    if (b == 0.0 || a == 1.0) {
        return 1.0;
    }
    if (a < 0.0 && !whole && !isinf(a)) {
        return (double)NAN;
    }
    if (a == -1.0 && isinf(b)) {
        return 1.0;
    }
    y = aotc_m_exp(b * aotc_m_log(aotc_m_fabs(a)));
    return odd && (aotc_bits(a) >> 63) != 0 ? -y : y;
}

/* The exponent of x > 0, plus 1023. */
AOTC_MATH int aotc_exponent(double x)
{
    const int e = (int)(aotc_bits(x) >> 52);
    return e != 0 ? e : (int)(aotc_bits(x * 18014398509481984.0) >> 52) - 54;
}

/* What is left after taking y away as often as it fits, by its largest doubling first: every
 * difference is exact. */
AOTC_MATH double aotc_m_fmod(double x, double y)
{
    const double b = aotc_m_fabs(y);
    double a = aotc_m_fabs(x);
    if (!(b > 0.0) || !(a < HUGE_VAL)) {
        return (double)NAN;
    }
    while (a >= b) {
        const int n = aotc_exponent(a) - aotc_exponent(b), third = n / 3;
        const double part = aotc_scale(aotc_scale(aotc_scale(b, third), third), n - 2 * third);
        a -= part > a ? 0.5 * part : part;
    }
    return (aotc_bits(x) >> 63) != 0 ? -a : a;
}

AOTC_MATH float aotc_mf_sqrt(float x)
{
#if defined(__ARM_FP) && (__ARM_FP & 4) && !defined(__aarch64__)
    float y;
    __asm__("vsqrt.f32 %0, %1" : "=t"(y) : "t"(x));
    return y;
#else
    return (float)aotc_m_sqrt((double)x);
#endif
}

AOTC_MATH float aotc_mf_fabs(float x)
{
    return x < 0.0f ? -x : x + 0.0f;
}

#define AOTC_MATH_FLOAT(name)                   \
    AOTC_MATH float aotc_mf_##name(float x)     \
    {                                           \
        return (float)aotc_m_##name((double)x); \
    }
AOTC_MATH_FLOAT(sin) AOTC_MATH_FLOAT(cos)
AOTC_MATH_FLOAT(tan) AOTC_MATH_FLOAT(asin) AOTC_MATH_FLOAT(acos) AOTC_MATH_FLOAT(atan)
AOTC_MATH_FLOAT(sinh) AOTC_MATH_FLOAT(cosh) AOTC_MATH_FLOAT(asinh)
AOTC_MATH_FLOAT(acosh) AOTC_MATH_FLOAT(atanh)
#if defined(AOTC_DOUBLES_IN_SOFTWARE)
#include "aotc_math_f32.h"
#else
AOTC_MATH_FLOAT(exp) AOTC_MATH_FLOAT(log) AOTC_MATH_FLOAT(tanh) AOTC_MATH_FLOAT(erf)
#endif

/* In f32 itself: beyond 2^23 every float is an integer. */
AOTC_MATH float aotc_mf_nearbyint(float x)
{
    const float big = 8388608.0f, a = x < 0.0f ? -x : x;
#if __FLT_EVAL_METHOD__ == 0
    float y;
#else
    volatile float y;
#endif
    if (!(a < big)) {
        return x;
    }
    y = a + big;
    y = y - big;
    return __builtin_copysignf(y, x);
}

AOTC_MATH float aotc_mf_floor(float x)
{
    const float y = aotc_mf_nearbyint(x);
    return y > x ? y - 1.0f : y;
}

AOTC_MATH float aotc_mf_ceil(float x)
{
    return -aotc_mf_floor(-x);
}

AOTC_MATH float aotc_mf_pow(float a, float b)
{
    return (float)aotc_m_pow((double)a, (double)b);
}

AOTC_MATH float aotc_mf_fmod(float a, float b)
{
    return (float)aotc_m_fmod((double)a, (double)b);
}

#define fabs aotc_m_fabs
#define nearbyint aotc_m_nearbyint
#define floor aotc_m_floor
#define ceil aotc_m_ceil
#define sqrt aotc_m_sqrt
#define exp aotc_m_exp
#define log aotc_m_log
#define sin aotc_m_sin
#define cos aotc_m_cos
#define tan aotc_m_tan
#define asin aotc_m_asin
#define acos aotc_m_acos
#define atan aotc_m_atan
#define sinh aotc_m_sinh
#define cosh aotc_m_cosh
#define tanh aotc_m_tanh
#define asinh aotc_m_asinh
#define acosh aotc_m_acosh
#define atanh aotc_m_atanh
#define erf aotc_m_erf
#define pow aotc_m_pow
#define fmod aotc_m_fmod
#define fabsf aotc_mf_fabs
#define nearbyintf aotc_mf_nearbyint
#define floorf aotc_mf_floor
#define ceilf aotc_mf_ceil
#define sqrtf aotc_mf_sqrt
#define expf aotc_mf_exp
#define logf aotc_mf_log
#define sinf aotc_mf_sin
#define cosf aotc_mf_cos
#define tanf aotc_mf_tan
#define asinf aotc_mf_asin
#define acosf aotc_mf_acos
#define atanf aotc_mf_atan
#define sinhf aotc_mf_sinh
#define coshf aotc_mf_cosh
#define tanhf aotc_mf_tanh
#define asinhf aotc_mf_asinh
#define acoshf aotc_mf_acosh
#define atanhf aotc_mf_atanh
#define erff aotc_mf_erf
#define powf aotc_mf_pow
#define fmodf aotc_mf_fmod

#endif
