/* aotc_cusim_mma.h: numbers of 16 bits and tf32, ldmatrix and mma of the simulator.
 *
 * A lane's registers, their order and what a register holds are those of the PTX ISA ("Matrix
 * Fragments for mma"); aotc_cuda.h says them.  Sums are rounded to f32 after each product, in the
 * order of k, where PTX leaves order and rounding open; those of integers wrap around. */
#ifndef AOTC_CUSIM_MMA_H
#define AOTC_CUSIM_MMA_H

#include "aotc_cusim.h"

/* ------------------------------------------------------------------ numbers */

struct aotc_half {
    uint16_t bits;
};

aotc_half aotc_to_half(float x);
float aotc_from_half(aotc_half x);

struct aotc_bf16 {
    uint16_t bits;
};

inline aotc_bf16 aotc_to_bf16(float x) /* to nearest, halves to even */
{
    const uint32_t bits = static_cast<uint32_t>(__float_as_int(x));
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return {0x7fff}; /* NaN, as the instruction has it */
    return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

inline float aotc_from_bf16(aotc_bf16 x)
{
    return __int_as_float(static_cast<int>(static_cast<uint32_t>(x.bits) << 16));
}

/* As the instructions that nvcc makes of cvt.rna.tf32.f32 for sm_80 to sm_120 do it. */
inline uint32_t aotc_to_tf32(float x)
{
    const uint32_t bits = static_cast<uint32_t>(__float_as_int(x));
    const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
    return (finite ? bits + 0x1000u : bits) & 0xffffe000u;
}

inline void aotc_round_tf32(uint32_t (&r)[4])
{
    for (uint32_t &x : r)
        x = aotc_to_tf32(__int_as_float(static_cast<int>(x)));
}

inline aotc_f32x4 aotc_load4_half(const uint16_t *from)
{
    cusim::require_global_alignment(from, 8);
    return {aotc_from_half({from[0]}), aotc_from_half({from[1]}), aotc_from_half({from[2]}),
            aotc_from_half({from[3]})};
}

/* Four neighbours, each rounded to 16 bits. */
template <class T>
void aotc_store_rounded4(aotc_shared<T> to, aotc_f32x4 value, T (*rounded)(float))
{
    to.require_alignment(8);
    to[0] = rounded(value.x);
    to[1] = rounded(value.y);
    to[2] = rounded(value.z);
    to[3] = rounded(value.w);
}

inline void aotc_store_half4(aotc_shared<aotc_half> to, aotc_f32x4 value)
{
    aotc_store_rounded4(to, value, aotc_to_half);
}

inline void aotc_store_bf164(aotc_shared<aotc_bf16> to, aotc_f32x4 value)
{
    aotc_store_rounded4(to, value, aotc_to_bf16);
}

inline uint32_t aotc_pack_half2(aotc_half lo, aotc_half hi)
{
    return static_cast<uint32_t>(lo.bits) | static_cast<uint32_t>(hi.bits) << 16;
}

inline uint32_t aotc_round_half2(float lo, float hi)
{
    return aotc_pack_half2(aotc_to_half(lo), aotc_to_half(hi));
}

inline uint32_t aotc_round_bf162(float lo, float hi)
{
    return static_cast<uint32_t>(aotc_to_bf16(lo).bits) |
           static_cast<uint32_t>(aotc_to_bf16(hi).bits) << 16;
}

inline float aotc_exp2(float x)
{
    const float power = std::exp2(x);
    return power < 1.17549435e-38f ? 0.0f : power;
}

/* ------------------------------------------------------------------ ldmatrix */

namespace cusim {

/* row: 16 bytes. */
void load_matrix(Site site, uint32_t (&r)[4], const void *row);
void load_transposed(Site site, uint32_t (&r)[4], const void *row);

template <class Row>
void ldmatrix(Site site, uint32_t (&r)[4], const Row &row)
{
    row.require_alignment(16);
    load_matrix(site, r, row.read(16 / sizeof *row.read(0)));
}

template <class Row>
void ldmatrix_trans(Site site, uint32_t (&r)[4], const Row &row)
{
    static_assert(sizeof *row.read(0) == 2, "what ldmatrix transposes has 16 bits");
    row.require_alignment(16);
    load_transposed(site, r, row.read(8));
}

}

#define aotc_ldmatrix_x4(r, row) \
    cusim::ldmatrix({"aotc_ldmatrix_x4", __FILE__, __LINE__}, r, row)
#define aotc_ldmatrix_x4_trans(r, row) \
    cusim::ldmatrix_trans({"aotc_ldmatrix_x4_trans", __FILE__, __LINE__}, r, row)

/* ------------------------------------------------------------------ mma */

namespace cusim {

/* What a lane gives to an mma: E numbers in each register of A and B. */
template <class A, class B, unsigned E>
struct Fragments {
    A a[4][E];
    B b[2][E];
};

inline float sum(float c, float product)
{
    return c + product;
}

inline int32_t sum(int32_t c, int32_t product)
{
    return static_cast<int32_t>(static_cast<uint32_t>(c) + static_cast<uint32_t>(product));
}

/* C (16x8) += A (16 x 8E) * B (8E x 8), each lane with its fragments of them. */
template <class C, class A, class B, unsigned E>
void multiply(Site site, C (&c)[4], const Fragments<A, B, E> &mine)
{
    const Slot *const slots = exchange(site, &mine, sizeof mine);
    const auto lane_of = [slots](unsigned group, unsigned t) {
        return reinterpret_cast<const Fragments<A, B, E> *>(slots[4 * group + t].bytes);
    };
    const unsigned row = lane() / 4, column = lane() % 4 * 2;
    for (unsigned k = 0; k < 8 * E; k++) {
        const unsigned upper = k / (4 * E), t = k % (4 * E) / E, e = k % E;
        const auto *const rows = lane_of(row, t);
        for (unsigned j = 0; j < 2; j++) {
            const B b = lane_of(column + j, t)->b[upper][e];
            c[j] = sum(c[j], C(rows->a[2 * upper][e]) * C(b));
            c[2 + j] = sum(c[2 + j], C(rows->a[2 * upper + 1][e]) * C(b));
        }
    }
}

/* from_a, from_b: number e of those in a register. */
template <unsigned E, class C, class FromA, class FromB>
void mma(Site site, FromA from_a, FromB from_b, C (&c)[4], const uint32_t (&a)[4], uint32_t b0,
         uint32_t b1)
{
    Fragments<decltype(from_a(0u, 0u)), decltype(from_b(0u, 0u)), E> mine;
    for (unsigned e = 0; e < E; e++) {
        for (unsigned i = 0; i < 4; i++)
            mine.a[i][e] = from_a(a[i], e);
        mine.b[0][e] = from_b(b0, e);
        mine.b[1][e] = from_b(b1, e);
    }
    multiply(site, c, mine);
}

inline float f16_of(uint32_t r, unsigned e)
{
    return aotc_from_half({static_cast<uint16_t>(r >> 16 * e)});
}

inline float bf16_of(uint32_t r, unsigned e)
{
    return aotc_from_bf16({static_cast<uint16_t>(r >> 16 * e)});
}

inline int16_t s8_of(uint32_t r, unsigned e)
{
    return static_cast<int8_t>(r >> 8 * e);
}

inline int16_t u8_of(uint32_t r, unsigned e)
{
    return static_cast<uint8_t>(r >> 8 * e);
}

/* Both numbers of a * b + c, rounded twice, where they are not exact. */
template <class T>
uint32_t fma_pairs(uint32_t a, uint32_t b, uint32_t c, float (*of)(uint32_t, unsigned),
                   T (*rounded)(float))
{
    uint32_t out = 0;
    for (unsigned e = 0; e < 2; e++)
        out |= static_cast<uint32_t>(rounded(fmaf(of(a, e), of(b, e), of(c, e))).bits) << 16 * e;
    return out;
}

/* Stops at bits that a tf32 has not: the instruction leaves open what they do. */
float tf32_of(uint32_t r, unsigned e);

}

inline uint32_t aotc_fma_halves(uint32_t a, uint32_t b, uint32_t c)
{
    return cusim::fma_pairs(a, b, c, cusim::f16_of, aotc_to_half);
}

inline uint32_t aotc_fma_bf16s(uint32_t a, uint32_t b, uint32_t c)
{
    return cusim::fma_pairs(a, b, c, cusim::bf16_of, aotc_to_bf16);
}

#define AOTC_CUSIM_MMA(name, per_register, from_a, from_b, c, a, b0, b1) \
    cusim::mma<per_register>({name, __FILE__, __LINE__}, from_a, from_b, c, a, b0, b1)

#define aotc_mma_m16n8k16_f16f32(c, a, b0, b1)                                                 \
    AOTC_CUSIM_MMA("aotc_mma_m16n8k16_f16f32", 2, cusim::f16_of, cusim::f16_of, c, a, b0, b1)
#define aotc_mma_m16n8k16_bf16f32(c, a, b0, b1)                                                \
    AOTC_CUSIM_MMA("aotc_mma_m16n8k16_bf16f32", 2, cusim::bf16_of, cusim::bf16_of, c, a, b0, b1)
#define aotc_mma_m16n8k8_tf32f32(c, a, b0, b1)                                                 \
    AOTC_CUSIM_MMA("aotc_mma_m16n8k8_tf32f32", 1, cusim::tf32_of, cusim::tf32_of, c, a, b0, b1)
#define aotc_mma_m16n8k32_s8s8(c, a, b0, b1)                                                   \
    AOTC_CUSIM_MMA("aotc_mma_m16n8k32_s8s8", 4, cusim::s8_of, cusim::s8_of, c, a, b0, b1)
#define aotc_mma_m16n8k32_s8u8(c, a, b0, b1)                                                   \
    AOTC_CUSIM_MMA("aotc_mma_m16n8k32_s8u8", 4, cusim::s8_of, cusim::u8_of, c, a, b0, b1)
#define aotc_mma_m16n8k32_u8s8(c, a, b0, b1)                                                   \
    AOTC_CUSIM_MMA("aotc_mma_m16n8k32_u8s8", 4, cusim::u8_of, cusim::s8_of, c, a, b0, b1)
#define aotc_mma_m16n8k32_u8u8(c, a, b0, b1)                                                   \
    AOTC_CUSIM_MMA("aotc_mma_m16n8k32_u8u8", 4, cusim::u8_of, cusim::u8_of, c, a, b0, b1)

#endif
