/* aotc_digits.h: sums of a group's weights by rows in fixed point, with the instruction for four
 * products of bytes.  Included after aotc_groups.h, for AVX-512 VNNI.
 *
 * What a row has in a group becomes integers of three signed digits to the base 256, as exact as
 * floats beside the group's largest; products and sums of digits and codes are exact.
 * A step of 64 columns holds them as four vectors of "quads": of every 16 columns the first four,
 * the next four, .. , as two interleavings leave them; aotc_quads_in_order puts sums back. */
#ifndef AOTC_DIGITS_H
#define AOTC_DIGITS_H

typedef struct { __m512i part[4]; } aotc_quads;

/* Bytes of four rows of 64 columns: those of a column side by side. */
AOTC_INLINE aotc_quads aotc_quads_of(__m512i a, __m512i b, __m512i c, __m512i d)
{
    const __m512i low = _mm512_unpacklo_epi8(a, b), high = _mm512_unpackhi_epi8(a, b);
    const __m512i low2 = _mm512_unpacklo_epi8(c, d), high2 = _mm512_unpackhi_epi8(c, d);
    return (aotc_quads){{_mm512_unpacklo_epi16(low, low2), _mm512_unpackhi_epi16(low, low2),
                         _mm512_unpacklo_epi16(high, high2), _mm512_unpackhi_epi16(high, high2)}};
}

AOTC_INLINE __m512i aotc_row_of_bytes(const uint8_t *p) { return _mm512_loadu_si512(p); }

AOTC_INLINE aotc_quads aotc_quads_at(const uint8_t *p, int64_t row)
{
    return aotc_quads_of(aotc_row_of_bytes(p), aotc_row_of_bytes(p + row),
                         aotc_row_of_bytes(p + 2 * row), aotc_row_of_bytes(p + 3 * row));
}

/* Floats of which rows hold the upper bytes, the lowest first. */
AOTC_INLINE aotc_quads aotc_scale_quads_2(const uint8_t *p, int64_t row)
{
    const __m512i none = _mm512_setzero_si512();
    return aotc_quads_of(none, none, aotc_row_of_bytes(p), aotc_row_of_bytes(p + row));
}
AOTC_INLINE aotc_quads aotc_scale_quads_3(const uint8_t *p, int64_t row)
{
    return aotc_quads_of(_mm512_setzero_si512(), aotc_row_of_bytes(p), aotc_row_of_bytes(p + row),
                         aotc_row_of_bytes(p + 2 * row));
}
AOTC_INLINE aotc_quads aotc_scale_quads_4(const uint8_t *p, int64_t row)
{
    return aotc_quads_at(p, row);
}

/* Zero points, signed bytes of one row, among codes from 0 on. */
AOTC_INLINE aotc_quads aotc_zero_quads(const uint8_t *p)
{
    const __m512i none = _mm512_setzero_si512();
    aotc_quads q = aotc_quads_of(none, none, none, aotc_row_of_bytes(p));
    for (int t = 0; t < 4; ++t)
        q.part[t] = _mm512_add_epi32(_mm512_srai_epi32(q.part[t], 24), _mm512_set1_epi32(8));
    return q;
}

/* Codes in the lower and upper halves of bytes, as numbers from 0 on. */
AOTC_INLINE __m512i aotc_digit_low(__m512i c)
{
    return _mm512_ternarylogic_epi32(c, _mm512_set1_epi8(15), _mm512_set1_epi8(8), 0x6a);
}
AOTC_INLINE __m512i aotc_digit_high(__m512i c) { return aotc_digit_low(_mm512_srli_epi32(c, 4)); }

/* Four digits, for every column. */
AOTC_INLINE __m512i aotc_four_digits(const int8_t *digits)
{
    int32_t four;
    memcpy(&four, digits, 4);
    return _mm512_set1_epi32(four);
}

/* Sums are vectors of the compiler's own: gcc copies an __m512i around every such instruction. */
AOTC_INLINE aotc_vm aotc_add_fours(aotc_vm sum, __m512i codes, __m512i digits)
{
    return (aotc_vm)_mm512_dpbusd_epi32((__m512i)sum, codes, digits);
}

/* What sums of products of digits start from: their total times what is zero among the codes. */
AOTC_INLINE aotc_vm aotc_digit_start(int32_t total, __m512i zero)
{
    return (aotc_vm)_mm512_mullo_epi32(_mm512_set1_epi32(-total), zero);
}

AOTC_INLINE aotc_vf aotc_sum_of_digits(aotc_vm a, aotc_vm b, aotc_vm c)
{
    const aotc_vf low = aotc_fma(aotc_from_i32(b), aotc_splat(256.0f), aotc_from_i32(a));
    return aotc_fma(aotc_from_i32(c), aotc_splat(65536.0f), low);
}

/* `size` elements of a row, those from `live` on zero, as digits, lowest first, `size` bytes each,
 * of every eight elements the even ones before the odd ones.  totals: the sum of each digit, unit:
 * what a digit of 1 is worth.  0 where an element is not finite. */
