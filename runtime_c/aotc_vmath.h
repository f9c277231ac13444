/* aotc_vmath.h: exp, log, erf, tanh, sin, cos and others on the vectors of aotc_vec.h, which
 * includes this file.  Branch-free polynomials on vectors; libm where a vector is one float, and
 * lane by lane where AOTC_EXACT_MATH is defined. */
#ifndef AOTC_VMATH_H
#define AOTC_VMATH_H

#if AOTC_LANES > 1
/* Lane by lane through libm, for functions without a polynomial here. */
#define AOTC_LANEWISE(name, call)                 \
    AOTC_INLINE aotc_vf name(aotc_vf x)           \
    {                                             \
        float t[AOTC_LANES];                      \
        aotc_store(t, x);                         \
        for (int l = 0; l < AOTC_LANES; ++l)      \
            t[l] = call(t[l]);                    \
        return aotc_load(t);                      \
    }

#ifdef AOTC_EXACT_MATH
AOTC_LANEWISE(aotc_vexp, expf)
AOTC_LANEWISE(aotc_vlog, logf)
AOTC_LANEWISE(aotc_verf, erff)
AOTC_LANEWISE(aotc_vtanh, tanhf)
AOTC_LANEWISE(aotc_vsin, sinf)
AOTC_LANEWISE(aotc_vcos, cosf)
#else
typedef uint32_t aotc_vu __attribute__((vector_size(AOTC_VEC_BYTES)));

AOTC_INLINE aotc_vf aotc_to_float(aotc_vm i)
{
    return __builtin_convertvector(i, aotc_vf);
}

/* The nearest integer of x, |x| < 2^22, both as float and as int. */
AOTC_INLINE aotc_vf aotc_nearest(aotc_vf x, aotc_vm *i)
{
    const aotc_vf magic = aotc_splat(12582912.0f);
    const aotc_vf m = x + magic;
    *i = (aotc_vm)m - (aotc_vm)magic;
    return m - magic;
}

/* exp: degree-6 polynomial on [-ln2/2, ln2/2], relative error about 1e-7; 0 below -87.33
 * (no denormals: they cost 100 cycles each in a following product), infinity above 88.72, NaN for
 * NaN. */
AOTC_INLINE aotc_vf aotc_vexp(aotc_vf x0)
{
    const aotc_vf low = aotc_splat(-87.33f), magic = aotc_splat(12582912.0f);
#if defined(__AVX512F__) && AOTC_LANES == 16
    const aotc_vf x = aotc_min_c(aotc_splat(89.0f), aotc_max_c(aotc_splat(-104.0f), x0));
#else
    const aotc_vf x = x0; /* what is computed beyond the bounds is chosen away */
#endif
    const aotc_vf m = aotc_fma(x, aotc_splat(1.44269504f), magic); /* low bits: n as an integer */
    const aotc_vf n = m - magic;
    aotc_vf r = aotc_fma(n, aotc_splat(-0.693359375f), x), r2, low2, p;
    r = aotc_fma(n, aotc_splat(2.12194440e-4f), r);
    /* Estrin's order: a vector waits for its own chain, of which few fit into a core's window */
    r2 = r * r;
    low2 = aotc_fma(r, aotc_splat(1.6666665459e-1f), aotc_splat(5.0000001201e-1f));
    p = aotc_fma(r, aotc_splat(8.3334519073e-3f), aotc_splat(4.1665795894e-2f));
    p = aotc_fma(r2, aotc_fma(r, aotc_splat(1.9875691500e-4f), aotc_splat(1.3981999507e-3f)), p);
    p = aotc_fma(r2, aotc_fma(r2, p, low2), r) + aotc_splat(1.0f);
#if defined(__AVX512F__) && AOTC_LANES == 16
    return (aotc_vf)_mm512_maskz_scalef_ps(
        _mm512_cmp_ps_mask((__m512)x0, (__m512)low, _CMP_NLT_UQ), (__m512)p, (__m512)n);
#else
    p = (aotc_vf)((aotc_vu)p + ((aotc_vu)m << 23)); /* times 2^n: normal between the bounds */
    p = aotc_select(x0 < aotc_splat(88.722839f), p, x0 + aotc_splat(INFINITY));
    return aotc_select(x0 < low, aotc_splat(0.0f), p);
#endif
}

