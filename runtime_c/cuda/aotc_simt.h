/* aotc_simt.h: what generated CUDA kernels share: NaN rules, folds over a warp, checked indices. */
#ifndef AOTC_SIMT_H
#define AOTC_SIMT_H

#include "aotc_cuda.h"

#include "aotc_index.h"
#include "aotc_num.h"

#include <math.h>

#ifdef __CUDACC__
#define AOTC_PRAGMA(text) _Pragma(#text)
#define AOTC_UNROLL _Pragma("unroll")
#define AOTC_UNROLL_BY(turns) AOTC_PRAGMA(unroll turns)
#else
#define AOTC_UNROLL
#define AOTC_UNROLL_BY(turns)
#endif

/* acc[0..3] += a * b */
AOTC_DEVICE void aotc_madd4(float *acc, float a, aotc_f32x4 b)
{
    acc[0] += a * b.x;
    acc[1] += a * b.y;
    acc[2] += a * b.z;
    acc[3] += a * b.w;
}

/* Four neighbouring terms of a row, one by one. */
template <class From>
AOTC_DEVICE aotc_f32x4 aotc_take4(From from)
{
    const aotc_f32x4 found = {from[0], from[1], from[2], from[3]};
    return found;
}

template <class From>
AOTC_DEVICE aotc_f32x4 aotc_take4_half(From from)
{
    const aotc_f32x4 found = {aotc_f16_to_f32(from[0]), aotc_f16_to_f32(from[1]),
                              aotc_f16_to_f32(from[2]), aotc_f16_to_f32(from[3])};
    return found;
}

/* Four bytes as a word, and four times as many, one by one. */
template <class From>
AOTC_DEVICE uint32_t aotc_take_word(From from)
{
    uint32_t word = 0;
    AOTC_UNROLL
    for (int i = 0; i < 4; ++i)
        word |= static_cast<uint32_t>(static_cast<uint8_t>(from[i])) << 8 * i;
    return word;
}

template <class From>
AOTC_DEVICE aotc_u32x4 aotc_take16(From from)
{
    const aotc_u32x4 found = {aotc_take_word(from), aotc_take_word(from + 4),
                              aotc_take_word(from + 8), aotc_take_word(from + 12)};
    return found;
}

/* acc[0..7] += a * b, eight halves, and acc[0..3] += products of four bytes each. */
AOTC_DEVICE void aotc_madd_halves(float *acc, float a, aotc_u32x4 b)
{
    const uint32_t pairs[4] = {b.x, b.y, b.z, b.w};
    AOTC_UNROLL
    for (int j = 0; j < 4; ++j) {
        acc[2 * j] += a * aotc_f16_to_f32(static_cast<uint16_t>(pairs[j]));
        acc[2 * j + 1] += a * aotc_f16_to_f32(static_cast<uint16_t>(pairs[j] >> 16));
    }
}

AOTC_DEVICE void aotc_madd_bytes(int32_t *acc, uint32_t a, aotc_u32x4 b)
{
    acc[0] = aotc_dot4_u8s8(a, b.x, acc[0]);
    acc[1] = aotc_dot4_u8s8(a, b.y, acc[1]);
    acc[2] = aotc_dot4_u8s8(a, b.z, acc[2]);
    acc[3] = aotc_dot4_u8s8(a, b.w, acc[3]);
}

AOTC_DEVICE void aotc_madd_signed_bytes(int32_t *acc, uint32_t a, aotc_u32x4 b)
{
    acc[0] = aotc_dot4_s8s8(a, b.x, acc[0]);
    acc[1] = aotc_dot4_s8s8(a, b.y, acc[1]);
    acc[2] = aotc_dot4_s8s8(a, b.z, acc[2]);
    acc[3] = aotc_dot4_s8s8(a, b.w, acc[3]);
}

/* N times a value to shared memory, aligned to as many bytes, where a copy has nothing to read. */
template <int N, class T>
AOTC_DEVICE void aotc_fill(aotc_shared<T> to, T value)
{
    aotc_pack<T, N> all;
    AOTC_UNROLL
    for (int i = 0; i < N; ++i)
        all.of[i] = value;
    aotc_store_pack(to, all);
}

/* The threads of a quad have pairs of columns of T tiles each: they exchange them, halves with the
 * next thread first, so that each has 2 * T columns of one tile side by side, in every row. */
