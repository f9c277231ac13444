/* aotc_vec.h: one float vector type, AOTC_LANES wide, and the arithmetic kernels are written in.
 *
 * AOTC_LANES is 16 (AVX-512), 8 (AVX2), 4 (NEON, SSE2, SIMD128) or 1 (plain C: a vector is one
 * float, math is libm's, or that of aotc_math.h).
 * Vectors stay inside a translation unit: every function here is static inline.
 * max and min give NaN if either argument is NaN, like the ONNX operators. */
#ifndef AOTC_VEC_H
#define AOTC_VEC_H

#if defined(AOTC_NO_LIBM) || defined(AOTC_FREESTANDING)
#include "aotc_copy.h"
#include "aotc_math.h"
#else
#include <math.h>
#endif
#include <stdint.h>
#include <string.h>

#include "aotc_compiler.h"

#if AOTC_LANES > 1
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
#endif
#define AOTC_VEC_BYTES (4 * AOTC_LANES)
typedef float aotc_vf __attribute__((vector_size(AOTC_VEC_BYTES)));
typedef int32_t aotc_vm __attribute__((vector_size(AOTC_VEC_BYTES)));
typedef float aotc_vfu __attribute__((vector_size(AOTC_VEC_BYTES), aligned(4), may_alias));
#define AOTC_INLINE static inline AOTC_MAY_BE_UNUSED __attribute__((always_inline))
#else
typedef float aotc_vf;
typedef int32_t aotc_vm;
#define AOTC_INLINE static inline
#endif

#if AOTC_LANES > 1
#define AOTC_PREFETCH(p) __builtin_prefetch(p)
/* Element i of p, which may lie beyond the tensor; FAR: into the second cache. */
#define AOTC_PREFETCH_AT(p, i) \
    __builtin_prefetch((const void *)((uintptr_t)(p) + (uintptr_t)(i) * sizeof *(p)))
#define AOTC_PREFETCH_FAR(p, i) \
    __builtin_prefetch((const void *)((uintptr_t)(p) + (uintptr_t)(i) * sizeof *(p)), 0, 2)
#else
#define AOTC_PREFETCH(p) ((void)(p))
#define AOTC_PREFETCH_AT(p, i) ((void)(p))
#define AOTC_PREFETCH_FAR(p, i) ((void)(p))
#endif

/* Before a loop of a constant length over an array of vectors: the compiler writes it out, and what
 * the array holds stands in registers.  At -O1 some keep such arrays in memory, which is slow. */
#if defined(__GNUC__)
#define AOTC_UNROLL _Pragma("GCC unroll 32")
#else
#define AOTC_UNROLL
#endif

/* ------------------------------------------------------------------ memory */

AOTC_INLINE aotc_vf aotc_splat(float x)
{
#if AOTC_LANES > 1
    return x - (aotc_vf){0};
#else
    return x;
#endif
}

AOTC_INLINE aotc_vf aotc_load(const float *p)
{
#if AOTC_LANES > 1
    return *(const aotc_vfu *)p;
#else
    return *p;
#endif
}

/* Elements a step apart; through an array the vector would wait for eight stores. */
AOTC_INLINE aotc_vf aotc_load_apart(const float *p, int64_t step)
{
#if AOTC_LANES == 16
    return (aotc_vf){p[0], p[step], p[2 * step], p[3 * step], p[4 * step], p[5 * step],
                     p[6 * step], p[7 * step], p[8 * step], p[9 * step], p[10 * step],
                     p[11 * step], p[12 * step], p[13 * step], p[14 * step], p[15 * step]};
#elif AOTC_LANES == 8
    return (aotc_vf){p[0], p[step], p[2 * step], p[3 * step], p[4 * step], p[5 * step],
                     p[6 * step], p[7 * step]};
#elif AOTC_LANES == 4
    return (aotc_vf){p[0], p[step], p[2 * step], p[3 * step]};
#else
    (void)step;
    return *p;
#endif
}

AOTC_INLINE void aotc_store(float *p, aotc_vf v)
{
#if AOTC_LANES > 1
    *(aotc_vfu *)p = v;
#else
    *p = v;
#endif
}

#if defined(__AVX2__) && AOTC_LANES == 8
AOTC_INLINE __m256i aotc_first(int64_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}
#endif

