/* aotc_pairs.h: sums of products of bf16, two at a time.  Included after aotc_vec.h and aotc_num.h.
 *
 * aotc_pair_a: two neighbours of a row, in every lane.  aotc_pair_b: two neighbours of each lane's
 * column.  aotc_pair(c, a, b): the product of the second ones is added to c, then that of the first
 * ones, each sum rounded once.  A product of two bf16 is exact in f32, so that with and without
 * fused operations, with and without the instruction for pairs, sums are the same bit for bit, but
 * for what is no normal number: the instruction takes it, and makes of it, zero. */
#ifndef AOTC_PAIRS_H
#define AOTC_PAIRS_H

AOTC_INLINE uint32_t aotc_two(const uint16_t *p)
{
    uint32_t two;
    memcpy(&two, p, sizeof two);
    return two;
}

/* not on CPUs with matrix tiles, where it takes twice as long as two multiply-adds */
#if defined(__AVX512BF16__) && AOTC_LANES == 16 && !defined(__AMX_BF16__)
typedef __m512bh aotc_pair_rows;
typedef __m512bh aotc_pair_columns;
AOTC_INLINE aotc_pair_rows aotc_pair_a(const uint16_t *p)
{
    return (__m512bh)_mm512_set1_epi32((int32_t)aotc_two(p));
}
AOTC_INLINE aotc_pair_columns aotc_pair_b(const uint16_t *p)
{
    return (__m512bh)_mm512_loadu_si512(p);
}
AOTC_INLINE aotc_vf aotc_pair(aotc_vf c, aotc_pair_rows a, aotc_pair_columns b)
{
    return (aotc_vf)_mm512_dpbf16_ps((__m512)c, a, b);
}

#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && defined(__aarch64__) && AOTC_LANES == 4
/* Rounds otherwise: the two products are added first, sums to odd, and what is no normal number is
 * zero. */
#include <arm_neon.h>
typedef bfloat16x8_t aotc_pair_rows;
typedef bfloat16x8_t aotc_pair_columns;
AOTC_INLINE aotc_pair_rows aotc_pair_a(const uint16_t *p)
{
    return vreinterpretq_bf16_u32(vdupq_n_u32(aotc_two(p)));
}
AOTC_INLINE aotc_pair_columns aotc_pair_b(const uint16_t *p)
{
    return vreinterpretq_bf16_u16(vld1q_u16(p));
}
AOTC_INLINE aotc_vf aotc_pair(aotc_vf c, aotc_pair_rows a, aotc_pair_columns b)
{
    return (aotc_vf)vbfdotq_f32((float32x4_t)c, a, b);
}

/* Blocks of two rows by two columns, four terms at a time: aotc_block_a, those of two rows (two of
 * them and zeros where not `whole`); aotc_block_b, those of four columns from two steps of a panel,
 * as two blocks; aotc_block_store, two blocks as four sums of either row. */
typedef bfloat16x8_t aotc_block_rows;
typedef struct { bfloat16x8_t low, high; } aotc_block_columns;
AOTC_INLINE aotc_block_rows aotc_block_a(const uint16_t *p, const uint16_t *q, int whole)
{
    if (whole)
        return vreinterpretq_bf16_u16(vcombine_u16(vld1_u16(p), vld1_u16(q)));
    const uint32x4_t two = {aotc_two(p), 0, aotc_two(q), 0};
    return vreinterpretq_bf16_u32(two);
}
AOTC_INLINE aotc_block_columns aotc_block_b(const uint16_t *p, const uint16_t *q, int whole)
{
    const uint32x4_t one = vreinterpretq_u32_u16(vld1q_u16(p));
    const uint32x4_t two = whole ? vreinterpretq_u32_u16(vld1q_u16(q)) : vdupq_n_u32(0);
    return (aotc_block_columns){vreinterpretq_bf16_u32(vzip1q_u32(one, two)),
                                vreinterpretq_bf16_u32(vzip2q_u32(one, two))};
}
AOTC_INLINE aotc_vf aotc_block(aotc_vf c, aotc_block_rows a, bfloat16x8_t b)
{
    return (aotc_vf)vbfmmlaq_f32((float32x4_t)c, a, b);
}
AOTC_INLINE void aotc_block_store(float *first, float *second, aotc_vf low, aotc_vf high)
{
    const float32x4_t a = (float32x4_t)low, b = (float32x4_t)high;
    vst1q_f32(first, vcombine_f32(vget_low_f32(a), vget_low_f32(b)));
    vst1q_f32(second, vcombine_f32(vget_high_f32(a), vget_high_f32(b)));
}

#else
typedef struct { aotc_vf first, second; } aotc_pair_rows, aotc_pair_columns;
AOTC_INLINE aotc_pair_rows aotc_pair_a(const uint16_t *p)
{
    return (aotc_pair_rows){aotc_splat(aotc_float_u32((uint32_t)p[0] << 16)),
                            aotc_splat(aotc_float_u32((uint32_t)p[1] << 16))};
}
AOTC_INLINE aotc_pair_columns aotc_pair_b(const uint16_t *p)
{
#if AOTC_LANES > 1
    aotc_vm both;
    memcpy(&both, p, sizeof both);
    return (aotc_pair_columns){(aotc_vf)(both << 16), (aotc_vf)(both & -65536)};
#else
    return (aotc_pair_columns){aotc_float_u32((uint32_t)p[0] << 16),
                               aotc_float_u32((uint32_t)p[1] << 16)};
#endif
}
AOTC_INLINE aotc_vf aotc_pair(aotc_vf c, aotc_pair_rows a, aotc_pair_columns b)
{
    return aotc_fma(a.first, b.first, aotc_fma(a.second, b.second, c));
}
#endif

#endif
