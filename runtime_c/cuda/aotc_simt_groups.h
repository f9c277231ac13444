/* aotc_simt_groups.h: weights of 8 or 4 bits in groups, for tensor cores: codes become pairs of
 * numbers of 16 bits in registers.
 *
 * All of it is exact: a code less a zero point is a whole number of at most 255, which f16 and bf16
 * have.  The bits of a code stand below the exponent of a number in which they count one, or
 * sixteen, and that number is subtracted. */
#ifndef AOTC_SIMT_GROUPS_H
#define AOTC_SIMT_GROUPS_H

#include "aotc_simt.h"

template <class T, int BITS>
struct aotc_codes {
};

/* Two codes as a register of two numbers, of bytes 0 and 2 of a word: of 8 bits those bytes, of 4
 * bits the lower half of the first and, of f16, the upper half of the second, of bf16 the lower
 * one.  less: what aotc_zero_pair makes of the zero point, or of none. */
AOTC_DEVICE uint32_t aotc_code_pair(aotc_codes<aotc_half, 4>, uint32_t bytes, uint32_t less)
{
    return aotc_fma_halves(aotc_and_xor(bytes, 0x00f0000fu, 0x64806408u), 0x2c003c00u, less);
}

AOTC_DEVICE uint32_t aotc_code_pair(aotc_codes<aotc_half, 8>, uint32_t bytes, uint32_t less)
{
    return aotc_fma_halves(aotc_and_xor(bytes, 0x00ff00ffu, 0x64806480u), 0x3c003c00u, less);
}

AOTC_DEVICE uint32_t aotc_code_pair(aotc_codes<aotc_bf16, 4>, uint32_t bytes, uint32_t)
{
    return aotc_fma_bf16s(aotc_and_xor(bytes, 0x000f000fu, 0x43084308u), 0x3f803f80u, 0xc308c308u);
}

AOTC_DEVICE uint32_t aotc_code_pair(aotc_codes<aotc_bf16, 8>, uint32_t bytes, uint32_t)
{
    return aotc_fma_bf16s(aotc_and_xor(bytes, 0x00800080u, 0x43004300u), 0xbf80bf80u,
                          aotc_and_xor(bytes, 0x007f007fu, 0x43004300u));
}

/* What is subtracted for a zero point, a signed byte that is in bytes 0 and 2, and for none: of
 * bf16, whose sum of both may be no number, the zero point alone. */
AOTC_DEVICE uint32_t aotc_zero_pair(aotc_codes<aotc_half, 4>, uint32_t bytes)
{
    return aotc_fma_halves(aotc_and_xor(bytes, 0x00ff00ffu, 0x64806480u), 0xbc00bc00u, 0x64385780u);
}

AOTC_DEVICE uint32_t aotc_zero_pair(aotc_codes<aotc_half, 8>, uint32_t bytes)
{
    return aotc_and_xor(bytes, 0x00ff00ffu, 0xe480e480u);
}

template <int BITS>
AOTC_DEVICE uint32_t aotc_zero_pair(aotc_codes<aotc_bf16, BITS>, uint32_t bytes)
{
    return aotc_fma_bf16s(aotc_and_xor(bytes, 0x007f007fu, 0x43004300u), 0xbf80bf80u,
                          aotc_and_xor(bytes, 0x00800080u, 0x43004300u));
}

/* A pair less zero points: f16 has done so already. */
template <int BITS>
AOTC_DEVICE uint32_t aotc_less_zero(aotc_codes<aotc_half, BITS>, uint32_t pair, uint32_t)
{
    return pair;
}

template <int BITS>
AOTC_DEVICE uint32_t aotc_less_zero(aotc_codes<aotc_bf16, BITS>, uint32_t pair, uint32_t less)
{
    return aotc_fma_bf16s(pair, 0x3f803f80u, less);
}

/* The byte of a word that has the second code of a byte of 4 bits, where aotc_code_pair has it. */
AOTC_DEVICE uint32_t aotc_second(aotc_codes<aotc_half, 4>, uint32_t word)
{
    return word;
}

AOTC_DEVICE uint32_t aotc_second(aotc_codes<aotc_bf16, 4>, uint32_t word)
{
    return word >> 4;
}

/* less[c], of column c of four neighbours, whose zero points are in a word, or none. */
template <class T, int BITS>
AOTC_DEVICE void aotc_zero_pairs(uint32_t *less, uint32_t word)
{
    AOTC_UNROLL
    for (uint32_t c = 0; c < 4; ++c)
        less[c] = aotc_zero_pair(aotc_codes<T, BITS>(), aotc_bytes(word, word, c * 0x1111u));
}