template <int T, class Sum, int M, int N>
AOTC_DEVICE void aotc_turn_quads(Sum (&sums)[M][N][4])
{
    AOTC_UNROLL
    for (int d = 1; d < T; d *= 2) {
        const bool upper = threadIdx.x & d;
        AOTC_UNROLL
        for (int n = 0; n < M * N * 4; ++n) {
            const int i = n / 4 / N, j = n / 4 % N, k = n % 4;
            if (j & d)
                continue;
            const Sum given = upper ? sums[i][j][k] : sums[i][j + d][k];
            const Sum got = aotc_shfl_xor(given, d);
            sums[i][j][k] = upper ? got : sums[i][j][k];
            sums[i][j + d][k] = upper ? sums[i][j + d][k] : got;
        }
    }
}

/* ---------------------------------------------------------------- weights in groups */

template <class From>
AOTC_DEVICE void aotc_load_words(uint32_t *to, From from)
{
    const aotc_u32x4 found = aotc_load16(from);
    to[0] = found.x;
    to[1] = found.y;
    to[2] = found.z;
    to[3] = found.w;
}

/* N rows of 16 bytes, ``apart`` bytes from one to the next. */
template <int N, class From>
AOTC_DEVICE void aotc_load_rows(uint32_t (&to)[N][4], From from, int32_t apart)
{
    AOTC_UNROLL
    for (int j = 0; j < N; ++j)
        aotc_load_words(to[j], from + j * apart);
}

/* A signed number of 4 bits from bit AT on, AT < 16.  The exponent of a float in which that bit
 * counts one stands beside the number, its sign turned, and is subtracted exactly. */
template <int AT>
AOTC_DEVICE float aotc_nibble(uint32_t bits)
{
    const uint32_t one = (150u - AT) << 23;
    return aotc_float_u32(aotc_and_xor(bits, 15u << AT, one | 8u << AT)) -
           (static_cast<float>(1 << (23 - AT)) + 8.0f);
}

/* Four bytes of two signed numbers of 4 bits each. */
AOTC_DEVICE void aotc_nibbles(float *low, float *high, uint32_t word)
{
    const uint32_t rest = word >> 16;
    low[0] = aotc_nibble<0>(word);
    high[0] = aotc_nibble<4>(word);
    low[1] = aotc_nibble<8>(word);
    high[1] = aotc_nibble<12>(word);
    low[2] = aotc_nibble<0>(rest);
    high[2] = aotc_nibble<4>(rest);
    low[3] = aotc_nibble<8>(rest);
    high[3] = aotc_nibble<12>(rest);
}

/* Four signed bytes, each as the lowest bits of a float of 2^23 and more. */
AOTC_DEVICE void aotc_signed_bytes(float *to, uint32_t word)
{
    AOTC_UNROLL
    for (unsigned i = 0; i < 4; ++i)
        to[i] = aotc_float_u32(aotc_bytes(word ^ 0x80808080u, 0x4b000000u, 0x7440u + i)) -
                (8388608.0f + 128.0f);
}

/* Four floats of words that have the first bytes of all of them, the second ones and so on. */
AOTC_DEVICE void aotc_join_bytes(float *to, uint32_t b0, uint32_t b1, uint32_t b2, uint32_t b3)
{
    AOTC_UNROLL
    for (unsigned two = 0; two < 2; ++two) {
        const uint32_t each = two ? 0x7362u : 0x5140u;
        const uint32_t low = aotc_bytes(b0, b1, each), high = aotc_bytes(b2, b3, each);
        to[2 * two] = aotc_float_u32(aotc_bytes(low, high, 0x5410u));
        to[2 * two + 1] = aotc_float_u32(aotc_bytes(low, high, 0x7632u));
    }
}

/* The scales of 16 neighbouring columns: floats of which the upper PLANES bytes are stored, all of
 * one kind together, those of the next kind ``apart`` bytes on. */
template <int PLANES, class From>
AOTC_DEVICE void aotc_load_scales(float *scale, From from, int32_t apart)
{
    uint32_t bytes[4][4] = {};
    AOTC_UNROLL
    for (int p = 0; p < PLANES; ++p)
        aotc_load_words(bytes[4 - PLANES + p], from + p * apart);
    AOTC_UNROLL
    for (int i = 0; i < 4; ++i)
        aotc_join_bytes(scale + 4 * i, bytes[0][i], bytes[1][i], bytes[2][i], bytes[3][i]);
}

