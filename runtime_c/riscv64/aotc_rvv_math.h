/* aotc_rvv_math.h: functions on vectors of AOTC_GROUP registers; aotc_rvv.h includes this file once
 * for each group, so it has no include guard.  Accuracy is that of aotc_vmath.h,
 * and with AOTC_EXACT_MATH that of libm. */

#define AOTC_PASTE_(a, b) a##b
#define AOTC_PASTE(a, b) AOTC_PASTE_(a, b)
#define AOTC_M(name) AOTC_PASTE(name, AOTC_PASTE(_m, AOTC_GROUP))
#define AOTC_F AOTC_PASTE(vfloat32m, AOTC_PASTE(AOTC_GROUP, _t))
#define AOTC_I AOTC_PASTE(vint32m, AOTC_PASTE(AOTC_GROUP, _t))
#define AOTC_SPLAT AOTC_PASTE(__riscv_vfmv_v_f_f32m, AOTC_GROUP)
#define AOTC_AS_INT(x) AOTC_PASTE(__riscv_vreinterpret_v_f32m, AOTC_PASTE(AOTC_GROUP, \
    AOTC_PASTE(_i32m, AOTC_GROUP)))(x)
#define AOTC_AS_FLOAT(x) AOTC_PASTE(__riscv_vreinterpret_v_i32m, AOTC_PASTE(AOTC_GROUP, \
    AOTC_PASTE(_f32m, AOTC_GROUP)))(x)
#define AOTC_ALL AOTC_PASTE(__riscv_vsetvlmax_e32m, AOTC_GROUP)

/* ------------------------------------------------------------------ maximum and minimum */

/* The larger of c and x, and x where x is NaN: for a constant c. */
AOTC_RVV AOTC_F AOTC_M(aotc_max_c)(float c, AOTC_F x, size_t vl)
{
    return __riscv_vfmerge(x, c, __riscv_vmflt(x, c, vl), vl);
}

AOTC_RVV AOTC_F AOTC_M(aotc_min_c)(float c, AOTC_F x, size_t vl)
{
    return __riscv_vfmerge(x, c, __riscv_vmfgt(x, c, vl), vl);
}

/* max(x, 0) for the result of arithmetic: where that is NaN, its sign is clear, so that comparing
 * the bits as integers keeps it. */
AOTC_RVV AOTC_F AOTC_M(aotc_relu)(AOTC_F x, size_t vl)
{
    return AOTC_AS_FLOAT(__riscv_vmax(AOTC_AS_INT(x), 0, vl));
}

/* a where it is the larger one, and where it is NaN; b if that is NaN. */
AOTC_RVV AOTC_MASK AOTC_M(aotc_keeps_max)(AOTC_F a, AOTC_F b, size_t vl)
{
    return __riscv_vmor(__riscv_vmfge(a, b, vl), __riscv_vmfne(a, a, vl), vl);
}

AOTC_RVV AOTC_MASK AOTC_M(aotc_keeps_min)(AOTC_F a, AOTC_F b, size_t vl)
{
    return __riscv_vmor(__riscv_vmfle(a, b, vl), __riscv_vmfne(a, a, vl), vl);
}

/* Lanes from vl on keep those of a. */
AOTC_RVV AOTC_F AOTC_M(aotc_max_tu)(AOTC_F a, AOTC_F b, size_t vl)
{
    return __riscv_vmerge_tu(a, b, a, AOTC_M(aotc_keeps_max)(a, b, vl), vl);
}

AOTC_RVV AOTC_F AOTC_M(aotc_min_tu)(AOTC_F a, AOTC_F b, size_t vl)
{
    return __riscv_vmerge_tu(a, b, a, AOTC_M(aotc_keeps_min)(a, b, vl), vl);
}

AOTC_RVV AOTC_F AOTC_M(aotc_max)(AOTC_F a, AOTC_F b, size_t vl)
{
    return __riscv_vmerge(b, a, AOTC_M(aotc_keeps_max)(a, b, vl), vl);
}

