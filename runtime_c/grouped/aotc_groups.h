/* aotc_groups.h: weights of 8 and 4 bits with a scale per group.  Included after aotc_vec.h,
 * aotc_num.h and aotc_narrow.h.
 *
 * aotc_codes_at: AOTC_LANES bytes side by side.  aotc_code_8: their values as signed numbers;
 * aotc_code_low, aotc_code_high: those of their lower and upper four bits, signed.
 * aotc_scales_N: floats from their N upper bytes, which lie in rows of `row` bytes, the lowest
 * first.
 *
 * aotc_expand: `depth` steps of a panel of `nr` columns to floats, codes of `bits` in groups of
 * `size` with scales of `planes` bytes, and with zero points where `zeros` is 1. */
#ifndef AOTC_GROUPS_H
#define AOTC_GROUPS_H

#if defined(__AVX512F__) && AOTC_LANES == 16
typedef __m512i aotc_codes;
AOTC_INLINE aotc_codes aotc_codes_at(const uint8_t *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
AOTC_INLINE aotc_vf aotc_code_8(aotc_codes c) { return (aotc_vf)_mm512_cvtepi32_ps(c); }
/* A permutation looks at the lowest four bits of an index alone. */
AOTC_INLINE aotc_vf aotc_code_low(aotc_codes c)
{
    const __m512 numbers = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    return (aotc_vf)_mm512_permutexvar_ps(c, numbers);
}
AOTC_INLINE aotc_vf aotc_code_high(aotc_codes c) { return aotc_code_low(_mm512_srli_epi32(c, 4)); }
AOTC_INLINE aotc_vu aotc_bytes_at(const uint8_t *p)
{
    return (aotc_vu)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

#else
typedef aotc_vm aotc_codes;
AOTC_INLINE aotc_codes aotc_codes_at(const uint8_t *p)
{
#if defined(__AVX2__) && AOTC_LANES == 8
    return (aotc_vm)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
#elif AOTC_LANES > 1
    int8_t v __attribute__((vector_size(AOTC_LANES)));
    memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, aotc_vm);
#else
    return (*p ^ 128) - 128;
#endif
}
AOTC_INLINE aotc_vf aotc_code_8(aotc_codes c) { return aotc_from_i32(c); }
AOTC_INLINE aotc_vf aotc_code_low(aotc_codes c)
{
#if AOTC_LANES > 1
    return aotc_from_i32((aotc_vm)((aotc_vu)c << 28) >> 28);
#else
    return (float)((((int32_t)c & 15) ^ 8) - 8);
#endif
}
AOTC_INLINE aotc_vf aotc_code_high(aotc_codes c)
{
#if AOTC_LANES > 1
    return aotc_from_i32(c >> 4);
#else
    return (float)(((((int32_t)c & 255) >> 4) ^ 8) - 8);
#endif
}
AOTC_INLINE aotc_vu aotc_bytes_at(const uint8_t *p)
{
#if AOTC_LANES > 1
    return (aotc_vu)(aotc_codes_at(p) & 255);
#else
    return *p;
#endif
}
#endif

AOTC_INLINE aotc_vf aotc_bits_as_float(aotc_vu bits)
{
#if AOTC_LANES > 1
    return (aotc_vf)bits;
#else
    return aotc_float_u32(bits);
#endif
}
AOTC_INLINE aotc_vf aotc_scales_2(const uint8_t *p, int64_t row)
{
    return aotc_bits_as_float(aotc_bytes_at(p) << 16 | aotc_bytes_at(p + row) << 24);
}
AOTC_INLINE aotc_vf aotc_scales_3(const uint8_t *p, int64_t row)
{
    return aotc_bits_as_float(aotc_bytes_at(p) << 8 | aotc_bytes_at(p + row) << 16
                              | aotc_bytes_at(p + 2 * row) << 24);
}
AOTC_INLINE aotc_vf aotc_scales_4(const uint8_t *p, int64_t row)
{
    const aotc_vu low = aotc_bytes_at(p) | aotc_bytes_at(p + row) << 8;
    return aotc_bits_as_float(low | aotc_bytes_at(p + 2 * row) << 16
                              | aotc_bytes_at(p + 3 * row) << 24);
}

AOTC_INLINE aotc_vf aotc_scales(const uint8_t *p, int64_t row, int planes)
{
    return planes == 2 ? aotc_scales_2(p, row) : planes == 3 ? aotc_scales_3(p, row)
                                                             : aotc_scales_4(p, row);
}
AOTC_INLINE void aotc_expand(float *to, const uint8_t *b, int64_t depth, int64_t nr, int bits,
    int64_t size, int planes, int zeros)
{
    const int64_t rows = size * bits / 8;
    for (int64_t k0 = 0; k0 < depth; k0 += size, b += (rows + zeros + planes) * nr) {
        const int64_t live = depth - k0 < size ? depth - k0 : size;
        for (int64_t j = 0; j < nr; j += AOTC_LANES) {
            const uint8_t *codes = b + j, *const behind = codes + rows * nr;
            const aotc_vf zero = zeros ? aotc_code_8(aotc_codes_at(behind)) : aotc_splat(0.0f);
            const aotc_vf scale = aotc_scales(behind + zeros * nr, nr, planes);
            float *at = to + k0 * nr + j;
            for (int64_t k = 0; k < live; k += 8 / bits, codes += nr) {
                const aotc_codes c = aotc_codes_at(codes);
                if (bits == 8) {
                    aotc_store(at, (aotc_code_8(c) - zero) * scale);
                    at += nr;
                    continue;
                }
                aotc_store(at, (aotc_code_low(c) - zero) * scale);
                if (k + 1 < live)
                    aotc_store(at + nr, (aotc_code_high(c) - zero) * scale);
                at += 2 * nr;
            }
        }
    }
}

/* Numbers of four neighbours along the sum side by side, from codes in rows of `row` bytes. */
AOTC_INLINE aotc_vu aotc_four_codes(const uint8_t *codes, int64_t row, int bits)
{
    if (bits == 8)
        return aotc_bytes_at(codes) | aotc_bytes_at(codes + row) << 8
            | aotc_bytes_at(codes + 2 * row) << 16 | aotc_bytes_at(codes + 3 * row) << 24;
    aotc_vu all = aotc_bytes_at(codes) | aotc_bytes_at(codes + row) << 16;
    all = (all | all << 4) & 0x0f0f0f0fu;
    const aotc_vu signs = all & 0x08080808u;
    return all | ((signs << 5) - (signs << 1));
}
/* The same less a zero point, those of the first `live` alone, the others 0. */
AOTC_INLINE aotc_vu aotc_less_zero(aotc_vu four, aotc_vm zero, int64_t live)
{
    aotc_vu out = four & 0u;
    for (int i = 0; i < 4 && i < live; ++i)
        out |= (((aotc_vu)((aotc_vm)(four << (24 - 8 * i)) >> 24) - (aotc_vu)zero) & 255u)
            << (8 * i);
    return out;
}

/* ------------------------------------------------------------------ products of s16
 *
 * aotc_words_a: two neighbours of a row, in every lane.  aotc_words_b: two of each lane's column.
 * aotc_words(c, a, b): c[l] + sum of the two products of lane l, exact. */

#if defined(__SSE2__) && (AOTC_LANES == 4 || defined(__AVX2__) && AOTC_LANES == 8 \
                          || defined(__AVX512BW__) && AOTC_LANES == 16)
