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

/* What exp and the sigmoid share, of the rounded n and r = x - n ln 2 in [-ln2/2, ln2/2]: exp(r)
 * by a polynomial of degree 6, relative error about 1e-7.  Summed in Estrin's order: a vector waits
 * for its own chain, of which few fit into a core's window. */
AOTC_INLINE aotc_vf aotc_exp_rest(aotc_vf x, aotc_vf n)
{
    aotc_vf r = aotc_fma(n, aotc_splat(-0.693359375f), x), r2, low2, p;
    r = aotc_fma(n, aotc_splat(2.12194440e-4f), r);
    r2 = r * r;
    low2 = aotc_fma(r, aotc_splat(1.6666665459e-1f), aotc_splat(5.0000001201e-1f));
    p = aotc_fma(r, aotc_splat(8.3334519073e-3f), aotc_splat(4.1665795894e-2f));
    p = aotc_fma(r2, aotc_fma(r, aotc_splat(1.9875691500e-4f), aotc_splat(1.3981999507e-3f)), p);
    return aotc_fma(r2, aotc_fma(r2, p, low2), r) + aotc_splat(1.0f);
}

/* exp: 0 below -87.33 (no denormals: they cost 100 cycles each in a following product), infinity
 * above 88.72, NaN for NaN. */
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
    aotc_vf p = aotc_exp_rest(x, n);
#if defined(__AVX512F__) && AOTC_LANES == 16
    return (aotc_vf)_mm512_maskz_scalef_ps(
        _mm512_cmp_ps_mask((__m512)x0, (__m512)low, _CMP_NLT_UQ), (__m512)p, (__m512)n);
#else
    p = (aotc_vf)((aotc_vu)p + ((aotc_vu)m << 23)); /* times 2^n: normal between the bounds */
    p = aotc_select(x0 < aotc_splat(88.722839f), p, x0 + aotc_splat(INFINITY));
    return aotc_select(x0 < low, aotc_splat(0.0f), p);
#endif
}

/* 1 / (1 + exp(-x)): 0 from -88.4 downwards, where 2^n is infinite.  The low bits of m are n + 127,
 * those of 2^n as a float. */
AOTC_INLINE aotc_vf aotc_vsigmoid(aotc_vf x0)
{
    const aotc_vf magic = aotc_splat(12583039.0f), one = aotc_splat(1.0f);
    const aotc_vf x = aotc_min_c(aotc_splat(89.0f), aotc_max_c(aotc_splat(-87.3f), -x0));
    const aotc_vf m = aotc_fma(x, aotc_splat(1.44269504f), magic);
    return one / aotc_fma(aotc_exp_rest(x, m - magic), (aotc_vf)((aotc_vu)m << 23), one);
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

/* erf(s * x), s > 0 and a constant, which becomes a part of the coefficients: x P(t) / Q(t) with
 * t = min(x^2, end), absolute error below 6e-7.  Beyond the end, |s * x| = 3.7, the quotient grows
 * with x and is cut at 1: exactly 1, for what is left of 1 would be multiplied by a large x. */
AOTC_INLINE aotc_vf aotc_verf_scaled(aotc_vf x, double s)
{
    const double s2 = s * s, s4 = s2 * s2, s8 = s4 * s4;
    const aotc_vf t = aotc_min_c(aotc_splat((float)(3.7 * 3.7 / s2)), x * x);
    aotc_vf p = aotc_splat((float)(2.7025190287e-04 * s8 * s));
    aotc_vf q = aotc_splat((float)(1.6334556441e-05 * s8 * s2));
    p = aotc_fma(p, t, aotc_splat((float)(7.3038222462e-03 * s4 * s2 * s)));
    p = aotc_fma(p, t, aotc_splat((float)(6.3075115770e-02 * s4 * s)));
    p = aotc_fma(p, t, aotc_splat((float)(2.8491967183e-01 * s2 * s)));
    p = aotc_fma(p, t, aotc_splat((float)(1.1283780615e+00 * s)));
    q = aotc_fma(q, t, aotc_splat((float)(1.8525364965e-03 * s8)));
    q = aotc_fma(q, t, aotc_splat((float)(2.2028543999e-02 * s4 * s2)));
    q = aotc_fma(q, t, aotc_splat((float)(1.5122022501e-01 * s4)));
    q = aotc_fma(q, t, aotc_splat((float)(5.8582414754e-01 * s2)));
    q = aotc_fma(q, t, aotc_splat(1.0f));
    return aotc_min_c(aotc_splat(1.0f), aotc_max_c(aotc_splat(-1.0f), x * p / q));
}

/* tanh(s * x), as erf: the end is |s * x| = 7.9, absolute error below 4e-7. */
AOTC_INLINE aotc_vf aotc_vtanh_scaled(aotc_vf x, double s)
{
    const double s2 = s * s, s4 = s2 * s2, s8 = s4 * s4;
    const aotc_vf t = aotc_min_c(aotc_splat((float)(7.9 * 7.9 / s2)), x * x);
    aotc_vf p = aotc_splat((float)(1.7719926212e-05 * s4 * s2 * s));
    aotc_vf q = aotc_splat((float)(-3.1588039313e-10 * s8 * s2));
    p = aotc_fma(p, t, aotc_splat((float)(3.3825741175e-03 * s4 * s)));
    p = aotc_fma(p, t, aotc_splat((float)(1.3296749707e-01 * s2 * s)));
    p = aotc_fma(p, t, aotc_splat((float)(9.9999996238e-01 * s)));
    q = aotc_fma(q, t, aotc_splat((float)(5.2357189386e-07 * s8)));
    q = aotc_fma(q, t, aotc_splat((float)(3.0675693919e-04 * s4 * s2)));
    q = aotc_fma(q, t, aotc_splat((float)(2.5482991073e-02 * s4)));
    q = aotc_fma(q, t, aotc_splat((float)(4.6630067273e-01 * s2)));
    q = aotc_fma(q, t, aotc_splat(1.0f));
    return aotc_min_c(aotc_splat(1.0f), aotc_max_c(aotc_splat(-1.0f), x * p / q));
}

AOTC_INLINE aotc_vf aotc_verf(aotc_vf x)
{
    return aotc_verf_scaled(x, 1.0);
}

AOTC_INLINE aotc_vf aotc_vtanh(aotc_vf x)
{
    return aotc_vtanh_scaled(x, 1.0);
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