AOTC_RVV AOTC_F AOTC_M(aotc_min)(AOTC_F a, AOTC_F b, size_t vl)
{
    return __riscv_vmerge(b, a, AOTC_M(aotc_keeps_min)(a, b, vl), vl);
}

/* ------------------------------------------------------------------ across all lanes */

AOTC_RVV float AOTC_M(aotc_hsum)(AOTC_F v)
{
    return __riscv_vfmv_f(__riscv_vfredusum(v, __riscv_vfmv_s_f_f32m1(0.0f, 1), AOTC_ALL()));
}

AOTC_RVV float AOTC_M(aotc_hmax)(AOTC_F v)
{
    const vfloat32m1_t low = __riscv_vfmv_s_f_f32m1(-INFINITY, 1);
    const float m = __riscv_vfmv_f(__riscv_vfredmax(v, low, AOTC_ALL()));
    return __riscv_vfirst(__riscv_vmfne(v, v, AOTC_ALL()), AOTC_ALL()) < 0 ? m : NAN;
}

AOTC_RVV float AOTC_M(aotc_hmin)(AOTC_F v)
{
    const vfloat32m1_t high = __riscv_vfmv_s_f_f32m1(INFINITY, 1);
    const float m = __riscv_vfmv_f(__riscv_vfredmin(v, high, AOTC_ALL()));
    return __riscv_vfirst(__riscv_vmfne(v, v, AOTC_ALL()), AOTC_ALL()) < 0 ? m : NAN;
}

/* ------------------------------------------------------------------ lane by lane through libm */

/* The results enter at one end while the arguments leave at the other. */
#define AOTC_LANEWISE_RVV(name, call)                              \
    AOTC_RVV AOTC_F AOTC_M(name)(AOTC_F x, size_t vl)              \
    {                                                              \
        for (size_t l = 0; l < vl; ++l)                            \
            x = __riscv_vfslide1down(x, call(__riscv_vfmv_f(x)), vl); \
        return x;                                                  \
    }

AOTC_RVV AOTC_F AOTC_M(aotc_pow)(AOTC_F a, AOTC_F b, size_t vl)
{
    for (size_t l = 0; l < vl; ++l) {
        a = __riscv_vfslide1down(a, powf(__riscv_vfmv_f(a), __riscv_vfmv_f(b)), vl);
        b = __riscv_vfslide1down(b, 0.0f, vl);
    }
    return a;
}

#ifdef AOTC_EXACT_MATH
AOTC_LANEWISE_RVV(aotc_exp, expf)
AOTC_LANEWISE_RVV(aotc_log, logf)
AOTC_LANEWISE_RVV(aotc_erf, erff)
AOTC_LANEWISE_RVV(aotc_tanh, tanhf)
AOTC_LANEWISE_RVV(aotc_sin, sinf)
AOTC_LANEWISE_RVV(aotc_cos, cosf)
#else
/* ------------------------------------------------------------------ polynomials */

/* p*x + c: one step of Horner's rule. */
AOTC_RVV AOTC_F AOTC_M(aotc_horner)(AOTC_F p, AOTC_F x, float c, size_t vl)
{
    return __riscv_vfmadd(p, x, AOTC_SPLAT(c, vl), vl);
}

/* exp: degree-6 polynomial on [-ln2/2, ln2/2], relative error about 1e-7; 0 below -87.33 (no
 * denormals), infinity above 88.72283, NaN for NaN. */