typedef aotc_vm aotc_words_rows, aotc_words_columns;
AOTC_INLINE aotc_words_rows aotc_words_a(const int16_t *p)
{
    int32_t two;
    memcpy(&two, p, sizeof two);
    return aotc_isplat(two);
}
AOTC_INLINE aotc_words_columns aotc_words_b(const int16_t *p)
{
    aotc_vm v;
    memcpy(&v, p, sizeof v);
    return v;
}
AOTC_INLINE aotc_vm aotc_words(aotc_vm c, aotc_words_rows a, aotc_words_columns b)
{
#if defined(__AVX512VNNI__) && AOTC_LANES == 16
    return (aotc_vm)_mm512_dpwssd_epi32((__m512i)c, (__m512i)a, (__m512i)b);
#elif AOTC_LANES == 16
    return aotc_iadd(c, (aotc_vm)_mm512_madd_epi16((__m512i)a, (__m512i)b));
#elif AOTC_LANES == 8
    return aotc_iadd(c, (aotc_vm)_mm256_madd_epi16((__m256i)a, (__m256i)b));
#else
    return aotc_iadd(c, (aotc_vm)_mm_madd_epi16((__m128i)a, (__m128i)b));
#endif
}

#else
typedef struct { int32_t v[2]; } aotc_words_rows;
typedef struct { aotc_vm v[2]; } aotc_words_columns;
AOTC_INLINE aotc_words_rows aotc_words_a(const int16_t *p)
{
    return (aotc_words_rows){{p[0], p[1]}};
}
AOTC_INLINE aotc_words_columns aotc_words_b(const int16_t *p)
{
#if AOTC_LANES > 1
    aotc_vu all;
    memcpy(&all, p, sizeof all);
    return (aotc_words_columns){{(aotc_vm)(all << 16) >> 16, (aotc_vm)all >> 16}};
#else
    return (aotc_words_columns){{p[0], p[1]}};
#endif
}
AOTC_INLINE aotc_vm aotc_words(aotc_vm c, aotc_words_rows a, aotc_words_columns b)
{
    for (int i = 0; i < 2; ++i)
        c = aotc_iadd(c, aotc_imul(aotc_isplat(a.v[i]), b.v[i]));
    return c;
}
#endif

