/* aotc_simt_bf16.h: conversions of single numbers of bf16, the upper half of an f32, on a GPU.
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