/* The first n lanes from memory, the others fill; reads nothing beyond p[n-1].  0 < n. */
AOTC_INLINE aotc_vf aotc_load_n(const float *p, int64_t n, float fill)
{
#if defined(__AVX512F__) && AOTC_LANES == 16
    const __mmask16 m = (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1u);
    return (aotc_vf)_mm512_mask_loadu_ps(_mm512_set1_ps(fill), m, p);
#elif defined(__AVX2__) && AOTC_LANES == 8
    const __m256i m = aotc_first(n);
    return (aotc_vf)_mm256_blendv_ps(_mm256_set1_ps(fill), _mm256_maskload_ps(p, m),
                                     _mm256_castsi256_ps(m));
#elif defined(__aarch64__) && AOTC_LANES == 4
    float32x4_t v = vdupq_n_f32(fill);
    if (n >= 4)
        return aotc_load(p);
    if (n < 2)
        return (aotc_vf)vld1q_lane_f32(p, v, 0);
    v = vcombine_f32(vld1_f32(p), vget_high_f32(v));
    return (aotc_vf)(n < 3 ? v : vld1q_lane_f32(p + 2, v, 2));
#else
    float t[AOTC_LANES];
    for (int l = 0; l < AOTC_LANES; ++l)
        t[l] = l < n ? p[l] : fill;
    return aotc_load(t);
#endif
}

/* The first n lanes from memory (all if n is larger, none if n <= 0), the others zero. */
AOTC_INLINE aotc_vf aotc_load_upto(const float *p, int64_t n)
{
    return n > 0 ? aotc_load_n(p, n, 0.0f) : aotc_splat(0.0f);
}

AOTC_INLINE void aotc_store_n(float *p, aotc_vf v, int64_t n)
{
#if defined(__AVX512F__) && AOTC_LANES == 16
    const __mmask16 m = (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1u);
    _mm512_mask_storeu_ps(p, m, (__m512)v);
#elif defined(__AVX2__) && AOTC_LANES == 8
    _mm256_maskstore_ps(p, aotc_first(n), (__m256)v);
#elif defined(__aarch64__) && AOTC_LANES == 4
    if (n >= 4)
        aotc_store(p, v);
    else if (n >= 2)
        vst1_f32(p, vget_low_f32((float32x4_t)v));
    if (n == 1 || n == 3)
        p[n - 1] = v[n - 1];
#else
    float t[AOTC_LANES];
    aotc_store(t, v);
    for (int l = 0; l < AOTC_LANES && l < n; ++l)
        p[l] = t[l];
#endif
}

/* The first n lanes of v, the others fill. */
AOTC_INLINE aotc_vf aotc_keep_n(aotc_vf v, int64_t n, float fill)
{
#if defined(__AVX512F__) && AOTC_LANES == 16
    const __mmask16 m = (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1u);
    return (aotc_vf)_mm512_mask_mov_ps(_mm512_set1_ps(fill), m, (__m512)v);
#elif AOTC_LANES == 4
    const aotc_vm live = (aotc_vm){0, 1, 2, 3} < (int32_t)n;
    return (aotc_vf)((live & (aotc_vm)v) | (~live & (aotc_vm)aotc_splat(fill)));
#else
    float t[AOTC_LANES];
    aotc_store(t, v);
    return aotc_load_n(t, n, fill);
#endif
}

#if AOTC_LANES > 1
/* Lanes lo <= l < hi of memory at p, the others fill; reads no others, whatever lo and hi are. */
AOTC_INLINE aotc_vf aotc_load_between(const float *p, int64_t lo, int64_t hi, float fill)
{
#if defined(__AVX512F__) && AOTC_LANES == 16
    const uint32_t from = lo <= 0 ? 0 : lo >= 16 ? 16 : (uint32_t)lo;
    const uint32_t to = hi <= 0 ? 0 : hi >= 16 ? 16 : (uint32_t)hi;
    const __mmask16 m = (__mmask16)(((1u << to) - 1u) & (0u - (1u << from)));
    return (aotc_vf)_mm512_mask_loadu_ps(_mm512_set1_ps(fill), m, p);
#elif defined(__AVX2__) && AOTC_LANES == 8
    const int64_t from = lo <= 0 ? 0 : lo >= 8 ? 8 : lo, to = hi <= 0 ? 0 : hi >= 8 ? 8 : hi;
    const __m256i m = _mm256_andnot_si256(aotc_first(from), aotc_first(to));
    const __m256 v = _mm256_maskload_ps(p, m);
    return (aotc_vf)_mm256_blendv_ps(_mm256_set1_ps(fill), v, _mm256_castsi256_ps(m));
#else
    if (lo <= 0 && hi >= AOTC_LANES)
        return aotc_load(p);
    float t[AOTC_LANES];
    for (int l = 0; l < AOTC_LANES; ++l)
        t[l] = l >= lo && l < hi ? p[l] : fill;
    return aotc_load(t);
#endif
}

