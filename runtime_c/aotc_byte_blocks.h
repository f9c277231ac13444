/* aotc_byte_blocks.h: sums of products of bytes by an instruction for blocks of two rows by two
 * columns, eight terms at a time.  Included after aotc_narrow.h.
 *
 * aotc_dot_block_a: eight bytes of two rows each, u8 (four of them and zeros where not `whole`);
 * aotc_sdot_block_a: of rows of s8.  aotc_byte_block_b: eight of four columns, s8, from two steps
 * of a panel, as two blocks.  aotc_dot_block(c, a, b): c and the four sums of the block, exact;
 * aotc_byte_block_store: two blocks as four sums of either row. */
#ifndef AOTC_BYTE_BLOCKS_H
#define AOTC_BYTE_BLOCKS_H

#include <arm_neon.h>

typedef uint8x16_t aotc_dot_block_rows;
typedef int8x16_t aotc_sdot_block_rows;
typedef struct { int8x16_t low, high; } aotc_byte_block_columns;

AOTC_INLINE uint32x4_t aotc_fours_of_rows(const void *p, const void *q)
{
    uint32_t one, two;
    memcpy(&one, p, sizeof one);
    memcpy(&two, q, sizeof two);
    return (uint32x4_t){one, 0, two, 0};
}
AOTC_INLINE aotc_dot_block_rows aotc_dot_block_a(const uint8_t *p, const uint8_t *q, int whole)
{
    if (whole)
        return vcombine_u8(vld1_u8(p), vld1_u8(q));
    return vreinterpretq_u8_u32(aotc_fours_of_rows(p, q));
}
AOTC_INLINE aotc_sdot_block_rows aotc_sdot_block_a(const int8_t *p, const int8_t *q, int whole)
{
    if (whole)
        return vcombine_s8(vld1_s8(p), vld1_s8(q));
    return vreinterpretq_s8_u32(aotc_fours_of_rows(p, q));
}
AOTC_INLINE aotc_byte_block_columns aotc_byte_block_b(const int8_t *p, const int8_t *q, int whole)
{
    const uint32x4_t one = vreinterpretq_u32_s8(vld1q_s8(p));
    const uint32x4_t two = whole ? vreinterpretq_u32_s8(vld1q_s8(q)) : vdupq_n_u32(0);
    return (aotc_byte_block_columns){vreinterpretq_s8_u32(vzip1q_u32(one, two)),
                                     vreinterpretq_s8_u32(vzip2q_u32(one, two))};
}
AOTC_INLINE aotc_vm aotc_dot_block(aotc_vm c, aotc_dot_block_rows a, int8x16_t b)
{
    return (aotc_vm)vusmmlaq_s32((int32x4_t)c, a, b);
}
AOTC_INLINE aotc_vm aotc_sdot_block(aotc_vm c, aotc_sdot_block_rows a, int8x16_t b)
{
    return (aotc_vm)vmmlaq_s32((int32x4_t)c, a, b);
}
AOTC_INLINE void aotc_byte_block_store(int32_t *first, int32_t *second, aotc_vm low, aotc_vm high)
{
    const int32x4_t a = (int32x4_t)low, b = (int32x4_t)high;
    vst1q_s32(first, vcombine_s32(vget_low_s32(a), vget_low_s32(b)));
    vst1q_s32(second, vcombine_s32(vget_high_s32(a), vget_high_s32(b)));
}

#endif