AOTC_RVV AOTC_F AOTC_M(aotc_exp)(AOTC_F x, size_t vl)
{
    const AOTC_I n = __riscv_vfcvt_x(__riscv_vfmul(x, 1.44269504f, vl), __RISCV_FRM_RNE, vl);
    const AOTC_F f = __riscv_vfcvt_f(n, vl);
    AOTC_F r = __riscv_vfnmsac(x, 0.693359375f, f, vl), p;
    r = __riscv_vfmacc(r, 2.12194440e-4f, f, vl);
    p = __riscv_vfadd(__riscv_vfmul(r, 1.9875691500e-4f, vl), 1.3981999507e-3f, vl);
    p = AOTC_M(aotc_horner)(p, r, 8.3334519073e-3f, vl);
    p = AOTC_M(aotc_horner)(p, r, 4.1665795894e-2f, vl);
    p = AOTC_M(aotc_horner)(p, r, 1.6666665459e-1f, vl);
    p = AOTC_M(aotc_horner)(p, r, 5.0000001201e-1f, vl);
    p = __riscv_vfadd(__riscv_vfmadd(__riscv_vfmul(p, r, vl), r, r, vl), 1.0f, vl);
    /* times 2^n in the exponent; where that leaves the normal range, one of the merges decides */
    p = AOTC_AS_FLOAT(__riscv_vadd(AOTC_AS_INT(p), __riscv_vsll(n, 23, vl), vl));
    p = __riscv_vmerge(__riscv_vfmul(x, INFINITY, vl), p, __riscv_vmfle(x, 88.72283f, vl), vl);
    return __riscv_vfmerge(p, 0.0f, __riscv_vmflt(x, -87.33f, vl), vl);
}

/* log: cephes polynomial, relative error about 1e-7; -infinity at 0, NaN below. */
AOTC_RVV AOTC_F AOTC_M(aotc_log)(AOTC_F x, size_t vl)
{
    const AOTC_MASK denormal = __riscv_vmflt(x, 1.17549435e-38f, vl);
    const AOTC_I bits = AOTC_AS_INT(__riscv_vmerge(x, __riscv_vfmul(x, 8388608.0f, vl), denormal,
                                                   vl));
    AOTC_I e = __riscv_vadd(__riscv_vand(__riscv_vsra(bits, 23, vl), 0xff, vl), -126, vl);
    AOTC_F m = AOTC_AS_FLOAT(__riscv_vor(__riscv_vand(bits, 0x007fffff, vl), 0x3f000000, vl));
    const AOTC_MASK low = __riscv_vmflt(m, 0.707106781f, vl);
    AOTC_F n, p, r, z;
    e = __riscv_vmerge(e, __riscv_vadd(e, -23, vl), denormal, vl);
    e = __riscv_vmerge(e, __riscv_vadd(e, -1, vl), low, vl);
    m = __riscv_vfadd(__riscv_vmerge(m, __riscv_vfadd(m, m, vl), low, vl), -1.0f, vl);
    n = __riscv_vfcvt_f(e, vl);
    z = __riscv_vfmul(m, m, vl);
    p = __riscv_vfadd(__riscv_vfmul(m, 7.0376836292e-2f, vl), -1.1514610310e-1f, vl);
    p = AOTC_M(aotc_horner)(p, m, 1.1676998740e-1f, vl);
    p = AOTC_M(aotc_horner)(p, m, -1.2420140846e-1f, vl);
    p = AOTC_M(aotc_horner)(p, m, 1.4249322787e-1f, vl);
    p = AOTC_M(aotc_horner)(p, m, -1.6668057665e-1f, vl);
    p = AOTC_M(aotc_horner)(p, m, 2.0000714765e-1f, vl);
    p = AOTC_M(aotc_horner)(p, m, -2.4999993993e-1f, vl);
    p = AOTC_M(aotc_horner)(p, m, 3.3333331174e-1f, vl);
    p = __riscv_vfmul(__riscv_vfmul(p, m, vl), z, vl);
    p = __riscv_vfmacc(p, -2.12194440e-4f, n, vl);
    p = __riscv_vfmacc(p, -0.5f, z, vl);
    r = __riscv_vfmacc(__riscv_vfadd(m, p, vl), 0.693359375f, n, vl);
    r = __riscv_vmerge(r, x, __riscv_vmfeq(x, INFINITY, vl), vl);
    r = __riscv_vfmerge(r, -INFINITY, __riscv_vmfeq(x, 0.0f, vl), vl);
    return __riscv_vmerge(AOTC_SPLAT(NAN, vl), r, __riscv_vmfge(x, 0.0f, vl), vl);
}

