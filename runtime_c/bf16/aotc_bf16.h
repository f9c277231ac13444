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

/* A panel of `width` columns for products of pairs: to[k / 2][j][k % 2] = from[j*step + k] for
 * j < columns and k < depth, else zero. */
static inline void aotc_bf16_pack(const uint16_t *from, int64_t step, int64_t columns,
    int64_t depth, uint16_t *to, int64_t width)
{
    int64_t k = 0;
#if AOTC_LANES > 1
    if (((uintptr_t)from & 3) == 0 && step % 2 == 0 && width % AOTC_LANES == 0) {
        k = depth / 2; /* pairs move as floats would */
        aotc_pack_columns((const float *)(const void *)from, step / 2, columns, k,
            (float *)(void *)to, width);
    }
#endif
    for (; 2 * k < depth; ++k) {
        for (int64_t j = 0; j < width; ++j) {
            const uint16_t *const pair = from + j * step + 2 * k;
            to[2 * (k * width + j)] = j < columns ? pair[0] : 0;
            to[2 * (k * width + j) + 1] = (j < columns && 2 * k + 1 < depth) ? pair[1] : 0;
        }
    }
}

/* The same from columns side by side: from[k*step + j]. */
static inline void aotc_bf16_pack_across(const uint16_t *from, int64_t step, int64_t columns,
    int64_t depth, uint16_t *to, int64_t width)
{
    for (int64_t k = 0; k < depth; k += 2, from += 2 * step, to += 2 * width) {
        const int64_t odd = k + 1 < depth ? step : 0;
        int64_t j = 0;
#if AOTC_LANES > 1
        for (; j + AOTC_LANES <= columns && odd; j += AOTC_LANES) {
            const aotc_vm low = (aotc_vm)aotc_half_bits(from + j);
            const aotc_vm high = (aotc_vm)aotc_half_bits(from + j + step);
            aotc_store((float *)(void *)(to + 2 * j), (aotc_vf)(low | high << 16));
        }
#endif
        for (; j < width; ++j) {
            to[2 * j] = j < columns ? from[j] : 0;
            to[2 * j + 1] = (j < columns && odd) ? from[odd + j] : 0;
        }
    }
}

/* The float with only the bits that bf16 has. */
AOTC_INLINE aotc_vf aotc_bf16_round(aotc_vf x) { return aotc_bf16_widen(aotc_bf16_narrow(x)); }

#endif
