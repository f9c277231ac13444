/* aotc_bf16.h: lanes of bf16 beside the floats of aotc_vec.h, as aotc_half.h has them of f16; what
 * only moves 16 bits is that header's.  Included after it.  Conversions are those of
 * aotc_bf16_num.h, bit by bit. */
#ifndef AOTC_BF16_H
#define AOTC_BF16_H

#include "aotc_bf16_num.h"

AOTC_INLINE aotc_vf aotc_bf16_widen(aotc_vf bits)
{
#if AOTC_LANES > 1
    return (aotc_vf)((aotc_vm)bits << 16);
#else
    return aotc_bf16_to_f32(aotc_half_cut(bits).lane[0]);
#endif
}

AOTC_INLINE aotc_vf aotc_bf16_narrow(aotc_vf x)
{
#if AOTC_LANES > 1
    const aotc_vm bits = (aotc_vm)x, rest = bits & 0x7fffffff, upper = bits >> 16 & 0xffff;
    const aotc_vm near = (bits + 0x7fff + (upper & 1)) >> 16 & 0xffff;
    const aotc_vm nan = rest > 0x7f800000, tiny = rest < 0x00800000;
    return (aotc_vf)((nan & (upper | 0x40)) | (tiny & upper & 0x8000) | (~nan & ~tiny & near));
#else
    const aotc_halves h = {{aotc_f32_to_bf16(x)}};
    return aotc_half_extended(h);
#endif
}

AOTC_INLINE aotc_halves aotc_bf16_down(aotc_vf x)
{
#if defined(__AVX512BF16__) && defined(__AVX512F__) && AOTC_LANES == 16
    return (aotc_halves)_mm512_cvtneps_pbh((__m512)x);
#else
    return aotc_half_cut(aotc_bf16_narrow(x));
#endif
}

AOTC_INLINE aotc_vf aotc_bf16_up(aotc_halves h)
{
    return aotc_bf16_widen(aotc_half_extended(h));
}

AOTC_INLINE aotc_vf aotc_bf16_load(const uint16_t *p) { return aotc_bf16_up(aotc_half_get(p)); }
AOTC_INLINE aotc_vf aotc_bf16_load_n(const uint16_t *p, int64_t n, float fill)
{
    return aotc_keep_n(aotc_bf16_up(aotc_half_get_n(p, n)), n, fill);
}
AOTC_INLINE void aotc_bf16_store(uint16_t *p, aotc_vf x) { aotc_half_set(p, aotc_bf16_down(x)); }
AOTC_INLINE void aotc_bf16_store_n(uint16_t *p, aotc_vf x, int64_t n)
{
    aotc_half_set_n(p, aotc_bf16_down(x), n);
}

/* The float with only the bits that bf16 has. */
AOTC_INLINE aotc_vf aotc_bf16_round(aotc_vf x) { return aotc_bf16_widen(aotc_bf16_narrow(x)); }

#endif
