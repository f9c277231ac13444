/* aotc_simt_bf16.h: bf16, the upper half of an f32, on a GPU: conversions and products.
 *
 * By an instruction: to nearest, ties to even; a NaN stays some NaN.  What is no normal number
 * becomes a zero of its sign, as everywhere else (aotc_bf16_num.h). */
#ifndef AOTC_SIMT_BF16_H
#define AOTC_SIMT_BF16_H

#include "aotc_cuda.h"

#include "aotc_num.h"

AOTC_DEVICE float aotc_bf16_to_f32(uint16_t h)
{
    return aotc_float_u32(static_cast<uint32_t>(h) << 16);
}

/* The same, of its bits. */
AOTC_DEVICE float aotc_float_bf16(uint16_t h)
{
    return aotc_bf16_to_f32(h);
}

template <class From>
AOTC_DEVICE aotc_f32x4 aotc_take4_bf16(From from)
{
    const aotc_f32x4 found = {aotc_bf16_to_f32(from[0]), aotc_bf16_to_f32(from[1]),
                              aotc_bf16_to_f32(from[2]), aotc_bf16_to_f32(from[3])};
    return found;
}

/* Four neighbouring terms of a row, aligned to 8 bytes, and one by one. */
template <class From>
AOTC_DEVICE aotc_f32x4 aotc_load4_bf16(From from)
{
    const auto bits = aotc_load_pack<4>(from);
    return aotc_take4_bf16(bits.of);
}

/* acc[0..7] += a * b, eight of them. */
AOTC_DEVICE void aotc_madd_bf16s(float *acc, float a, aotc_u32x4 b)
{
    const uint32_t pairs[4] = {b.x, b.y, b.z, b.w};
    AOTC_UNROLL
    for (int j = 0; j < 4; ++j) {
        acc[2 * j] += a * aotc_float_u32(pairs[j] << 16);
        acc[2 * j + 1] += a * aotc_float_u32(pairs[j] & 0xffff0000u);
    }
}

AOTC_DEVICE uint16_t aotc_f32_to_bf16(float x)
{
    const uint32_t bits = aotc_bits_f32(x);
    const uint32_t normal = (bits & 0x7fffffffu) < 0x00800000u ? bits & 0x80000000u : bits;
#ifdef __CUDACC__
    return __bfloat16_as_ushort(__float2bfloat16_rn(aotc_float_u32(normal)));
#else
    return aotc_to_bf16(aotc_float_u32(normal)).bits;
#endif
}

#endif