/* log: cephes polynomial, relative error about 1e-7; -infinity at 0, NaN below. */
AOTC_INLINE aotc_vf aotc_vlog(aotc_vf x)
{
    const aotc_vf tiny = aotc_splat(1.17549435e-38f), one = aotc_splat(1.0f);
    const aotc_vm denormal = x < tiny;
    const aotc_vf y = aotc_select(denormal, x * aotc_splat(8388608.0f), x);
    aotc_vm e = (((aotc_vm)y >> 23) & 0xff) - 126;
    aotc_vf m = (aotc_vf)(((aotc_vm)y & 0x007fffff) | 0x3f000000);
    const aotc_vm low = m < aotc_splat(0.707106781f);
    aotc_vf p, z, n, r;
    e = e - (denormal & 23) + low; /* low is -1 where true */
    m = aotc_select(low, m + m, m) - one;
    n = aotc_to_float(e);
    z = m * m;
    p = aotc_splat(7.0376836292e-2f);
    p = aotc_fma(p, m, aotc_splat(-1.1514610310e-1f));
    p = aotc_fma(p, m, aotc_splat(1.1676998740e-1f));
    p = aotc_fma(p, m, aotc_splat(-1.2420140846e-1f));
    p = aotc_fma(p, m, aotc_splat(1.4249322787e-1f));
    p = aotc_fma(p, m, aotc_splat(-1.6668057665e-1f));
    p = aotc_fma(p, m, aotc_splat(2.0000714765e-1f));
    p = aotc_fma(p, m, aotc_splat(-2.4999993993e-1f));
    p = aotc_fma(p, m, aotc_splat(3.3333331174e-1f));
    p = p * m * z;
    p = aotc_fma(n, aotc_splat(-2.12194440e-4f), p);
    p = aotc_fma(z, aotc_splat(-0.5f), p);
    r = aotc_fma(n, aotc_splat(0.693359375f), m + p);
    r = aotc_select(x == aotc_splat(INFINITY), x, r);
    r = aotc_select(x == aotc_splat(0.0f), aotc_splat(-INFINITY), r);
    return aotc_select(x >= aotc_splat(0.0f), r, aotc_splat(NAN));
}

/* erf: rational on [-4, 4], absolute error below 4e-7. */
AOTC_INLINE aotc_vf aotc_verf(aotc_vf x0)
{
    const aotc_vf x = aotc_min_c(aotc_splat(4.0f), aotc_max_c(aotc_splat(-4.0f), x0));
    const aotc_vf t = x * x;
    aotc_vf p = aotc_splat(-2.72614225801306e-10f);
    aotc_vf q = aotc_splat(-1.45660718464996e-05f);
    p = aotc_fma(p, t, aotc_splat(2.77068142495902e-08f));
    p = aotc_fma(p, t, aotc_splat(-2.10102402082508e-06f));
    p = aotc_fma(p, t, aotc_splat(-5.69250639462346e-05f));
    p = aotc_fma(p, t, aotc_splat(-7.34990630326855e-04f));
    p = aotc_fma(p, t, aotc_splat(-2.95459980854025e-03f));
    p = aotc_fma(p, t, aotc_splat(-1.60960333262415e-02f));
    q = aotc_fma(q, t, aotc_splat(-2.13374055278905e-04f));
    q = aotc_fma(q, t, aotc_splat(-1.68282697438203e-03f));
    q = aotc_fma(q, t, aotc_splat(-7.37332916720468e-03f));
    q = aotc_fma(q, t, aotc_splat(-1.42647390514189e-02f));
    return x * p / q;
}

/* tanh: rational on [-7.9, 7.9], absolute error below 4e-7. */
AOTC_INLINE aotc_vf aotc_vtanh(aotc_vf x0)
{
    const aotc_vf x = aotc_min_c(aotc_splat(7.9f), aotc_max_c(aotc_splat(-7.9f), x0));
    const aotc_vf t = x * x;
    aotc_vf p = aotc_splat(-2.76076847742355e-16f);
    aotc_vf q = aotc_splat(1.19825839466702e-06f);
    p = aotc_fma(p, t, aotc_splat(2.00018790482477e-13f));
    p = aotc_fma(p, t, aotc_splat(-8.60467152213735e-11f));
    p = aotc_fma(p, t, aotc_splat(5.12229709037114e-08f));
    p = aotc_fma(p, t, aotc_splat(1.48572235717979e-05f));
    p = aotc_fma(p, t, aotc_splat(6.37261928875436e-04f));
    p = aotc_fma(p, t, aotc_splat(4.89352455891786e-03f));
    q = aotc_fma(q, t, aotc_splat(1.18534705686654e-04f));
    q = aotc_fma(q, t, aotc_splat(2.26843463243900e-03f));
    q = aotc_fma(q, t, aotc_splat(4.89352518554385e-03f));
    return x * p / q;
}

