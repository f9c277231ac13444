/* aotc_narrow.h: lanes of 8-bit and 32-bit integers beside the floats of aotc_vec.h, and sums of
 * products of bytes.  Included after aotc_vec.h and aotc_num.h.
 * Integer lanes wrap; nothing saturates on the way to a sum. */
#ifndef AOTC_NARROW_H
#define AOTC_NARROW_H

#if AOTC_LANES > 1
typedef uint32_t aotc_vu __attribute__((vector_size(AOTC_VEC_BYTES)));
#else
typedef uint32_t aotc_vu;
#endif

/* ------------------------------------------------------------------ integer lanes */

AOTC_INLINE aotc_vm aotc_isplat(int32_t x)
{
#if AOTC_LANES > 1
    return x - (aotc_vm){0};
#else
    return x;
#endif
}

AOTC_INLINE aotc_vm aotc_iadd(aotc_vm a, aotc_vm b) { return (aotc_vm)((aotc_vu)a + (aotc_vu)b); }
AOTC_INLINE aotc_vm aotc_isub(aotc_vm a, aotc_vm b) { return (aotc_vm)((aotc_vu)a - (aotc_vu)b); }
AOTC_INLINE aotc_vm aotc_imul(aotc_vm a, aotc_vm b) { return (aotc_vm)((aotc_vu)a * (aotc_vu)b); }

AOTC_INLINE aotc_vf aotc_from_i32(aotc_vm x)
{
#if AOTC_LANES > 1
    return __builtin_convertvector(x, aotc_vf);
#else
    return (float)x;
#endif
}

/* Truncation; NaN and what does not fit give the least number. */
AOTC_INLINE aotc_vm aotc_to_i32(aotc_vf x)
{
#if defined(__AVX512F__) && AOTC_LANES == 16
    return (aotc_vm)_mm512_cvttps_epi32((__m512)x);
#elif defined(__AVX2__) && AOTC_LANES == 8
    return (aotc_vm)_mm256_cvttps_epi32((__m256)x);
#elif defined(__SSE2__) && AOTC_LANES == 4
    return (aotc_vm)_mm_cvttps_epi32((__m128)x);
#elif defined(__wasm_simd128__) && AOTC_LANES == 4
    /* what does not fit would be the nearest number, NaN 0 */
    const aotc_vm fits = aotc_vabs(x) < 2147483648.0f;
    const aotc_vm least = {INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN};
    return (fits & (aotc_vm)wasm_i32x4_trunc_sat_f32x4((v128_t)x)) | (~fits & least);
#elif AOTC_LANES > 1
    float t[AOTC_LANES];
    int32_t r[AOTC_LANES];
    aotc_store(t, x);
    for (int l = 0; l < AOTC_LANES; ++l)
        r[l] = aotc_f32_to_i32(t[l]);
    return aotc_load_mask(r);
#else
    return aotc_f32_to_i32(x);
#endif
}

/* Conversion to 8 bits, which wraps. */
AOTC_INLINE aotc_vm aotc_as_u8(aotc_vf x)
{
    return aotc_to_i32(x) & 255;
}

AOTC_INLINE aotc_vm aotc_as_i8(aotc_vf x)
{
    return ((aotc_to_i32(x) & 255) ^ 128) - 128;
}

/* And to 16. */
AOTC_INLINE aotc_vm aotc_as_u16(aotc_vf x)
{
    return aotc_to_i32(x) & 65535;
}

AOTC_INLINE aotc_vm aotc_as_i16(aotc_vf x)
{
    return ((aotc_to_i32(x) & 65535) ^ 32768) - 32768;
}

/* ------------------------------------------------------------------ memory */

AOTC_INLINE aotc_vm aotc_load_i32(const int32_t *p)
{
#if AOTC_LANES > 1
    return aotc_load_mask(p);
#else
    return *p;
#endif
}

AOTC_INLINE void aotc_store_i32(int32_t *p, aotc_vm v)
{
#if AOTC_LANES > 1
    memcpy(p, &v, sizeof v);
#else
    *p = v;
#endif
}

#if defined(__AVX512F__) && AOTC_LANES == 16
#define AOTC_WIDEN(name, p) (aotc_vm)_mm512_cvt##name##_epi32( \
        _mm_loadu_si128((const __m128i *)(const void *)(p)))
#define AOTC_WIDEN_WORDS(name, p) (aotc_vm)_mm512_cvt##name##_epi32( \
        _mm256_loadu_si256((const __m256i *)(const void *)(p)))