/* The same as aotc_expand_bytes below for rows of s16: sums start from 0, two numbers of 16 bits
 * side by side. */
AOTC_INLINE void aotc_expand_words(uint8_t *to, const uint8_t *b, int64_t depth, int64_t nr,
    int bits, int64_t size, int planes, int zeros)
{
    const int64_t rows = size * bits / 8;
    for (int64_t k0 = 0; k0 < depth; k0 += size, b += (rows + zeros + planes) * nr) {
        for (int64_t j = 0; j < nr; j += AOTC_LANES) {
            const uint8_t *codes = b + j, *const behind = codes + rows * nr;
            uint8_t *numbers = to + 8 * nr + 4 * j;
            const aotc_vm zero = zeros ? (aotc_vm)aotc_codes_at(behind) : aotc_isplat(0);
            for (int64_t k = 0; k < size; k += 2, codes += bits / 4 * nr, numbers += 4 * nr) {
                aotc_vm low = (aotc_vm)aotc_codes_at(codes), high = low;
                if (bits == 8) {
                    high = (aotc_vm)aotc_codes_at(codes + nr);
                } else {
                    low = ((low & 15) ^ 8) - 8;
                    high = ((high >> 4 & 15) ^ 8) - 8;
                }
                low = depth - k0 - k > 0 ? low - zero : aotc_isplat(0);
                high = depth - k0 - k > 1 ? high - zero : aotc_isplat(0);
                const aotc_vu both = ((aotc_vu)low & 0xffffu) | (aotc_vu)high << 16;
                memcpy(numbers, &both, sizeof both);
            }
            aotc_store_i32((int32_t *)(void *)to + j, aotc_isplat(0));
            aotc_store((float *)(void *)(to + 4 * nr) + j,
                aotc_scales(behind + zeros * nr, nr, planes));
        }
        to += (8 + 2 * size) * nr;
    }
}

/* The same to bytes, for rows of bytes that are 128 larger than the numbers they stand for: of
 * every group and column what its sums start from (-128 times the sum of its numbers), its scale,
 * and its numbers, four neighbours side by side, zeros behind the last of `depth`. */
AOTC_INLINE void aotc_expand_bytes(uint8_t *to, const uint8_t *b, int64_t depth, int64_t nr,
    int bits, int64_t size, int planes, int zeros)
{
    static const uint8_t middle[4] = {128, 128, 128, 128};
    const int64_t rows = size * bits / 8;
    for (int64_t k0 = 0; k0 < depth; k0 += size, b += (rows + zeros + planes) * nr) {
        for (int64_t j = 0; j < nr; j += AOTC_LANES) {
            const uint8_t *codes = b + j, *const behind = codes + rows * nr;
            int8_t *numbers = (int8_t *)(to + 8 * nr + 4 * j);
            const aotc_vm zero = zeros ? (aotc_vm)aotc_codes_at(behind) : aotc_isplat(0);
            aotc_vm sum = aotc_isplat(0);
            for (int64_t k = 0; k < size; k += 4, codes += bits / 2 * nr, numbers += 4 * nr) {
                aotc_vu four = aotc_four_codes(codes, nr, bits);
                if (zeros)
                    four = aotc_less_zero(four, zero, depth - k0 - k);
                memcpy(numbers, &four, sizeof four);
                sum = aotc_dot(sum, aotc_dot_a(middle), aotc_dot_b(numbers));
            }
            aotc_store_i32((int32_t *)(void *)to + j, aotc_isplat(0) - sum);
            aotc_store((float *)(void *)(to + 4 * nr) + j,
                aotc_scales(behind + zeros * nr, nr, planes));
        }
        to += (8 + size) * nr;
    }
}

#endif