/* -1 to 1. */
AOTC_RVV AOTC_F AOTC_M(aotc_cut)(AOTC_F x, size_t vl)
{
    return AOTC_M(aotc_min_c)(1.0f, AOTC_M(aotc_max_c)(-1.0f, x, vl), vl);
}

/* erf: x P(t) / Q(t) with t = min(x^2, 3.7^2), absolute error below 6e-7.  Beyond 3.7 the quotient
 * grows with x and is cut at 1: exactly 1. */
AOTC_RVV AOTC_F AOTC_M(aotc_erf)(AOTC_F x, size_t vl)
{
    const AOTC_F t = AOTC_M(aotc_min_c)(3.7f * 3.7f, __riscv_vfmul(x, x, vl), vl);
    AOTC_F p = __riscv_vfadd(__riscv_vfmul(t, 2.7025190287e-04f, vl), 7.3038222462e-03f, vl), q;
    p = AOTC_M(aotc_horner)(p, t, 6.3075115770e-02f, vl);
    p = AOTC_M(aotc_horner)(p, t, 2.8491967183e-01f, vl);
    p = AOTC_M(aotc_horner)(p, t, 1.1283780615e+00f, vl);
    q = __riscv_vfadd(__riscv_vfmul(t, 1.6334556441e-05f, vl), 1.8525364965e-03f, vl);
    q = AOTC_M(aotc_horner)(q, t, 2.2028543999e-02f, vl);
    q = AOTC_M(aotc_horner)(q, t, 1.5122022501e-01f, vl);
    q = AOTC_M(aotc_horner)(q, t, 5.8582414754e-01f, vl);
    q = AOTC_M(aotc_horner)(q, t, 1.0f, vl);
    return AOTC_M(aotc_cut)(__riscv_vfdiv(__riscv_vfmul(x, p, vl), q, vl), vl);
}

/* tanh: as erf, with its end at 7.9, absolute error below 4e-7. */
AOTC_RVV AOTC_F AOTC_M(aotc_tanh)(AOTC_F x, size_t vl)
{
    const AOTC_F t = AOTC_M(aotc_min_c)(7.9f * 7.9f, __riscv_vfmul(x, x, vl), vl);
    AOTC_F p = __riscv_vfadd(__riscv_vfmul(t, 1.7719926212e-05f, vl), 3.3825741175e-03f, vl), q;
    p = AOTC_M(aotc_horner)(p, t, 1.3296749707e-01f, vl);
    p = AOTC_M(aotc_horner)(p, t, 9.9999996238e-01f, vl);
    q = __riscv_vfadd(__riscv_vfmul(t, -3.1588039313e-10f, vl), 5.2357189386e-07f, vl);
    q = AOTC_M(aotc_horner)(q, t, 3.0675693919e-04f, vl);
    q = AOTC_M(aotc_horner)(q, t, 2.5482991073e-02f, vl);
    q = AOTC_M(aotc_horner)(q, t, 4.6630067273e-01f, vl);
    q = AOTC_M(aotc_horner)(q, t, 1.0f, vl);
    return AOTC_M(aotc_cut)(__riscv_vfdiv(__riscv_vfmul(x, p, vl), q, vl), vl);
}

/* ------------------------------------------------------------------ sine and cosine */