#elif defined(__AVX2__) && AOTC_LANES == 8
#define AOTC_WIDEN(name, p) (aotc_vm)_mm256_cvt##name##_epi32( \
        _mm_loadl_epi64((const __m128i *)(const void *)(p)))
#define AOTC_WIDEN_WORDS(name, p) (aotc_vm)_mm256_cvt##name##_epi32( \
        _mm_loadu_si128((const __m128i *)(const void *)(p)))
#elif defined(__wasm_simd128__) && AOTC_LANES == 4
#define AOTC_WIDEN(name, p) aotc_widened_##name(p)
#define AOTC_WIDEN_WORDS(name, p) aotc_widened_##name(p)
AOTC_INLINE aotc_vm aotc_widened_epu8(const uint8_t *p)
{
    return (aotc_vm)wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(
        wasm_v128_load32_zero(p)));
}
AOTC_INLINE aotc_vm aotc_widened_epi8(const int8_t *p)
{
    return (aotc_vm)wasm_i32x4_extend_low_i16x8(wasm_i16x8_extend_low_i8x16(
        wasm_v128_load32_zero(p)));
}
AOTC_INLINE aotc_vm aotc_widened_epu16(const uint16_t *p)
{
    return (aotc_vm)wasm_u32x4_load16x4(p);
}
AOTC_INLINE aotc_vm aotc_widened_epi16(const int16_t *p)
{
    return (aotc_vm)wasm_i32x4_load16x4(p);
}
#endif

/* load_T: integers of T side by side; load_T_n: the first n (0 < n <= AOTC_LANES), the other lanes
 * are 0 */
#if defined(AOTC_WIDEN)
#define AOTC_LOAD_SHORT(suffix, type, widen, name) \
    AOTC_INLINE aotc_vm aotc_load_##suffix(const type *p) { return widen(name, p); }
#else
#define AOTC_LOAD_SHORT(suffix, type, widen, name) \
    AOTC_INLINE aotc_vm aotc_load_##suffix(const type *p) \
    { \
        int32_t t[AOTC_LANES]; \
        for (int l = 0; l < AOTC_LANES; ++l) \
            t[l] = p[l]; \
        return aotc_load_i32(t); \
    }
#endif
#define AOTC_LOADS_OF_SHORT(suffix, type, widen, name) \
    AOTC_LOAD_SHORT(suffix, type, widen, name) \
    AOTC_INLINE aotc_vm aotc_load_##suffix##_n(const type *p, int64_t n) \
    { \
        type t[AOTC_LANES] = {0}; \
        for (int l = 0; l < AOTC_LANES && l < n; ++l) \
            t[l] = p[l]; \
        return aotc_load_##suffix(t); \
    }
AOTC_LOADS_OF_SHORT(u8, uint8_t, AOTC_WIDEN, epu8)
AOTC_LOADS_OF_SHORT(i8, int8_t, AOTC_WIDEN, epi8)
AOTC_LOADS_OF_SHORT(u16, uint16_t, AOTC_WIDEN_WORDS, epu16)
AOTC_LOADS_OF_SHORT(i16, int16_t, AOTC_WIDEN_WORDS, epi16)

/* The low 8 bits of every lane: what a conversion to u8 or i8 keeps. */
AOTC_INLINE void aotc_store_8(void *p, aotc_vm v)
{
#if defined(__AVX512F__) && AOTC_LANES == 16
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8((__m512i)v));
#elif defined(__wasm_simd128__) && AOTC_LANES == 4
    const v128_t bytes = wasm_i8x16_shuffle((v128_t)v, (v128_t)v, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4,
                                            8, 12, 0, 4, 8, 12);
    wasm_v128_store32_lane(p, bytes, 0);
#else
    int32_t t[AOTC_LANES];
    uint8_t *const q = p;
    aotc_store_i32(t, v);
    for (int l = 0; l < AOTC_LANES; ++l)
        q[l] = (uint8_t)t[l];
#endif
}

/* The first n lanes (0 < n <= AOTC_LANES); lanes that are not loaded are 0. */
AOTC_INLINE aotc_vm aotc_load_i32_n(const int32_t *p, int64_t n)
{
    int32_t t[AOTC_LANES] = {0};
    for (int l = 0; l < AOTC_LANES && l < n; ++l)
        t[l] = p[l];
    return aotc_load_i32(t);
}

/* The low 16 bits of every lane: what a conversion to u16 or i16 keeps. */
AOTC_INLINE void aotc_store_16(void *p, aotc_vm v)
{
#if defined(__AVX512F__) && AOTC_LANES == 16
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16((__m512i)v));
#else
    int32_t t[AOTC_LANES];
    uint16_t *const q = p;
    aotc_store_i32(t, v);
    for (int l = 0; l < AOTC_LANES; ++l)
        q[l] = (uint16_t)t[l];
