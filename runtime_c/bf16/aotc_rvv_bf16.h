/* aotc_rvv_bf16.h: lanes of bf16, as in aotc_bf16.h, on vectors of any length; included after
 * aotc_rvv_half.h.  Zvfbfmin has instructions that convert; this does so by arithmetic on
 * integers. */
#ifndef AOTC_RVV_BF16_H
#define AOTC_RVV_BF16_H

#include "aotc_bf16_num.h"

/* Functions of vectors of M registers. */
#define AOTC_BF16_RVV(M)                                                                   \
    AOTC_RVV vfloat32##M##_t aotc_bf16_widen_##M(vfloat32##M##_t bits, size_t vl)          \
    {                                                                                       \
        return __riscv_vreinterpret_v_u32##M##_f32##M(__riscv_vsll(                         \
            __riscv_vreinterpret_v_f32##M##_u32##M(bits), 16, vl));                         \
    }                                                                                       \
    AOTC_RVV vfloat32##M##_t aotc_bf16_narrow_##M(vfloat32##M##_t x, size_t vl)            \
    {                                                                                       \
        const vuint32##M##_t bits = __riscv_vreinterpret_v_f32##M##_u32##M(x);              \
        const vuint32##M##_t rest = __riscv_vand(bits, 0x7fffffff, vl);                     \
        const vuint32##M##_t upper = __riscv_vsrl(bits, 16, vl);                            \
        vuint32##M##_t y = __riscv_vadd(bits, __riscv_vand(upper, 1, vl), vl);              \
        y = __riscv_vsrl(__riscv_vadd(y, 0x7fff, vl), 16, vl);                              \
        y = __riscv_vmerge(y, __riscv_vand(upper, 0x8000, vl),                              \
                           __riscv_vmsltu(rest, 0x00800000, vl), vl);                       \
        y = __riscv_vmerge(y, __riscv_vor(upper, 0x40, vl),                                 \
                           __riscv_vmsgtu(rest, 0x7f800000, vl), vl);                       \
        return __riscv_vreinterpret_v_u32##M##_f32##M(y);                                   \
    }                                                                                       \
    AOTC_RVV vfloat32##M##_t aotc_bf16_load_##M(const uint16_t *p, size_t vl)               \
    {                                                                                       \
        return aotc_bf16_widen_##M(aotc_half_bits_##M(p, vl), vl);                          \
    }                                                                                       \
    AOTC_RVV void aotc_bf16_store_##M(uint16_t *p, vfloat32##M##_t x, size_t vl)            \
    {                                                                                       \
        aotc_half_put_##M(p, aotc_bf16_narrow_##M(x, vl), vl);                              \
    }

AOTC_BF16_RVV(m1)
AOTC_BF16_RVV(m2)
AOTC_BF16_RVV(m4)

#endif