/* Lanes lo <= l < hi of v, the others fill. */
AOTC_INLINE aotc_vf aotc_keep_between(aotc_vf v, int64_t lo, int64_t hi, float fill)
{
    float t[AOTC_LANES];
    aotc_store(t, v);
    return aotc_load_between(t, lo, hi, fill);
}

/* Every second element: lane l from p[2*l]; reads nothing beyond p[2*AOTC_LANES - 2]. */
AOTC_INLINE aotc_vf aotc_seconds(aotc_vf low, aotc_vf high)
{
#if defined(__AVX512F__) && AOTC_LANES == 16
    const __m512i at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14,
                                         17, 19, 21, 23, 25, 27, 29, 31);
    return (aotc_vf)_mm512_permutex2var_ps((__m512)low, at, (__m512)high);
#elif defined(__AVX2__) && AOTC_LANES == 8
    const __m256 mixed = _mm256_shuffle_ps((__m256)low, (__m256)high, 0xd8);
    return (aotc_vf)_mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xd8);
#elif defined(__SSE2__) && AOTC_LANES == 4
    return (aotc_vf)_mm_shuffle_ps((__m128)low, (__m128)high, 0xd8);
#elif AOTC_LANES == 4
    return (aotc_vf){low[0], low[2], high[1], high[3]};
#else
    float t[AOTC_LANES];
    for (int l = 0; l < AOTC_LANES; ++l)
        t[l] = l < AOTC_LANES / 2 ? low[2 * l] : high[2 * l - AOTC_LANES + 1];
    return aotc_load(t);
#endif
}

AOTC_INLINE aotc_vf aotc_load_second(const float *p)
{
    return aotc_seconds(aotc_load(p), aotc_load(p + AOTC_LANES - 1));
}

/* The same for lanes lo <= l < hi, the others fill. */
AOTC_INLINE aotc_vf aotc_load_second_between(const float *p, int64_t lo, int64_t hi, float fill)
{
    const int64_t from = 2 * lo, to = 2 * hi - 1, half = AOTC_LANES - 1;
    return aotc_seconds(aotc_load_between(p, from, to, fill),
                        aotc_load_between(p + half, from - half, to - half, fill));
}
#endif

AOTC_INLINE aotc_vm aotc_load_mask(const int32_t *p)
{
    aotc_vm m;
    memcpy(&m, p, sizeof m);
    return m;
}

/* ------------------------------------------------------------------ arithmetic */

/* Defined where aotc_fma rounds once. */
#if (defined(__AVX512F__) && AOTC_LANES == 16) || (defined(__FMA__) && AOTC_LANES == 8) || \
    (defined(__aarch64__) && AOTC_LANES == 4)
#define AOTC_FUSED
#endif