#endif
}

AOTC_INLINE void aotc_store_16_n(void *p, aotc_vm v, int64_t n)
{
    uint16_t t[AOTC_LANES];
    aotc_store_16(t, v);
    for (int l = 0; l < AOTC_LANES && l < n; ++l)
        ((uint16_t *)p)[l] = t[l];
}

AOTC_INLINE void aotc_store_8_n(void *p, aotc_vm v, int64_t n)
{
    uint8_t t[AOTC_LANES];
    aotc_store_8(t, v);
    for (int l = 0; l < AOTC_LANES && l < n; ++l)
        ((uint8_t *)p)[l] = t[l];
}

AOTC_INLINE void aotc_store_i32_n(int32_t *p, aotc_vm v, int64_t n)
{
    int32_t t[AOTC_LANES];
    aotc_store_i32(t, v);
    for (int l = 0; l < AOTC_LANES && l < n; ++l)
        p[l] = t[l];
}

/* ------------------------------------------------------------------ products of u8 or s8 by s8
 *
 * aotc_dot_a: four bytes of a row, u8, in every lane.  aotc_dot_b: four bytes of each lane's
 * column.  aotc_dot(c, a, b): c[l] + sum of the four products of lane l, exact.  aotc_sdot is the
 * same of rows of s8.  Where there is no instruction for it, bytes become 16-bit halves (even and
 * odd ones): two products of bytes fit an i32, while the instruction for pairs of bytes would
 * saturate at 16 bits.
 *
 * aotc_dot_moved_a, aotc_sdot_moved_a: rows of the other type, for an instruction that takes this
 * one only, 128 larger or smaller.  Of every column the sum of its bytes is kept (.._sums), 128
 * times which .._end makes up for.  Wraps like all sums. */

AOTC_INLINE aotc_vm aotc_four(const void *p)
{
    int32_t four;
    memcpy(&four, p, 4);
    return aotc_isplat(four);
}
#define AOTC_HIGH_BITS aotc_isplat((int32_t)0x80808080u) /* of the bytes: 128, or its sign */

#if defined(__wasm_simd128__) && AOTC_LANES == 4 || \
    defined(__SSE2__) && (AOTC_LANES == 4 || defined(__AVX2__) && AOTC_LANES == 8 \
                          || defined(__AVX512BW__) && AOTC_LANES == 16)
#define AOTC_BYTE_HALVES
typedef int16_t aotc_vs __attribute__((vector_size(AOTC_VEC_BYTES)));
typedef struct { aotc_vs even, odd; } aotc_byte_halves;
AOTC_INLINE aotc_byte_halves aotc_signed_halves(aotc_vs v)
{
    return (aotc_byte_halves){(aotc_vs)(v << 8) >> 8, v >> 8};
}
AOTC_INLINE aotc_byte_halves aotc_columns_halves(const int8_t *p)
{
    aotc_vs v;
    memcpy(&v, p, sizeof v);
    return aotc_signed_halves(v);
}
AOTC_INLINE aotc_vm aotc_pairs(aotc_vs a, aotc_vs b)
{
#if defined(__wasm_simd128__)
    return (aotc_vm)wasm_i32x4_dot_i16x8((v128_t)a, (v128_t)b);
#elif AOTC_LANES == 16
    return (aotc_vm)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif AOTC_LANES == 8
    return (aotc_vm)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
    return (aotc_vm)_mm_madd_epi16((__m128i)a, (__m128i)b);
#endif
}
AOTC_INLINE aotc_vm aotc_dot_halves(aotc_vm c, aotc_byte_halves a, aotc_byte_halves b)
{
    return aotc_iadd(c, aotc_iadd(aotc_pairs(a.even, b.even), aotc_pairs(a.odd, b.odd)));
}
#elif defined(__ARM_FEATURE_DSP) && AOTC_LANES == 1
#include <arm_acle.h>
/* The bytes of a word as two pairs of halves of 16 bits: an instruction adds two products. */
typedef struct { uint32_t even, odd; } aotc_byte_pairs;
AOTC_INLINE uint32_t aotc_word(const void *p)
{
    uint32_t word;
    memcpy(&word, p, 4);
    return word;
}
AOTC_INLINE aotc_byte_pairs aotc_unsigned_pairs(uint32_t word)
{
    uint32_t odd;
    __asm__("uxtb16 %0, %1, ror #8" : "=r"(odd) : "r"(word));
    return (aotc_byte_pairs){__uxtb16(word), odd};
}
AOTC_INLINE aotc_byte_pairs aotc_signed_pairs(uint32_t word)
{
    uint32_t odd;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(odd) : "r"(word));
    return (aotc_byte_pairs){(uint32_t)__sxtb16(word), odd};
}
AOTC_INLINE aotc_vm aotc_dot_pairs(aotc_vm c, aotc_byte_pairs a, aotc_byte_pairs b)
{
    return __smlad((int16x2_t)a.odd, (int16x2_t)b.odd,
                   __smlad((int16x2_t)a.even, (int16x2_t)b.even, c));
}
#define AOTC_BYTE_PAIRS
#else
typedef struct { aotc_vm v[4]; } aotc_byte_columns;
typedef struct { int32_t v[4]; } aotc_byte_rows;
AOTC_INLINE aotc_byte_columns aotc_four_columns(const int8_t *p)
{
#if AOTC_LANES > 1
    aotc_vu all;
    memcpy(&all, p, sizeof all);
    return (aotc_byte_columns){{(aotc_vm)(all << 24) >> 24, (aotc_vm)(all << 16) >> 24,
                                (aotc_vm)(all << 8) >> 24, (aotc_vm)all >> 24}};
#else
    return (aotc_byte_columns){{p[0], p[1], p[2], p[3]}};
#endif
}
AOTC_INLINE aotc_vm aotc_dot_four(aotc_vm c, aotc_byte_rows a, aotc_byte_columns b)
{
    AOTC_UNROLL for (int i = 0; i < 4; ++i)
        c = aotc_iadd(c, aotc_imul(aotc_isplat(a.v[i]), b.v[i]));
    return c;
}
#endif

