/* aotc_rvv_half.h: lanes of half precision, as in aotc_half.h, on vectors of any length; included
 * after aotc_rvv.h.  The vector extension alone has no instruction that converts, so lanes of bits
 * are converted by arithmetic on integers; Zvfhmin has one in each direction. */
#ifndef AOTC_RVV_HALF_H
#define AOTC_RVV_HALF_H

/* Values: aotc_half_load and aotc_half_store convert what is in memory, aotc_half_widen and
 * aotc_half_narrow lanes that hold the bits. */
#if defined(__riscv_zvfhmin)
#define AOTC_HALF_CONVERSIONS(M, HALF)                                                      \
    AOTC_RVV vfloat32##M##_t aotc_half_load_##M(const uint16_t *p, size_t vl)               \
    {                                                                                       \
        return __riscv_vfwcvt_f(__riscv_vreinterpret_v_u16##HALF##_f16##HALF(               \
            __riscv_vle16_v_u16##HALF(p, vl)), vl);                                         \
    }                                                                                       \
    AOTC_RVV void aotc_half_store_##M(uint16_t *p, vfloat32##M##_t x, size_t vl)            \
    {                                                                                       \
        __riscv_vse16(p, __riscv_vreinterpret_v_f16##HALF##_u16##HALF(                      \
            __riscv_vfncvt_f(x, vl)), vl);                                                  \
    }                                                                                       \
    AOTC_RVV vfloat32##M##_t aotc_half_widen_##M(vfloat32##M##_t bits, size_t vl)           \
    {                                                                                       \
        return __riscv_vfwcvt_f(__riscv_vreinterpret_v_u16##HALF##_f16##HALF(               \
            aotc_half_cut_##M(bits, vl)), vl);                                              \
    }                                                                                       \
    AOTC_RVV vfloat32##M##_t aotc_half_narrow_##M(vfloat32##M##_t x, size_t vl)             \
    {                                                                                       \
        return aotc_half_extended_##M(__riscv_vreinterpret_v_f16##HALF##_u16##HALF(         \
            __riscv_vfncvt_f(x, vl)), vl);                                                  \
    }