/* Four terms of four columns less the zero points of those, signed bytes; times their scales. */
AOTC_DEVICE void aotc_minus4x4(float (*w)[4], uint32_t zeros)
{
    float zero[4];
    aotc_signed_bytes(zero, zeros);
    AOTC_UNROLL
    for (int t = 0; t < 4; ++t)
        AOTC_UNROLL
        for (int c = 0; c < 4; ++c)
            w[t][c] -= zero[c];
}

AOTC_DEVICE void aotc_times4x4(float (*w)[4], const float *scale)
{
    AOTC_UNROLL
    for (int t = 0; t < 4; ++t)
        AOTC_UNROLL
        for (int c = 0; c < 4; ++c)
            w[t][c] *= scale[c];
}

/* acc[0..3] += four terms of a row times those of four columns. */
AOTC_DEVICE void aotc_madd4x4(float *acc, aotc_f32x4 a, const float (*w)[4])
{
    AOTC_UNROLL
    for (int c = 0; c < 4; ++c)
        acc[c] = acc[c] + a.x * w[0][c] + a.y * w[1][c] + a.z * w[2][c] + a.w * w[3][c];
}

/* x[0..N-1] are a lane's parts of N neighbouring columns, and lanes BESIDE apart have parts of
 * the same ones: the sum of one column, number lane / BESIDE % N of those, over all its lanes,
 * which all lanes of that number have. */
template <int BESIDE, class T, int N, int LANES = BESIDE * N>
AOTC_DEVICE T aotc_warp_columns(const T (&x)[N])
{
    if constexpr (N == 1) {
        T sum = x[0];
        AOTC_UNROLL
        for (int apart = LANES; apart < 32; apart *= 2)
            sum += aotc_shfl_xor(sum, apart);
        return sum;
    } else {
        constexpr int half = N / 2, apart = half * BESIDE;
        const bool upper = (threadIdx.x & static_cast<unsigned>(apart)) != 0;
        T kept[half];
        AOTC_UNROLL
        for (int j = 0; j < half; ++j) {
            const T given = upper ? x[j] : x[j + half];
            kept[j] = (upper ? x[j + half] : x[j]) + aotc_shfl_xor(given, apart);
        }
        return aotc_warp_columns<BESIDE, T, half, LANES>(kept);
    }
}

/* NaN if either is NaN. */
AOTC_DEVICE float aotc_fmax(float a, float b)
{
    return a > b || a != a ? a : b;
}

AOTC_DEVICE float aotc_fmin(float a, float b)
{
    return a < b || a != a ? a : b;
}

/* aotc_warp_FOLD(x): the fold of x over all lanes of a warp, in each of them.  Sums and products of
   integers wrap around; narrower ones are folded as int32_t. */
#define AOTC_WARP_FOLD(fold, type, join)        \
    AOTC_DEVICE type aotc_warp_##fold(type x)   \
    {                                           \
        for (int d = 16; d > 0; d /= 2) {       \
            const type y = aotc_shfl_xor(x, d); \
            x = join;                           \
        }                                       \
        return x;                               \
    }

#define AOTC_WARP_INTEGERS(type, wide)                          \
    AOTC_WARP_FOLD(sum, type, (type)((wide)x + (wide)y))        \
    AOTC_WARP_FOLD(prod, type, (type)((wide)x * (wide)y))       \
    AOTC_WARP_FOLD(max, type, x > y ? x : y)                    \
    AOTC_WARP_FOLD(min, type, x < y ? x : y)

AOTC_WARP_FOLD(sum, float, x + y)
AOTC_WARP_FOLD(prod, float, x * y)
AOTC_WARP_FOLD(max, float, aotc_fmax(x, y))
AOTC_WARP_FOLD(min, float, aotc_fmin(x, y))
AOTC_WARP_FOLD(sum, double, x + y)
AOTC_WARP_FOLD(prod, double, x * y)
AOTC_WARP_FOLD(max, double, aotc_dmax(x, y))
AOTC_WARP_FOLD(min, double, aotc_dmin(x, y))
AOTC_WARP_INTEGERS(int32_t, uint32_t)
AOTC_WARP_INTEGERS(int64_t, uint64_t)
AOTC_WARP_INTEGERS(uint32_t, uint32_t)
AOTC_WARP_INTEGERS(uint64_t, uint64_t)

/* ---------------------------------------------------------------- rows that are carried */