#if defined(__AVX512VNNI__) && AOTC_LANES == 16
typedef aotc_vm aotc_dot_rows;
typedef aotc_vm aotc_dot_columns;
AOTC_INLINE aotc_dot_rows aotc_dot_a(const uint8_t *p) { return aotc_four(p); }
AOTC_INLINE aotc_dot_columns aotc_dot_b(const int8_t *p)
{
    aotc_vm v;
    memcpy(&v, p, sizeof v);
    return v;
}
AOTC_INLINE aotc_vm aotc_dot(aotc_vm c, aotc_dot_rows a, aotc_dot_columns b)
{
    return (aotc_vm)_mm512_dpbusd_epi32((__m512i)c, (__m512i)a, (__m512i)b);
}
AOTC_INLINE aotc_dot_rows aotc_dot_moved_a(const int8_t *p)
{
    return aotc_four(p) ^ AOTC_HIGH_BITS;
}
AOTC_INLINE aotc_vm aotc_dot_sums(aotc_vm sums, aotc_dot_columns b)
{
    return aotc_dot(sums, aotc_isplat(0x01010101), b);
}
AOTC_INLINE aotc_vm aotc_dot_end(aotc_vm c, aotc_vm sums)
{
    return aotc_isub(c, aotc_imul(sums, aotc_isplat(128)));
}

#elif defined(__ARM_FEATURE_MATMUL_INT8) && AOTC_LANES == 4
typedef uint8x16_t aotc_dot_rows;
typedef int8x16_t aotc_dot_columns;
AOTC_INLINE aotc_dot_rows aotc_dot_a(const uint8_t *p)
{
    return vreinterpretq_u8_s32((int32x4_t)aotc_four(p));
}
AOTC_INLINE aotc_dot_columns aotc_dot_b(const int8_t *p) { return vld1q_s8(p); }
AOTC_INLINE aotc_vm aotc_dot(aotc_vm c, aotc_dot_rows a, aotc_dot_columns b)
{
    return (aotc_vm)vusdotq_s32((int32x4_t)c, a, b);
}

#elif defined(AOTC_BYTE_HALVES)
typedef aotc_byte_halves aotc_dot_rows, aotc_dot_columns;
AOTC_INLINE aotc_dot_rows aotc_dot_a(const uint8_t *p)
{
    uint32_t all;
    memcpy(&all, p, 4);
    return (aotc_dot_rows){(aotc_vs)aotc_isplat((int32_t)(all & 0x00ff00ffu)),
                           (aotc_vs)aotc_isplat((int32_t)(all >> 8 & 0x00ff00ffu))};
}
AOTC_INLINE aotc_dot_columns aotc_dot_b(const int8_t *p) { return aotc_columns_halves(p); }
AOTC_INLINE aotc_vm aotc_dot(aotc_vm c, aotc_dot_rows a, aotc_dot_columns b)
{
    return aotc_dot_halves(c, a, b);
}

