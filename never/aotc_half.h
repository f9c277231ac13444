/* aotc_half.h: lanes of half precision beside the floats of aotc_vec.h.  Included after aotc_num.h
 * and aotc_vec.h.
 *
 * Values are converted where they are loaded and stored: aotc_half_load, aotc_half_store.  What
 * only moves stays as it is: a vector whose lanes hold the 16 bits, zero-extended (aotc_half_bits,
 * aotc_half_put), and aotc_half_widen and aotc_half_narrow convert between such lanes and floats.
 * Conversions are those of aotc_num.h, bit by bit: to nearest, ties to even, a NaN stays a quiet
 * NaN of the same sign with the upper bits of its payload. */
#ifndef AOTC_HALF_H
#define AOTC_HALF_H

#if defined(__AVX512F__) && AOTC_LANES == 16
#define AOTC_HALF_HARD
typedef __m256i aotc_halves;
AOTC_INLINE aotc_vf aotc_half_up(aotc_halves h) { return (aotc_vf)_mm512_cvtph_ps(h); }
AOTC_INLINE aotc_halves aotc_half_down(aotc_vf x)
{
    return _mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
AOTC_INLINE aotc_halves aotc_half_get(const uint16_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
AOTC_INLINE void aotc_half_set(uint16_t *p, aotc_halves h)
{
    _mm256_storeu_si256((__m256i *)(void *)p, h);
}
AOTC_INLINE aotc_vf aotc_half_extended(aotc_halves h) { return (aotc_vf)_mm512_cvtepu16_epi32(h); }
AOTC_INLINE aotc_halves aotc_half_cut(aotc_vf bits) { return _mm512_cvtepi32_epi16((__m512i)bits); }

#elif defined(__F16C__) && defined(__AVX2__) && AOTC_LANES == 8
#define AOTC_HALF_HARD
typedef __m128i aotc_halves;
AOTC_INLINE aotc_vf aotc_half_up(aotc_halves h) { return (aotc_vf)_mm256_cvtph_ps(h); }
AOTC_INLINE aotc_halves aotc_half_down(aotc_vf x)
{
    return _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
AOTC_INLINE aotc_halves aotc_half_get(const uint16_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}
AOTC_INLINE void aotc_half_set(uint16_t *p, aotc_halves h)
{
    _mm_storeu_si128((__m128i *)(void *)p, h);
}
AOTC_INLINE aotc_vf aotc_half_extended(aotc_halves h) { return (aotc_vf)_mm256_cvtepu16_epi32(h); }
AOTC_INLINE aotc_halves aotc_half_cut(aotc_vf bits)
{
    const __m256i pairs = _mm256_packus_epi32((__m256i)bits, (__m256i)bits);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(pairs, 0x08));
}

#elif defined(__aarch64__) && AOTC_LANES == 4
#define AOTC_HALF_HARD
typedef uint16x4_t aotc_halves;
AOTC_INLINE aotc_vf aotc_half_up(aotc_halves h)
{
    return (aotc_vf)vcvt_f32_f16(vreinterpret_f16_u16(h));
}
AOTC_INLINE aotc_halves aotc_half_down(aotc_vf x)
{
    return vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)x));
}
AOTC_INLINE aotc_halves aotc_half_get(const uint16_t *p) { return vld1_u16(p); }
AOTC_INLINE void aotc_half_set(uint16_t *p, aotc_halves h) { vst1_u16(p, h); }
AOTC_INLINE aotc_vf aotc_half_extended(aotc_halves h) { return (aotc_vf)vmovl_u16(h); }
AOTC_INLINE aotc_halves aotc_half_cut(aotc_vf bits)
{
    return vmovn_u32(vreinterpretq_u32_f32((float32x4_t)bits));
}

#else
/* No instruction converts: lanes of bits are converted by arithmetic on integers. */
typedef struct {
    uint16_t lane[AOTC_LANES];
} aotc_halves;

AOTC_INLINE aotc_halves aotc_half_get(const uint16_t *p)
{
    aotc_halves h;
    memcpy(&h, p, sizeof h);
    return h;
}

AOTC_INLINE void aotc_half_set(uint16_t *p, aotc_halves h) { memcpy(p, &h, sizeof h); }