#else
#define AOTC_HALF_CONVERSIONS(M, HALF)                                                      \
    AOTC_RVV vfloat32##M##_t aotc_half_widen_##M(vfloat32##M##_t bits, size_t vl)           \
    {                                                                                       \
        const vuint32##M##_t h = __riscv_vreinterpret_v_f32##M##_u32##M(bits);              \
        const vuint32##M##_t sign = __riscv_vsll(__riscv_vand(h, 0x8000, vl), 16, vl);      \
        const vuint32##M##_t rest = __riscv_vand(h, 0x7fff, vl);                            \
        vuint32##M##_t y = __riscv_vadd(__riscv_vsll(rest, 13, vl), 112u << 23, vl);        \
        y = __riscv_vadd_mu(__riscv_vmsgeu(rest, 0x7c00, vl), y, y, 112u << 23, vl);        \
        y = __riscv_vor_mu(__riscv_vmsgtu(rest, 0x7c00, vl), y, y, 0x400000, vl);           \
        const vfloat32##M##_t small = __riscv_vfmul(                                        \
            __riscv_vfcvt_f_xu_v_f32##M(rest, vl), 0x1p-24f, vl);                           \
        y = __riscv_vmerge(y, __riscv_vreinterpret_v_f32##M##_u32##M(small),                \
                           __riscv_vmsltu(rest, 0x400, vl), vl);                            \
        return __riscv_vreinterpret_v_u32##M##_f32##M(__riscv_vor(y, sign, vl));            \
    }                                                                                       \
    AOTC_RVV vfloat32##M##_t aotc_half_narrow_##M(vfloat32##M##_t x, size_t vl)             \
    {                                                                                       \
        const vuint32##M##_t bits = __riscv_vreinterpret_v_f32##M##_u32##M(x);              \
        const vuint32##M##_t rest = __riscv_vand(bits, 0x7fffffff, vl);                     \
        const vuint32##M##_t sign = __riscv_vand(__riscv_vsrl(bits, 16, vl), 0x8000, vl);   \
        const vuint32##M##_t upper = __riscv_vsrl(rest, 13, vl);                            \
        /* below 2^-14: the sum's last bit is worth 2^-24 */                                \
        const vfloat32##M##_t sum = __riscv_vfadd(                                          \
            __riscv_vreinterpret_v_u32##M##_f32##M(rest), 0.5f, vl);                        \
        const vuint32##M##_t small = __riscv_vsub(                                          \
            __riscv_vreinterpret_v_f32##M##_u32##M(sum), 0x3f000000, vl);                   \
        vuint32##M##_t y = __riscv_vadd(rest, 0xfffu - (112u << 23), vl);                   \
        y = __riscv_vsrl(__riscv_vadd(y, __riscv_vand(upper, 1, vl), vl), 13, vl);          \
        y = __riscv_vmerge(y, small, __riscv_vmsltu(rest, 0x38800000, vl), vl);             \
        y = __riscv_vmerge(y, 0x7c00, __riscv_vmsgeu(rest, 0x47800000, vl), vl);            \
        const vuint32##M##_t nan = __riscv_vor(__riscv_vand(upper, 0x3ff, vl), 0x7e00, vl); \
        y = __riscv_vmerge(y, nan, __riscv_vmsgtu(rest, 0x7f800000, vl), vl);               \
        return __riscv_vreinterpret_v_u32##M##_f32##M(__riscv_vor(y, sign, vl));            \
    }                                                                                       \
    AOTC_RVV vfloat32##M##_t aotc_half_load_##M(const uint16_t *p, size_t vl)               \
    {                                                                                       \
        return aotc_half_widen_##M(aotc_half_extended_##M(                                  \
            __riscv_vle16_v_u16##HALF(p, vl), vl), vl);                                     \
    }                                                                                       \
    AOTC_RVV void aotc_half_store_##M(uint16_t *p, vfloat32##M##_t x, size_t vl)            \
    {                                                                                       \
        __riscv_vse16(p, aotc_half_cut_##M(aotc_half_narrow_##M(x, vl), vl), vl);           \
    }
#endif

/* Functions of vectors of M registers: HALF is the type of as many lanes of 16 bits. */
#define AOTC_HALF_RVV(M, HALF)                                                              \
    AOTC_RVV vfloat32##M##_t aotc_half_extended_##M(vuint16##HALF##_t h, size_t vl)         \
    {                                                                                       \
        return __riscv_vreinterpret_v_u32##M##_f32##M(__riscv_vzext_vf2_u32##M(h, vl));     \
    }                                                                                       \
    AOTC_RVV vuint16##HALF##_t aotc_half_cut_##M(vfloat32##M##_t bits, size_t vl)           \
    {                                                                                       \
        return __riscv_vncvt_x_x_w_u16##HALF(__riscv_vreinterpret_v_f32##M##_u32##M(bits),  \
                                             vl);                                           \
    }                                                                                       \
    AOTC_HALF_CONVERSIONS(M, HALF)                                                          \
    AOTC_RVV vfloat32##M##_t aotc_half_bits_##M(const uint16_t *p, size_t vl)               \
    {                                                                                       \
        return aotc_half_extended_##M(__riscv_vle16_v_u16##HALF(p, vl), vl);                \
    }                                                                                       \
    AOTC_RVV vfloat32##M##_t aotc_half_bits_apart_##M(const uint16_t *p, int64_t step,      \
                                                      size_t vl)                            \
    {                                                                                       \
        return aotc_half_extended_##M(                                                      \
            __riscv_vlse16_v_u16##HALF(p, (ptrdiff_t)(2 * step), vl), vl);                  \
    }                                                                                       \
    AOTC_RVV void aotc_half_put_##M(uint16_t *p, vfloat32##M##_t bits, size_t vl)           \
    {                                                                                       \
        __riscv_vse16(p, aotc_half_cut_##M(bits, vl), vl);                                  \
    }                                                                                       \
    AOTC_RVV void aotc_half_put_apart_##M(uint16_t *p, int64_t step, vfloat32##M##_t bits,  \
                                          size_t vl)                                        \
    {                                                                                       \
        __riscv_vsse16(p, (ptrdiff_t)(2 * step), aotc_half_cut_##M(bits, vl), vl);          \
    }                                                                                       \
    AOTC_RVV vfloat32##M##_t aotc_half_of_##M(const uint32_t *p, size_t vl)                 \
    {                                                                                       \
        return __riscv_vreinterpret_v_u32##M##_f32##M(__riscv_vle32_v_u32##M(p, vl));       \
    }                                                                                       \
    AOTC_RVV vfloat32##M##_t aotc_half_splat_##M(uint16_t bits, size_t vl)                  \
    {                                                                                       \
        return __riscv_vreinterpret_v_u32##M##_f32##M(__riscv_vmv_v_x_u32##M(bits, vl));    \
    }

AOTC_HALF_RVV(m1, mf2)
AOTC_HALF_RVV(m2, m1)
AOTC_HALF_RVV(m4, m2)

#endif