/* sin(x + quarter*pi/2) by octant reduction for |x| <= 8192, absolute error below 1e-6. */
AOTC_RVV AOTC_F AOTC_M(aotc_sincos)(AOTC_F x, int quarter, size_t vl)
{
    AOTC_I i = __riscv_vfcvt_x(__riscv_vfmul(x, 0.636619772f, vl), __RISCV_FRM_RNE, vl);
    const AOTC_F n = __riscv_vfcvt_f(i, vl);
    AOTC_F r = __riscv_vfmacc(x, -1.5703125f, n, vl), t, s, c;
    r = __riscv_vfmacc(r, -4.837512969970703125e-4f, n, vl);
    r = __riscv_vfmacc(r, -7.54978995489188216e-8f, n, vl);
    t = __riscv_vfmul(r, r, vl);
    s = __riscv_vfadd(__riscv_vfmul(t, -1.9515295891e-4f, vl), 8.3321608736e-3f, vl);
    s = AOTC_M(aotc_horner)(s, t, -1.6666654611e-1f, vl);
    s = __riscv_vfmadd(__riscv_vfmul(s, t, vl), r, r, vl);
    c = __riscv_vfadd(__riscv_vfmul(t, 2.443315711809948e-5f, vl), -1.388731625493765e-3f, vl);
    c = AOTC_M(aotc_horner)(c, t, 4.166664568298827e-2f, vl);
    c = AOTC_M(aotc_horner)(c, t, -0.5f, vl);
    c = AOTC_M(aotc_horner)(c, t, 1.0f, vl);
    i = __riscv_vadd(i, quarter, vl);
    s = __riscv_vmerge(s, c, __riscv_vmsne(__riscv_vand(i, 1, vl), 0, vl), vl);
    return __riscv_vmerge(s, __riscv_vfneg(s, vl),
                          __riscv_vmsne(__riscv_vand(i, 2, vl), 0, vl), vl);
}

AOTC_LANEWISE_RVV(aotc_sin_libm, sinf)
AOTC_LANEWISE_RVV(aotc_cos_libm, cosf)

AOTC_RVV int AOTC_M(aotc_any_large)(AOTC_F x, size_t vl)
{
    const AOTC_MASK small = __riscv_vmfle(__riscv_vfabs(x, vl), 8192.0f, vl);
    return __riscv_vcpop(small, vl) != vl;
}

AOTC_RVV AOTC_F AOTC_M(aotc_sin)(AOTC_F x, size_t vl)
{
    return AOTC_M(aotc_any_large)(x, vl) ? AOTC_M(aotc_sin_libm)(x, vl)
                                         : AOTC_M(aotc_sincos)(x, 0, vl);
}

AOTC_RVV AOTC_F AOTC_M(aotc_cos)(AOTC_F x, size_t vl)
{
    return AOTC_M(aotc_any_large)(x, vl) ? AOTC_M(aotc_cos_libm)(x, vl)
                                         : AOTC_M(aotc_sincos)(x, 1, vl);
}
#endif /* AOTC_EXACT_MATH */

/* ------------------------------------------------------------------ rounding to integers */

/* From 2^23 on every float is an integer already; the sign of zero is that of x. */
#define AOTC_ROUND_RVV(name, mode)                                                     \
    AOTC_RVV AOTC_F AOTC_M(name)(AOTC_F x, size_t vl)                                  \
    {                                                                                  \
        const AOTC_F r = __riscv_vfcvt_f(__riscv_vfcvt_x(x, mode, vl), vl);            \
        const AOTC_MASK small = __riscv_vmflt(__riscv_vfabs(x, vl), 8388608.0f, vl);   \
        return __riscv_vmerge(x, __riscv_vfsgnj(r, x, vl), small, vl);                 \
    }

AOTC_ROUND_RVV(aotc_floor, __RISCV_FRM_RDN)
AOTC_ROUND_RVV(aotc_ceil, __RISCV_FRM_RUP)
AOTC_ROUND_RVV(aotc_round, __RISCV_FRM_RNE)

#undef AOTC_PASTE_
#undef AOTC_PASTE
#undef AOTC_M
#undef AOTC_F
#undef AOTC_I
#undef AOTC_SPLAT
#undef AOTC_AS_INT
#undef AOTC_AS_FLOAT
#undef AOTC_ALL
#undef AOTC_LANEWISE_RVV
#undef AOTC_ROUND_RVV
#undef AOTC_GROUP
#undef AOTC_MASK