#elif defined(AOTC_BYTE_PAIRS)
typedef aotc_byte_pairs aotc_dot_rows, aotc_dot_columns;
AOTC_INLINE aotc_dot_rows aotc_dot_a(const uint8_t *p) { return aotc_unsigned_pairs(aotc_word(p)); }
AOTC_INLINE aotc_dot_columns aotc_dot_b(const int8_t *p) { return aotc_signed_pairs(aotc_word(p)); }
AOTC_INLINE aotc_vm aotc_dot(aotc_vm c, aotc_dot_rows a, aotc_dot_columns b)
{
    return aotc_dot_pairs(c, a, b);
}

#else
typedef aotc_byte_rows aotc_dot_rows;
typedef aotc_byte_columns aotc_dot_columns;
AOTC_INLINE aotc_dot_rows aotc_dot_a(const uint8_t *p)
{
    return (aotc_dot_rows){{p[0], p[1], p[2], p[3]}};
}
AOTC_INLINE aotc_dot_columns aotc_dot_b(const int8_t *p) { return aotc_four_columns(p); }
AOTC_INLINE aotc_vm aotc_dot(aotc_vm c, aotc_dot_rows a, aotc_dot_columns b)
{
    return aotc_dot_four(c, a, b);
}
#endif

#if defined(__ARM_FEATURE_DOTPROD) && AOTC_LANES == 4
typedef int8x16_t aotc_sdot_rows;
typedef int8x16_t aotc_sdot_columns;
AOTC_INLINE aotc_sdot_rows aotc_sdot_a(const int8_t *p)
{
    return vreinterpretq_s8_s32((int32x4_t)aotc_four(p));
}
AOTC_INLINE aotc_sdot_columns aotc_sdot_b(const int8_t *p) { return vld1q_s8(p); }
AOTC_INLINE aotc_vm aotc_sdot(aotc_vm c, aotc_sdot_rows a, aotc_sdot_columns b)
{
    return (aotc_vm)vdotq_s32((int32x4_t)c, a, b);
}
AOTC_INLINE aotc_sdot_rows aotc_sdot_moved_a(const uint8_t *p)
{
    return vreinterpretq_s8_s32((int32x4_t)(aotc_four(p) ^ AOTC_HIGH_BITS));
}
AOTC_INLINE aotc_vm aotc_sdot_sums(aotc_vm sums, aotc_sdot_columns b)
{
    return aotc_sdot(sums, vdupq_n_s8(1), b);
}
AOTC_INLINE aotc_vm aotc_sdot_end(aotc_vm c, aotc_vm sums)
{
    return aotc_iadd(c, aotc_imul(sums, aotc_isplat(128)));
}

#elif defined(AOTC_BYTE_HALVES)
typedef aotc_byte_halves aotc_sdot_rows, aotc_sdot_columns;
AOTC_INLINE aotc_sdot_rows aotc_sdot_a(const int8_t *p)
{
    return aotc_signed_halves((aotc_vs)aotc_four(p));
}
AOTC_INLINE aotc_sdot_columns aotc_sdot_b(const int8_t *p) { return aotc_columns_halves(p); }
AOTC_INLINE aotc_vm aotc_sdot(aotc_vm c, aotc_sdot_rows a, aotc_sdot_columns b)
{
    return aotc_dot_halves(c, a, b);
}

#elif defined(AOTC_BYTE_PAIRS)
typedef aotc_byte_pairs aotc_sdot_rows, aotc_sdot_columns;
AOTC_INLINE aotc_sdot_rows aotc_sdot_a(const int8_t *p) { return aotc_signed_pairs(aotc_word(p)); }
AOTC_INLINE aotc_sdot_columns aotc_sdot_b(const int8_t *p)
{
    return aotc_signed_pairs(aotc_word(p));
}
AOTC_INLINE aotc_vm aotc_sdot(aotc_vm c, aotc_sdot_rows a, aotc_sdot_columns b)
{
    return aotc_dot_pairs(c, a, b);
}

#else
typedef aotc_byte_rows aotc_sdot_rows;
typedef aotc_byte_columns aotc_sdot_columns;
AOTC_INLINE aotc_sdot_rows aotc_sdot_a(const int8_t *p)
{
    return (aotc_sdot_rows){{p[0], p[1], p[2], p[3]}};
}
AOTC_INLINE aotc_sdot_columns aotc_sdot_b(const int8_t *p) { return aotc_four_columns(p); }
AOTC_INLINE aotc_vm aotc_sdot(aotc_vm c, aotc_sdot_rows a, aotc_sdot_columns b)
{
    return aotc_dot_four(c, a, b);
}
#endif

#endif
