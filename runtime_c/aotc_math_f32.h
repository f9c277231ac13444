/* aotc_math_f32.h: exp, log, tanh and erf of floats without doubles, for cores that compute those
 * in software.  aotc_math.h includes it there.  Relative error 3e-7 (exp, log, tanh), absolute 6e-7
 * (erf). */
#ifndef AOTC_MATH_F32_H
#define AOTC_MATH_F32_H

#include <stdint.h>
#include <string.h>

AOTC_MATH uint32_t aotc_mf_bits(float x)
{
    union {
        float value;
        uint32_t bits;
    } u = {x};
    return u.bits;
}

AOTC_MATH float aotc_mf_from_bits(uint32_t bits)
{
    union {
        uint32_t bits;
        float value;
    } u = {bits};
    return u.value;
}

/* 2^n for -126 <= n <= 127. */
AOTC_MATH float aotc_mf_power(int32_t n)
{
    return aotc_mf_from_bits((uint32_t)(n + 127) << 23);
}

/* exp(r) by a polynomial of degree 6, r what is left of x without the nearest multiple of ln 2. */
AOTC_MATH float aotc_mf_exp(float x)
{
    float r, p, m;
    int32_t n, half;
    if (!(x < 88.7228394f)) {
        return x != x ? x : INFINITY;
    }
    if (x < -104.0f) {
        return 0.0f;
    }
    n = (int32_t)(x * 1.44269504f + (x < 0.0f ? -0.5f : 0.5f));
    m = (float)n;
    r = (x - m * 0.693359375f) + m * 2.12194440e-4f;
    p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    half = n / 2;
    return p * aotc_mf_power(half) * aotc_mf_power(n - half);
}

AOTC_MATH float aotc_mf_log(float x)
{
    int32_t e = -126;
    uint32_t bits;
    float m, z, p;
    if (!(x > 0.0f)) {
        return x == 0.0f ? -INFINITY : NAN;
    }
    if (x > 3.40282347e+38f) {
        return x;
    }
    if (x < 1.17549435e-38f) {
        x *= 8388608.0f; /* 2^23 */
        e -= 23;
    }
    bits = aotc_mf_bits(x);
    e += (int32_t)(bits >> 23);
    m = aotc_mf_from_bits((bits & 0x007fffffu) | 0x3f000000u);
    if (m < 0.707106781f) {
        m += m;
        e--;
    }
    m -= 1.0f;
    z = m * m;
    p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    p = p * m * z - (float)e * 2.12194440e-4f - 0.5f * z;
    return (float)e * 0.693359375f + (m + p);
}

AOTC_MATH float aotc_mf_tanh(float x)
{
    const float a = x < 0.0f ? -x : x, z = x * x;
    float y;
    if (a < 0.625f) {
        y = -5.70498872745e-3f;
        y = y * z + 2.06390887954e-2f;
        y = y * z - 5.37397155531e-2f;
        y = y * z + 1.33314422036e-1f;
        y = y * z - 3.33332819422e-1f;
        return y * z * x + x;
    }
    if (a > 9.1f) {
        return x < 0.0f ? -1.0f : 1.0f;
    }
    if (x != x) {
        return x;
    }
    y = 1.0f - 2.0f / (aotc_mf_exp(a + a) + 1.0f);
    return x < 0.0f ? -y : y;
}

/* x P(x^2) / Q(x^2). */
AOTC_MATH float aotc_mf_erf(float x)
{
    const float t = x * x;
    float p = 2.7025190287e-04f, q = 1.6334556441e-05f;
    if (!(t < 3.7f * 3.7f)) {
        return x != x ? x : x < 0.0f ? -1.0f : 1.0f;
    }
    p = p * t + 7.3038222462e-03f;
    p = p * t + 6.3075115770e-02f;
    p = p * t + 2.8491967183e-01f;
    p = p * t + 1.1283780615e+00f;
    q = q * t + 1.8525364965e-03f;
    q = q * t + 2.2028543999e-02f;
    q = q * t + 1.5122022501e-01f;
    q = q * t + 5.8582414754e-01f;
    q = q * t + 1.0f;
    return x * p / q;
}

#endif