AOTC_INLINE int aotc_digits(const float *x, int64_t live, int64_t size, int8_t *digits,
                            int32_t *totals, float *unit)
{
    const __m128i even = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    const __m512 whole = _mm512_set1_ps(8355711.0f);  /* 127 in every digit */
    __m512 most = _mm512_setzero_ps();
    __m512i odd = _mm512_setzero_si512();
    for (int64_t k = 0; k < live; k += 16) {
        const __m512 v = (__m512)aotc_load_n(x + k, live - k, 0.0f);
        most = _mm512_max_ps(most, _mm512_abs_ps(v));
        odd = _mm512_or_si512(odd, _mm512_castps_si512(_mm512_sub_ps(v, v)));
    }
    if (_mm512_test_epi32_mask(odd, odd))
        return 0;
    const float largest = _mm512_reduce_max_ps(most);
    const float up = largest < 0x1p-80f ? 0x1p100f : 1.0f;
    const float ratio = largest > 0.0f ? 8355711.0f / (largest * up) : 0.0f;
    __m512i sum[3] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    for (int64_t k = 0; k < size; k += 16) {
        __m512 v = k < live ? (__m512)aotc_load_n(x + k, live - k, 0.0f) : _mm512_setzero_ps();
        v = _mm512_mul_ps(_mm512_mul_ps(v, _mm512_set1_ps(up)), _mm512_set1_ps(ratio));
        v = _mm512_min_ps(_mm512_max_ps(v, _mm512_sub_ps(_mm512_setzero_ps(), whole)), whole);
        __m512i rest = _mm512_cvtps_epi32(v);
        for (int d = 0; d < 3; ++d) {
            const __m512i digit = _mm512_srai_epi32(_mm512_slli_epi32(rest, 24), 24);
            const __m128i bytes = _mm_shuffle_epi8(_mm512_cvtepi32_epi8(digit), even);
            memcpy(digits + d * size + k, &bytes, size - k < 16 ? 8 : 16);
            sum[d] = _mm512_add_epi32(sum[d], digit);
            rest = _mm512_srai_epi32(_mm512_sub_epi32(rest, digit), 8);
        }
    }
    for (int d = 0; d < 3; ++d)
        totals[d] = _mm512_reduce_add_epi32(sum[d]);
    *unit = largest * up / 8355711.0f / up;
    return 1;
}

/* A float of which a column of `planes` rows holds the upper bytes, the lowest first. */
AOTC_INLINE float aotc_scale_of(const uint8_t *p, int64_t row, int planes)
{
    uint32_t bits = 0;
    for (int i = 0; i < planes; ++i)
        bits |= (uint32_t)p[i * row] << 8 * (4 - planes + i);
    return aotc_float_u32(bits);
}

/* The place of column c among sums of quads. */
AOTC_INLINE int64_t aotc_quad_place(int64_t c)
{
    return (c & ~63) + (c >> 2 & 3) * 16 + (c >> 4 & 3) * 4 + (c & 3);
}

/* Adds what a group gives to the sums of quads of `row` columns, in floats.  zero: of each column,
 * or NULL. */
AOTC_INLINE void aotc_group_in_floats(const float *x, int64_t live, const uint8_t *codes,
                                      const uint8_t *zero, const uint8_t *scales, int64_t row,
                                      int planes, float *acc)
{
    for (int64_t j = 0; j < row; ++j) {
        float sum = 0.0f;
        for (int64_t k = 0; k < live; ++k) {
            const int code = ((codes[k / 2 * row + j] >> k % 2 * 4 & 15) ^ 8) - 8;
            sum += x[k] * (float)(zero ? code - ((zero[j] ^ 128) - 128) : code);
        }
        acc[aotc_quad_place(j)] += sum * aotc_scale_of(scales + j, row, planes);
    }
}

/* 64 sums of quads as those of 64 columns in order. */
AOTC_INLINE void aotc_quads_in_order(float *acc)
{
    const __m512 a = _mm512_loadu_ps(acc), b = _mm512_loadu_ps(acc + 16);
    const __m512 c = _mm512_loadu_ps(acc + 32), d = _mm512_loadu_ps(acc + 48);
    const __m512 ab = _mm512_shuffle_f32x4(a, b, 0x44), ab2 = _mm512_shuffle_f32x4(a, b, 0xee);
    const __m512 cd = _mm512_shuffle_f32x4(c, d, 0x44), cd2 = _mm512_shuffle_f32x4(c, d, 0xee);
    _mm512_storeu_ps(acc, _mm512_shuffle_f32x4(ab, cd, 0x88));
    _mm512_storeu_ps(acc + 16, _mm512_shuffle_f32x4(ab, cd, 0xdd));
    _mm512_storeu_ps(acc + 32, _mm512_shuffle_f32x4(ab2, cd2, 0x88));
    _mm512_storeu_ps(acc + 48, _mm512_shuffle_f32x4(ab2, cd2, 0xdd));
}

#endif
