/* aotc_rvv_narrow.h: lanes of 32-bit integers beside the floats of aotc_rvv.h, loaded and stored
 * as integers of 8, 16 and 32 bits, on vectors of any length; included after aotc_rvv.h.
 * Integer lanes wrap. */
#ifndef AOTC_RVV_NARROW_H
#define AOTC_RVV_NARROW_H

#include "aotc_num.h"
#include "aotc_narrow.h" /* with AOTC_LANES 1: what scalar code calls */

#define AOTC_STEP(p, step) ((ptrdiff_t)((step) * (int64_t)sizeof *(p)))

/* Loads of T, integers or floats of so many BITS, as i32 lanes of M registers: side by side, and
 * `step` elements apart.  SHORT: T in a vector of as many lanes.  WIDENED: it as lanes of i32. */
#define AOTC_RVV_LOADS(M, NAME, T, BITS, SHORT, WIDENED)                                    \
    AOTC_RVV vint32##M##_t aotc_load_##NAME##_##M(const T *p, size_t vl)                    \
    {                                                                                       \
        return WIDENED(M, __riscv_vle##BITS##_v_##SHORT(p, vl));                            \
    }                                                                                       \
    AOTC_RVV vint32##M##_t aotc_load_##NAME##_apart_##M(const T *p, int64_t step, size_t vl)\
    {                                                                                       \
        return WIDENED(M, __riscv_vlse##BITS##_v_##SHORT(p, AOTC_STEP(p, step), vl));       \
    }

/* Stores of the low BITS of i32 lanes; CUT makes them of u32 lanes. */
#define AOTC_RVV_STORES(M, BITS, CUT)                                                       \
    AOTC_RVV void aotc_store_##BITS##_##M(void *p, vint32##M##_t x, size_t vl)              \
    {                                                                                       \
        const vuint32##M##_t all = __riscv_vreinterpret_v_i32##M##_u32##M(x);               \
        __riscv_vse##BITS((uint##BITS##_t *)p, CUT(all), vl);                               \
    }                                                                                       \
    AOTC_RVV void aotc_store_##BITS##_apart_##M(void *p, int64_t step, vint32##M##_t x,     \
                                                size_t vl)                                  \
    {                                                                                       \
        const vuint32##M##_t all = __riscv_vreinterpret_v_i32##M##_u32##M(x);               \
        uint##BITS##_t *const to = p;                                                       \
        __riscv_vsse##BITS(to, AOTC_STEP(to, step), CUT(all), vl);                          \
    }

#define AOTC_ZEROS_4(M, x) \
    __riscv_vreinterpret_v_u32##M##_i32##M(__riscv_vzext_vf4_u32##M(x, vl))
#define AOTC_ZEROS_2(M, x) \
    __riscv_vreinterpret_v_u32##M##_i32##M(__riscv_vzext_vf2_u32##M(x, vl))
#define AOTC_SIGNS_4(M, x) __riscv_vsext_vf4_i32##M(x, vl)
#define AOTC_SIGNS_2(M, x) __riscv_vsext_vf2_i32##M(x, vl)
#define AOTC_LOADED(M, x) (x)
#define AOTC_AS_IT_IS(x) (x)
#define AOTC_CUT_16(x) __riscv_vncvt_x(x, vl)
#define AOTC_CUT_8(x) __riscv_vncvt_x(__riscv_vncvt_x(x, vl), vl)

/* Functions of vectors of M registers: BYTES and HALF are as many lanes of 8 and of 16 bits.
 * aotc_to_i32: truncation; NaN and what does not fit give the least number.  Not by vfcvt.rtz,
 * which QEMU 7 stumbles over.  aotc_to_T: what T keeps of it.
 * aotc_rounded: round(x) + zero between low and high, NaN as 0: its low bits are 0 anyway. */
#define AOTC_NARROW_RVV(M, BYTES, HALF)                                                     \
    AOTC_RVV_LOADS(M, u8, uint8_t, 8, u8##BYTES, AOTC_ZEROS_4)                              \
    AOTC_RVV_LOADS(M, i8, int8_t, 8, i8##BYTES, AOTC_SIGNS_4)                               \
    AOTC_RVV_LOADS(M, u16, uint16_t, 16, u16##HALF, AOTC_ZEROS_2)                           \
    AOTC_RVV_LOADS(M, i16, int16_t, 16, i16##HALF, AOTC_SIGNS_2)                            \
    AOTC_RVV_LOADS(M, i32, int32_t, 32, i32##M, AOTC_LOADED)                                \
    AOTC_RVV_STORES(M, 8, AOTC_CUT_8)                                                       \
    AOTC_RVV_STORES(M, 16, AOTC_CUT_16)                                                     \
    AOTC_RVV_STORES(M, 32, AOTC_AS_IT_IS)                                                   \
    AOTC_RVV vint32##M##_t aotc_to_i32_##M(vfloat32##M##_t x, size_t vl)                    \
    {                                                                                       \
        const vfloat32##M##_t low = __riscv_vfmerge(x, -2147483648.0f, __riscv_vmnot(       \
            __riscv_vmflt(__riscv_vfabs(x, vl), 2147483648.0f, vl), vl), vl);               \
        return __riscv_vfcvt_x(low, __RISCV_FRM_RTZ, vl);                                   \
    }                                                                                       \
    AOTC_RVV vint32##M##_t aotc_rounded_##M(vfloat32##M##_t x, int zero, int low, int high, \
                                            size_t vl)                                      \
    {                                                                                       \
        const vfloat32##M##_t within = __riscv_vfmin(__riscv_vfmax(                         \
            x, (float)(low - zero), vl), (float)(high - zero), vl);                         \
        vint32##M##_t r = __riscv_vfcvt_x(within, __RISCV_FRM_RNE, vl);                     \
        r = zero == 0 ? r : __riscv_vadd(r, zero, vl);                                      \
        return low == 0 ? r : __riscv_vmerge(r, 0, __riscv_vmfne(x, x, vl), vl);            \
    }                                                                                       \
    AOTC_RVV vint32##M##_t aotc_to_u8_##M(vfloat32##M##_t x, size_t vl)                     \
    {                                                                                       \
        return __riscv_vand(aotc_to_i32_##M(x, vl), 255, vl);                               \
    }                                                                                       \
    AOTC_RVV vint32##M##_t aotc_to_u16_##M(vfloat32##M##_t x, size_t vl)                    \
    {                                                                                       \
        return __riscv_vand(aotc_to_i32_##M(x, vl), 65535, vl);                             \
    }                                                                                       \
    AOTC_RVV vint32##M##_t aotc_to_i8_##M(vfloat32##M##_t x, size_t vl)                     \
    {                                                                                       \
        return __riscv_vsra(__riscv_vsll(aotc_to_i32_##M(x, vl), 24, vl), 24, vl);          \
    }                                                                                       \
    AOTC_RVV vint32##M##_t aotc_to_i16_##M(vfloat32##M##_t x, size_t vl)                    \
    {                                                                                       \
        return __riscv_vsra(__riscv_vsll(aotc_to_i32_##M(x, vl), 16, vl), 16, vl);          \
    }

AOTC_NARROW_RVV(m1, mf4, mf2)
AOTC_NARROW_RVV(m2, mf2, m1)
AOTC_NARROW_RVV(m4, m1, m2)

#undef AOTC_RVV_LOADS
#undef AOTC_RVV_STORES
#undef AOTC_ZEROS_4
#undef AOTC_ZEROS_2
#undef AOTC_SIGNS_4
#undef AOTC_SIGNS_2
#undef AOTC_LOADED
#undef AOTC_AS_IT_IS
#undef AOTC_CUT_16
#undef AOTC_CUT_8

#endif
