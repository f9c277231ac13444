/* aotc_bf16_num.h: bf16, the upper half of an f32, and conversions of single numbers.  Included
 * after aotc_num.h.
 *
 * To nearest, ties to even; a NaN stays a quiet NaN.  What is no normal number becomes a zero of
 * its sign, as in the instructions that convert. */
#ifndef AOTC_BF16_NUM_H
#define AOTC_BF16_NUM_H

AOTC_SCALAR float aotc_bf16_to_f32(uint16_t h) { return aotc_float_u32((uint32_t)h << 16); }

AOTC_SCALAR uint16_t aotc_f32_to_bf16(float x)
{
    const uint32_t bits = aotc_bits_f32(x), size = bits & 0x7fffffffu;
    if (size > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    if (size < 0x00800000u)
        return (uint16_t)(bits >> 16 & 0x8000u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#endif