AOTC_INLINE aotc_vf aotc_half_extended(aotc_halves h)
{
    uint32_t t[AOTC_LANES];
    aotc_vf v;
    for (int l = 0; l < AOTC_LANES; ++l)
        t[l] = h.lane[l];
    memcpy(&v, t, sizeof v);
    return v;
}

AOTC_INLINE aotc_halves aotc_half_cut(aotc_vf bits)
{
    uint32_t t[AOTC_LANES];
    aotc_halves h;
    memcpy(t, &bits, sizeof t);
    for (int l = 0; l < AOTC_LANES; ++l)
        h.lane[l] = (uint16_t)t[l];
    return h;
}

AOTC_INLINE aotc_vf aotc_half_widen(aotc_vf bits)
{
#if AOTC_LANES > 1
    const aotc_vm h = (aotc_vm)bits, sign = (h & 0x8000) << 16, rest = h & 0x7fff;
    const aotc_vm special = rest >= 0x7c00, quiet = (rest > 0x7c00) & 0x400000;
    const aotc_vm normal = (rest << 13) + (112 << 23) + (special & (112 << 23));
    const aotc_vf small = __builtin_convertvector(rest, aotc_vf) * 0x1p-24f;
    return (aotc_vf)((aotc_vm)aotc_select(rest < 0x400, small, (aotc_vf)(normal | quiet)) | sign);
#else
    return aotc_f16_to_f32(aotc_half_cut(bits).lane[0]);
#endif
}

AOTC_INLINE aotc_vf aotc_half_narrow(aotc_vf x)
{
#if AOTC_LANES > 1
    const aotc_vm bits = (aotc_vm)x, sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    /* below 2^-14: the sum's last bit is worth 2^-24 */
    const aotc_vm small = (aotc_vm)((aotc_vf)rest + 0.5f) - 0x3f000000;
    const aotc_vm normal = (rest - (112 << 23) + 0xfff + (rest >> 13 & 1)) >> 13;
    const aotc_vm nan = (rest > 0x7f800000) & (0x200 | (rest >> 13 & 0x3ff));
    const aotc_vm tiny = rest < 0x38800000, large = rest >= 0x47800000;
    return (aotc_vf)((tiny & small) | (~tiny & ~large & normal) | (large & (0x7c00 | nan)) | sign);
#else
    const aotc_halves h = {{aotc_f32_to_f16(x)}};
    return aotc_half_extended(h);
#endif
}

AOTC_INLINE aotc_vf aotc_half_up(aotc_halves h)
{
    return aotc_half_widen(aotc_half_extended(h));
}

AOTC_INLINE aotc_halves aotc_half_down(aotc_vf x) { return aotc_half_cut(aotc_half_narrow(x)); }
#endif

#if defined(AOTC_HALF_HARD)
AOTC_INLINE aotc_vf aotc_half_widen(aotc_vf bits) { return aotc_half_up(aotc_half_cut(bits)); }
AOTC_INLINE aotc_vf aotc_half_narrow(aotc_vf x) { return aotc_half_extended(aotc_half_down(x)); }
#endif

/* ------------------------------------------------------------------ memory */

/* The first n of p (0 < n), the others zero; reads nothing beyond p[n-1]. */
AOTC_INLINE aotc_halves aotc_half_get_n(const uint16_t *p, int64_t n)
{
#if defined(__AVX512BW__) && defined(__AVX512VL__) && AOTC_LANES == 16
    return _mm256_maskz_loadu_epi16((__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1u), p);
#else
    uint16_t t[AOTC_LANES] = {0};
    for (int l = 0; l < AOTC_LANES && l < n; ++l)
        t[l] = p[l];
    return aotc_half_get(t);
#endif
}

AOTC_INLINE void aotc_half_set_n(uint16_t *p, aotc_halves h, int64_t n)
{
#if defined(__AVX512BW__) && defined(__AVX512VL__) && AOTC_LANES == 16
    _mm256_mask_storeu_epi16(p, (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1u), h);
#else
    uint16_t t[AOTC_LANES];
    aotc_half_set(t, h);
    for (int l = 0; l < AOTC_LANES && l < n; ++l)
        p[l] = t[l];
#endif
}