AOTC_INLINE aotc_vf aotc_fma(aotc_vf a, aotc_vf b, aotc_vf c)
{
#if defined(__AVX512F__) && AOTC_LANES == 16
    return (aotc_vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__) && AOTC_LANES == 8
    return (aotc_vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__) && AOTC_LANES == 4
    return (aotc_vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

typedef struct {
    float lane[AOTC_LANES];
} aotc_lanes;

/* The same with b in memory, where every register holds something: compilers load b into one and
 * put a sum into memory instead, on which the next step then waits. */
AOTC_INLINE aotc_vf aotc_fma_at(aotc_vf a, const float *b, aotc_vf c)
{
#if defined(__AVX512F__) && AOTC_LANES == 16 && defined(__GNUC__)
    __asm__("vfmadd231ps {%2, %1, %0|%0, %1, %2}"
            : "+v"(c)
            : "v"(a), "m"(*(const aotc_lanes *)(const void *)b));
    return c;
#else
    return aotc_fma(a, aotc_load(b), c);
#endif
}

/* m ? a : b per lane; m is all ones or zero (a comparison's result). */
AOTC_INLINE aotc_vf aotc_select(aotc_vm m, aotc_vf a, aotc_vf b)
{
#if AOTC_LANES > 1
    return (aotc_vf)((m & (aotc_vm)a) | (~m & (aotc_vm)b));
#else
    return m ? a : b;
#endif
}

/* The larger of c and x, and x where x is NaN: for a constant c. */
AOTC_INLINE aotc_vf aotc_max_c(aotc_vf c, aotc_vf x)
{
#if defined(__AVX512F__) && AOTC_LANES == 16
    return (aotc_vf)_mm512_max_ps((__m512)c, (__m512)x);
#elif defined(__AVX2__) && AOTC_LANES == 8
    return (aotc_vf)_mm256_max_ps((__m256)c, (__m256)x);
#elif defined(__SSE2__) && AOTC_LANES == 4
    return (aotc_vf)_mm_max_ps((__m128)c, (__m128)x);
#elif defined(__aarch64__) && AOTC_LANES == 4
    return (aotc_vf)vmaxq_f32((float32x4_t)c, (float32x4_t)x);
#elif defined(__wasm_simd128__) && AOTC_LANES == 4
    return (aotc_vf)wasm_f32x4_pmax((v128_t)x, (v128_t)c);
#else
    return aotc_select(c > x, c, x);
#endif
}

AOTC_INLINE aotc_vf aotc_min_c(aotc_vf c, aotc_vf x)
{
#if defined(__AVX512F__) && AOTC_LANES == 16
    return (aotc_vf)_mm512_min_ps((__m512)c, (__m512)x);
#elif defined(__AVX2__) && AOTC_LANES == 8
    return (aotc_vf)_mm256_min_ps((__m256)c, (__m256)x);
#elif defined(__SSE2__) && AOTC_LANES == 4
    return (aotc_vf)_mm_min_ps((__m128)c, (__m128)x);
#elif defined(__aarch64__) && AOTC_LANES == 4
    return (aotc_vf)vminq_f32((float32x4_t)c, (float32x4_t)x);
#elif defined(__wasm_simd128__) && AOTC_LANES == 4
    return (aotc_vf)wasm_f32x4_pmin((v128_t)x, (v128_t)c);
#else
    return aotc_select(c < x, c, x);
#endif
}

AOTC_INLINE aotc_vf aotc_vmax(aotc_vf a, aotc_vf b)
{
#if defined(__AVX512F__) && AOTC_LANES == 16
    const __mmask16 number = _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_ORD_Q);
    return (aotc_vf)_mm512_mask_max_ps((__m512)a, number, (__m512)a, (__m512)b);
#elif defined(__aarch64__) && AOTC_LANES == 4
    return aotc_max_c(a, b); /* here it gives NaN for either */
#else
    return aotc_select(a != a, a, aotc_max_c(a, b));
#endif
}

AOTC_INLINE aotc_vf aotc_vmin(aotc_vf a, aotc_vf b)
{
#if defined(__AVX512F__) && AOTC_LANES == 16
    const __mmask16 number = _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_ORD_Q);
    return (aotc_vf)_mm512_mask_min_ps((__m512)a, number, (__m512)a, (__m512)b);
#elif defined(__aarch64__) && AOTC_LANES == 4
    return aotc_min_c(a, b); /* here it gives NaN for either */
#else
    return aotc_select(a != a, a, aotc_min_c(a, b));
#endif
}

AOTC_INLINE aotc_vf aotc_vabs(aotc_vf x)
{
#if AOTC_LANES > 1
    return (aotc_vf)((aotc_vm)x & 0x7fffffff);
#else
    return fabsf(x);
#endif
}

AOTC_INLINE aotc_vf aotc_vsqrt(aotc_vf x)
{
#if defined(__AVX512F__) && AOTC_LANES == 16
    return (aotc_vf)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX2__) && AOTC_LANES == 8
    return (aotc_vf)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__) && AOTC_LANES == 4
    return (aotc_vf)_mm_sqrt_ps((__m128)x);
#elif defined(__aarch64__) && AOTC_LANES == 4
    return (aotc_vf)vsqrtq_f32((float32x4_t)x);