template <class T, int BITS>
AOTC_DEVICE void aotc_no_zeros(uint32_t *less)
{
    AOTC_UNROLL
    for (uint32_t c = 0; c < 4; ++c)
        less[c] = aotc_zero_pair(aotc_codes<T, BITS>(), 0);
}

/* to[c], two terms of column c of four neighbours: of 8 bits of the two words at ``code``. */
template <class T, int BITS, bool ZEROS>
AOTC_DEVICE void aotc_code_pairs(uint32_t *to, const uint32_t *code, const uint32_t *less)
{
    constexpr aotc_codes<T, BITS> kind = {};
    uint32_t second;
    if constexpr (BITS == 4)
        second = aotc_second(kind, code[0]);
    else
        second = code[1];
    AOTC_UNROLL
    for (uint32_t c = 0; c < 4; ++c) {
        to[c] = aotc_code_pair(kind, aotc_bytes(code[0], second, 0x4400u + c * 0x1111u), less[c]);
        if constexpr (ZEROS)
            to[c] = aotc_less_zero(kind, to[c], less[c]);
    }
}

/* A lane's registers of B of four tiles, b[c] of that with column c of four neighbours, for 16
 * steps of the sum: codes of two or of one of those in a row of bytes, ``apart`` bytes from one to
 * the next, the lane's first row at ``from``. */
template <class T, int BITS, bool ZEROS, class From>
AOTC_DEVICE void aotc_load_codes(uint32_t (*b)[2], From from, int32_t apart, const uint32_t *less)
{
    AOTC_UNROLL
    for (int32_t half = 0; half < 2; ++half) {
        uint32_t code[BITS / 4], pair[4];
        AOTC_UNROLL
        for (int32_t i = 0; i < BITS / 4; ++i)
            code[i] = aotc_load_word(from + (half * BITS + i) * apart);
        aotc_code_pairs<T, BITS, ZEROS>(pair, code, less);
        AOTC_UNROLL
        for (int32_t c = 0; c < 4; ++c)
            b[c][half] = pair[c];
    }
}

/* Two registers of four neighbouring terms of a row, aligned to 8 bytes, or zeros; and the same
 * one by one. */
template <class From>
AOTC_DEVICE void aotc_load_pairs(uint32_t *to, From from, bool live = true)
{
    const aotc_u32x2 found = live ? aotc_load8(from) : aotc_u32x2{};
    to[0] = found.x;
    to[1] = found.y;
}

template <class From>
AOTC_DEVICE void aotc_take_pairs(uint32_t *to, From from, bool live = true)
{
    AOTC_UNROLL
    for (int i = 0; i < 2; ++i)
        to[i] = live ? static_cast<uint32_t>(from[2 * i]) |
                           static_cast<uint32_t>(from[2 * i + 1]) << 16
                     : 0;
}

/* The scales of four neighbouring columns, of as many words as those have bytes. */
template <int PLANES>
AOTC_DEVICE void aotc_words_scales(float *scale, const uint32_t *words)
{
    uint32_t bytes[4] = {};
    AOTC_UNROLL
    for (int p = 0; p < PLANES; ++p)
        bytes[4 - PLANES + p] = words[p];
    aotc_join_bytes(scale, bytes[0], bytes[1], bytes[2], bytes[3]);
}

/* The scales of 8 neighbouring columns, as aotc_load_scales has those of 16. */
template <int PLANES, class From>
AOTC_DEVICE void aotc_load_scales8(float *scale, From from, int32_t apart)
{
    uint32_t bytes[4][2] = {};
    AOTC_UNROLL
    for (int p = 0; p < PLANES; ++p)
        AOTC_UNROLL
        for (int word = 0; word < 2; ++word)
            bytes[4 - PLANES + p][word] = aotc_load_word(from + p * apart + 4 * word);
    AOTC_UNROLL
    for (int i = 0; i < 2; ++i)
        aotc_join_bytes(scale + 4 * i, bytes[0][i], bytes[1][i], bytes[2][i], bytes[3][i]);
}

/* The sums of a group of a lane's two columns, in two rows, join those of all, and begin again. */
AOTC_DEVICE void aotc_join_sums(float (&total)[4], float (&sum)[4], float scale, float other)
{
    total[0] += sum[0] * scale;
    total[1] += sum[1] * other;
    total[2] += sum[2] * scale;
    total[3] += sum[3] * other;
    AOTC_UNROLL
    for (int i = 0; i < 4; ++i)
        sum[i] = 0.0f;
}

#endif