AOTC_INLINE aotc_vf aotc_half_load(const uint16_t *p) { return aotc_half_up(aotc_half_get(p)); }
AOTC_INLINE aotc_vf aotc_half_load_n(const uint16_t *p, int64_t n, float fill)
{
    return aotc_keep_n(aotc_half_up(aotc_half_get_n(p, n)), n, fill);
}
AOTC_INLINE void aotc_half_store(uint16_t *p, aotc_vf x) { aotc_half_set(p, aotc_half_down(x)); }
AOTC_INLINE void aotc_half_store_n(uint16_t *p, aotc_vf x, int64_t n)
{
    aotc_half_set_n(p, aotc_half_down(x), n);
}

/* The same of lanes of bits. */
AOTC_INLINE aotc_vf aotc_half_bits(const uint16_t *p)
{
    return aotc_half_extended(aotc_half_get(p));
}
AOTC_INLINE aotc_vf aotc_half_bits_n(const uint16_t *p, int64_t n)
{
    return aotc_half_extended(aotc_half_get_n(p, n));
}
AOTC_INLINE void aotc_half_put(uint16_t *p, aotc_vf bits) { aotc_half_set(p, aotc_half_cut(bits)); }
AOTC_INLINE void aotc_half_put_n(uint16_t *p, aotc_vf bits, int64_t n)
{
    aotc_half_set_n(p, aotc_half_cut(bits), n);
}
/* Lanes of bits from an array of one number per lane. */
AOTC_INLINE aotc_vf aotc_half_of(const uint32_t *p)
{
    aotc_vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
AOTC_INLINE aotc_vf aotc_half_splat(uint16_t bits)
{
    uint32_t t[AOTC_LANES];
    for (int l = 0; l < AOTC_LANES; ++l)
        t[l] = bits;
    return aotc_half_of(t);
}

/* ------------------------------------------------------------------ functions
 *
 * Of results that are stored as half: 3e-6 of the value is an eightieth of the last bit's half. */

#if defined(AOTC_FUSED) && !defined(AOTC_EXACT_MATH)
/* e^r and 2^n, x = n ln 2 + r between -20 and 20: beyond, halves are 0 and infinity.  The low bits
 * of m are n + 127, those of 2^n as a float. */
AOTC_INLINE aotc_vf aotc_half_power(aotc_vf x0, aotc_vf *scale)
{
    const aotc_vf magic = aotc_splat(12583039.0f);
    const aotc_vf x = aotc_min_c(aotc_splat(20.0f), aotc_max_c(aotc_splat(-20.0f), x0));
    const aotc_vf m = aotc_fma(x, aotc_splat(1.44269504f), magic);
    const aotc_vf r = aotc_fma(m - magic, aotc_splat(-0.693147181f), x);
    const aotc_vf low = aotc_fma(aotc_splat(0.50003135f), r, aotc_splat(0.99996555f));
    const aotc_vf high = aotc_fma(aotc_splat(0.04151053f), r, aotc_splat(0.16789851f));
    *scale = (aotc_vf)((aotc_vm)m << 23);
    return aotc_fma(aotc_fma(high, r * r, low), r, aotc_splat(1.0f));
}

AOTC_INLINE aotc_vf aotc_half_exp(aotc_vf x)
{
    aotc_vf scale;
    const aotc_vf power = aotc_half_power(x, &scale);
    return power * scale;
}

AOTC_INLINE aotc_vf aotc_half_sigmoid(aotc_vf x)
{
    aotc_vf scale;
    const aotc_vf one = aotc_splat(1.0f), power = aotc_half_power(-x, &scale);
    const aotc_vf d = aotc_fma(power, scale, one);
#if defined(__AVX512F__) && AOTC_LANES == 16
    const aotc_vf r = (aotc_vf)_mm512_rcp14_ps((__m512)d);
    return aotc_fma(aotc_fma(-d, r, one), r, r);
#elif defined(__AVX2__) && AOTC_LANES == 8
    const aotc_vf r = (aotc_vf)_mm256_rcp_ps((__m256)d);
    return aotc_fma(aotc_fma(-d, r, one), r, r);
#else
    return one / d;
#endif
}
#else
#define aotc_half_exp(x) aotc_vexp(x)
#define aotc_half_sigmoid(x) aotc_vsigmoid(x)
#endif

/* The float with only the bits that a half has. */
AOTC_INLINE aotc_vf aotc_half_round(aotc_vf x) { return aotc_half_up(aotc_half_down(x)); }

#endif