#elif defined(__wasm_simd128__) && AOTC_LANES == 4
    return (aotc_vf)wasm_f32x4_sqrt((v128_t)x);
#elif AOTC_LANES > 1
    float t[AOTC_LANES];
    aotc_store(t, x);
    for (int l = 0; l < AOTC_LANES; ++l)
        t[l] = sqrtf(t[l]);
    return aotc_load(t);
#else
    return sqrtf(x);
#endif
}

/* ------------------------------------------------------------------ across lanes */

/* v with lane l exchanged for lane l ^ W (W a power of two below AOTC_LANES): folding with W = half
 * the lanes, a quarter, ..., 1 leaves the fold of all lanes in every lane. */
#if defined(__AVX512F__) && AOTC_LANES == 16
#define AOTC_EXCHANGE(v, W)                                                           \
    ((aotc_vf)((W) == 8   ? _mm512_shuffle_f32x4((__m512)(v), (__m512)(v), 0x4e)      \
               : (W) == 4 ? _mm512_shuffle_f32x4((__m512)(v), (__m512)(v), 0xb1)      \
               : (W) == 2 ? _mm512_permute_ps((__m512)(v), 0x4e)                      \
                          : _mm512_permute_ps((__m512)(v), 0xb1)))
#elif defined(__AVX2__) && AOTC_LANES == 8
#define AOTC_EXCHANGE(v, W)                                                           \
    ((aotc_vf)((W) == 4   ? _mm256_permute2f128_ps((__m256)(v), (__m256)(v), 1)       \
               : (W) == 2 ? _mm256_permute_ps((__m256)(v), 0x4e)                      \
                          : _mm256_permute_ps((__m256)(v), 0xb1)))
#elif defined(__SSE2__) && AOTC_LANES == 4
#define AOTC_EXCHANGE(v, W)                                                           \
    ((aotc_vf)_mm_shuffle_ps((__m128)(v), (__m128)(v), (W) == 2 ? 0x4e : 0xb1))
#elif AOTC_LANES == 4
#define AOTC_EXCHANGE(v, W)                                                           \
    ((W) == 2 ? (aotc_vf){(v)[2], (v)[3], (v)[0], (v)[1]}                             \
              : (aotc_vf){(v)[1], (v)[0], (v)[3], (v)[2]})
#endif

AOTC_INLINE float aotc_hsum(aotc_vf v)
{
#if AOTC_LANES > 8
    v += AOTC_EXCHANGE(v, 8);
#endif
#if AOTC_LANES > 4
    v += AOTC_EXCHANGE(v, 4);
#endif
#if AOTC_LANES > 1
    v += AOTC_EXCHANGE(v, 2);
    v += AOTC_EXCHANGE(v, 1);
    return v[0];
#else
    return v;
#endif
}

AOTC_INLINE float aotc_fmax(float a, float b)
{
    const float x = a > b ? a : b; /* one instruction; NaN is rare, so its branch is foretold */
    return a != a ? a : x;
}

AOTC_INLINE float aotc_fmin(float a, float b)
{
    const float x = a < b ? a : b; /* one instruction; NaN is rare, so its branch is foretold */
    return a != a ? a : x;
}

AOTC_INLINE float aotc_hmax(aotc_vf v)
{
#if AOTC_LANES > 8
    v = aotc_vmax(v, AOTC_EXCHANGE(v, 8));
#endif
#if AOTC_LANES > 4
    v = aotc_vmax(v, AOTC_EXCHANGE(v, 4));
#endif
#if AOTC_LANES > 1
    v = aotc_vmax(v, AOTC_EXCHANGE(v, 2));
    v = aotc_vmax(v, AOTC_EXCHANGE(v, 1));
    return v[0];
#else
    return v;
#endif
}

AOTC_INLINE float aotc_hmin(aotc_vf v)
{
#if AOTC_LANES > 8
    v = aotc_vmin(v, AOTC_EXCHANGE(v, 8));
#endif
#if AOTC_LANES > 4
    v = aotc_vmin(v, AOTC_EXCHANGE(v, 4));
#endif
#if AOTC_LANES > 1
    v = aotc_vmin(v, AOTC_EXCHANGE(v, 2));
    v = aotc_vmin(v, AOTC_EXCHANGE(v, 1));
    return v[0];
#else
    return v;
#endif
}

#include "aotc_transpose.h"
#include "aotc_vmath.h"

#endif