AOTC_LANEWISE(aotc_vsin_libm, sinf)
AOTC_LANEWISE(aotc_vcos_libm, cosf)

/* sin(x + quarter*pi/2) by octant reduction for |x| <= 8192, absolute error below 1e-6. */
AOTC_INLINE aotc_vf aotc_sincos(aotc_vf x, int quarter)
{
    aotc_vm i;
    const aotc_vf n = aotc_nearest(x * aotc_splat(0.636619772f), &i);
    aotc_vf r = aotc_fma(n, aotc_splat(-1.5703125f), x), t, s, c;
    r = aotc_fma(n, aotc_splat(-4.837512969970703125e-4f), r);
    r = aotc_fma(n, aotc_splat(-7.54978995489188216e-8f), r);
    t = r * r;
    s = aotc_fma(aotc_splat(-1.9515295891e-4f), t, aotc_splat(8.3321608736e-3f));
    s = aotc_fma(s, t, aotc_splat(-1.6666654611e-1f));
    s = aotc_fma(s * t, r, r);
    c = aotc_fma(aotc_splat(2.443315711809948e-5f), t, aotc_splat(-1.388731625493765e-3f));
    c = aotc_fma(c, t, aotc_splat(4.166664568298827e-2f));
    c = aotc_fma(c * t, t, aotc_fma(t, aotc_splat(-0.5f), aotc_splat(1.0f)));
    i += quarter;
    s = aotc_select((i & 1) != 0, c, s);
    return aotc_select((i & 2) != 0, -s, s);
}

AOTC_INLINE int aotc_any_large(aotc_vf x)
{
    return !(aotc_hmax(aotc_vabs(x)) <= 8192.0f);
}

AOTC_INLINE aotc_vf aotc_vsin(aotc_vf x)
{
    return aotc_any_large(x) ? aotc_vsin_libm(x) : aotc_sincos(x, 0);
}

AOTC_INLINE aotc_vf aotc_vcos(aotc_vf x)
{
    return aotc_any_large(x) ? aotc_vcos_libm(x) : aotc_sincos(x, 1);
}
#endif /* AOTC_EXACT_MATH */

/* x / s where all lanes have one divisor.  A division of a vector takes as long as a dozen
 * multiply-adds: where those are fused, the rounded reciprocal and one correction give the same
 * (Markstein), but for the last bit of quotients and remainders that underflow.  Infinities and
 * what overflows come from the product alone. */
AOTC_INLINE aotc_vf aotc_over(aotc_vf x, float s)
{
#if defined(AOTC_FUSED) && !defined(AOTC_EXACT_MATH)
    if (s >= 0x1p-126f && s <= 0x1p126f) {
        const aotc_vf d = aotc_splat(s), r = aotc_splat(1.0f / s), q = x * r;
        const aotc_vf p = aotc_fma(aotc_fma(-q, d, x), r, q);
        return aotc_select(p == p, p, q);
    }
#endif
    return x / aotc_splat(s);
}

AOTC_LANEWISE(aotc_vfloor, floorf)
AOTC_LANEWISE(aotc_vceil, ceilf)
AOTC_LANEWISE(aotc_vround, nearbyintf)

AOTC_INLINE aotc_vf aotc_vpow(aotc_vf a, aotc_vf b)
{
    float s[AOTC_LANES], t[AOTC_LANES];
    aotc_store(s, a);
    aotc_store(t, b);
    for (int l = 0; l < AOTC_LANES; ++l)
        t[l] = powf(s[l], t[l]);
    return aotc_load(t);
}
#else
#define aotc_over(x, s) ((x) / (s))
#define aotc_vexp expf
#define aotc_vlog logf
#define aotc_verf erff
#define aotc_vtanh tanhf
#define aotc_vsin sinf
#define aotc_vcos cosf
#define aotc_vfloor floorf
#define aotc_vceil ceilf
#define aotc_vround nearbyintf
#define aotc_vpow powf
#endif

#endif