/* Scores of 16 x 8 tiles, of which a thread has two neighbours in two rows and its quad the whole
 * rows, join what is carried of each row, times a scale above 0: their greatest, the thread's share
 * of the total of exp of the differences to that, and sums of products with those.  Scores become
 * exps.  Of a row that is -inf so far exps are 0; of one with a NaN all that follows is NaN, which
 * the greatest need not be.  Differences of numbers beyond 1e38, such as the lowest one, are 0 or
 * more than exps tell apart, in powers of 2 as well, of which the exponents would be infinite. */
template <int M, int N, int C>
AOTC_DEVICE void aotc_carry_rows(float (&scores)[M][N][4], float (&sums)[M][C][4],
                                 float (&greatest)[2 * M], float (&total)[2 * M], float scale)
{
    AOTC_UNROLL
    for (int i = 0; i < 2 * M; ++i) {
        float most = -INFINITY;
        AOTC_UNROLL
        for (int j = 0; j < 2 * N; ++j)
            most = fmaxf(most, scores[i / 2][j / 2][i % 2 * 2 + j % 2]);
        most = fmaxf(most, aotc_shfl_xor(most, 1));
        most = fmaxf(greatest[i], fmaxf(most, aotc_shfl_xor(most, 2)) * scale);
        const float log2_e = fabsf(most) > 1e38f ? 1.0f : 1.44269504f, unit = scale * log2_e;
        const float base = most == -INFINITY ? 0.0f : most * log2_e;
        const float change = aotc_exp2(greatest[i] * log2_e - base);
        greatest[i] = most;
        total[i] *= change;
        AOTC_UNROLL
        for (int j = 0; j < 2 * N; ++j) {
            float &score = scores[i / 2][j / 2][i % 2 * 2 + j % 2];
            score = aotc_exp2(score * unit - base);
            total[i] += score;
        }
        AOTC_UNROLL
        for (int j = 0; j < 2 * C; ++j)
            sums[i / 2][j / 2][i % 2 * 2 + j % 2] *= change;
    }
}

/* The totals of rows, of which each thread of a quad has a share. */
template <int N>
AOTC_DEVICE void aotc_join_rows(float (&total)[N])
{
    AOTC_UNROLL
    for (int i = 0; i < N; ++i) {
        total[i] += aotc_shfl_xor(total[i], 1);
        total[i] += aotc_shfl_xor(total[i], 2);
    }
}

/* Sums of two neighbouring tiles as 16 x 16 rows of A, rounded to halves, or to bf16. */
AOTC_DEVICE void aotc_hold_half(uint32_t (&a)[4], const float (&low)[4], const float (&high)[4])
{
    a[0] = aotc_round_half2(low[0], low[1]);
    a[1] = aotc_round_half2(low[2], low[3]);
    a[2] = aotc_round_half2(high[0], high[1]);
    a[3] = aotc_round_half2(high[2], high[3]);
}

AOTC_DEVICE void aotc_hold_bf16(uint32_t (&a)[4], const float (&low)[4], const float (&high)[4])
{
    a[0] = aotc_round_bf162(low[0], low[1]);
    a[1] = aotc_round_bf162(low[2], low[3]);
    a[2] = aotc_round_bf162(high[0], high[1]);
    a[3] = aotc_round_bf162(high[2], high[3]);
}

/* Sums of one tile as 16 x 8 rows of A, rounded to tf32.  Columns 2t and 2t+1, which a thread has,
 * are terms t and t+4. */
AOTC_DEVICE void aotc_hold_tf32(uint32_t (&a)[4], const float (&tile)[4])
{
    a[0] = aotc_to_tf32(tile[0]);
    a[1] = aotc_to_tf32(tile[2]);
    a[2] = aotc_to_tf32(tile[1]);
    a[3] = aotc_to_tf32(tile[3]);
}

/* Report a broken rule by its number, from 1 on; the first launch that breaks one is told of. */
AOTC_DEVICE void aotc_fault(int32_t *fault, int32_t rule)
{
    volatile int32_t *const told = reinterpret_cast<volatile int32_t *>(fault);
    if (*told == 0)
        *told = rule + 1;
}

/* An index that comes from data: i where 0 <= i < n, else 0 and a fault. */
AOTC_DEVICE int64_t aotc_checked(int32_t *fault, int32_t rule, int64_t i, int64_t n)
{
    if (i >= 0 && i < n)
        return i;
    aotc_fault(fault, rule);
    return 0;
}

/* An extent that comes from data: i, and a fault unless it is n. */
AOTC_DEVICE int64_t aotc_expected(int32_t *fault, int32_t rule, int64_t i, int64_t n)
{
    if (i != n)
        aotc_fault(fault, rule);
    return i;
}

#endif
