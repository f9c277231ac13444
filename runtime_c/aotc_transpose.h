/* aotc_transpose.h: blocks of floats transposed in registers, and what is made of them.
 * Included by aotc_vec.h. */
#ifndef AOTC_TRANSPOSE_H
#define AOTC_TRANSPOSE_H

#if defined(__AVX512F__) && AOTC_LANES == 16
/* dst[k*dst_step + j] = src[j*src_step + k] for 0 <= j, k < 16: a butterfly of lane swaps. */
AOTC_INLINE void aotc_transpose(const float *src, int64_t src_step, float *dst, int64_t dst_step)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512 r[16];
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j)
        r[j] = _mm512_loadu_ps(src + j * src_step);
#pragma GCC unroll 4
    for (int w = 8; w > 0; w /= 2) {
        const __m512i bit = _mm512_set1_epi32(w);
        const __mmask16 odd = _mm512_test_epi32_mask(lane, bit);
        const __m512i low = _mm512_mask_add_epi32(lane, odd, lane, _mm512_set1_epi32(16 - w));
        const __m512i high = _mm512_mask_add_epi32(_mm512_add_epi32(lane, bit), odd, lane,
                                                   _mm512_set1_epi32(16));
#pragma GCC unroll 16
        for (int j = 0; j < 16; ++j) {
            if ((j & w) == 0) {
                const __m512 a = r[j], b = r[j + w];
                r[j] = _mm512_permutex2var_ps(a, low, b);
                r[j + w] = _mm512_permutex2var_ps(a, high, b);
            }
        }
    }
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j)
        _mm512_storeu_ps(dst + j * dst_step, r[j]);
}
#elif defined(__AVX2__) && AOTC_LANES == 8
AOTC_INLINE void aotc_transpose(const float *src, int64_t src_step, float *dst, int64_t dst_step)
{
    __m256 r[8], t[8];
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j)
        r[j] = _mm256_loadu_ps(src + j * src_step);
#pragma GCC unroll 4
    for (int j = 0; j < 8; j += 2) {
        t[j] = _mm256_unpacklo_ps(r[j], r[j + 1]);
        t[j + 1] = _mm256_unpackhi_ps(r[j], r[j + 1]);
    }
#pragma GCC unroll 2
    for (int j = 0; j < 8; j += 4) {
        r[j] = _mm256_shuffle_ps(t[j], t[j + 2], 0x44);
        r[j + 1] = _mm256_shuffle_ps(t[j], t[j + 2], 0xee);
        r[j + 2] = _mm256_shuffle_ps(t[j + 1], t[j + 3], 0x44);
        r[j + 3] = _mm256_shuffle_ps(t[j + 1], t[j + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        _mm256_storeu_ps(dst + j * dst_step, _mm256_permute2f128_ps(r[j], r[j + 4], 0x20));
        _mm256_storeu_ps(dst + (j + 4) * dst_step, _mm256_permute2f128_ps(r[j], r[j + 4], 0x31));
    }
}
#elif (defined(__SSE2__) || defined(__aarch64__)) && AOTC_LANES == 4
AOTC_INLINE void aotc_transpose(const float *src, int64_t src_step, float *dst, int64_t dst_step)
{
#if defined(__SSE2__)
    __m128 r0 = _mm_loadu_ps(src), r1 = _mm_loadu_ps(src + src_step);
    __m128 r2 = _mm_loadu_ps(src + 2 * src_step), r3 = _mm_loadu_ps(src + 3 * src_step);
    _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
    _mm_storeu_ps(dst, r0);
    _mm_storeu_ps(dst + dst_step, r1);
    _mm_storeu_ps(dst + 2 * dst_step, r2);
    _mm_storeu_ps(dst + 3 * dst_step, r3);
#else
    const float32x4_t r0 = vld1q_f32(src), r1 = vld1q_f32(src + src_step);
    const float32x4_t r2 = vld1q_f32(src + 2 * src_step), r3 = vld1q_f32(src + 3 * src_step);
    const float32x4x2_t even = vzipq_f32(r0, r2), odd = vzipq_f32(r1, r3);
    const float32x4x2_t low = vzipq_f32(even.val[0], odd.val[0]);
    const float32x4x2_t high = vzipq_f32(even.val[1], odd.val[1]);
    vst1q_f32(dst, low.val[0]);
    vst1q_f32(dst + dst_step, low.val[1]);
    vst1q_f32(dst + 2 * dst_step, high.val[0]);
    vst1q_f32(dst + 3 * dst_step, high.val[1]);
#endif
}
#else
AOTC_INLINE void aotc_transpose(const float *src, int64_t src_step, float *dst, int64_t dst_step)
{
    for (int j = 0; j < AOTC_LANES; ++j)
        for (int k = 0; k < AOTC_LANES; ++k)
            dst[k * dst_step + j] = src[j * src_step + k];
}
#endif

/* dst[k*dst_step + j] = src[j*src_step + k] for j < rows, k < columns, at most a block of each. */
AOTC_INLINE void aotc_transposed_block(const float *src, int64_t src_step, float *dst,
                                       int64_t dst_step, int rows, int columns)
{
    const int whole_rows = rows - rows % AOTC_LANES, whole = columns - columns % AOTC_LANES;
    for (int j = 0; j < whole_rows; j += AOTC_LANES) {
        for (int k = 0; k < whole; k += AOTC_LANES)
            aotc_transpose(src + j * src_step + k, src_step, dst + k * dst_step + j, dst_step);
        for (int k = whole; k < columns; ++k)
            for (int l = 0; l < AOTC_LANES; ++l)
                dst[k * dst_step + j + l] = src[(j + l) * src_step + k];
    }
    for (int j = whole_rows; j < rows; ++j)
        for (int k = 0; k < columns; ++k)
            dst[k * dst_step + j] = src[j * src_step + k];
}

/* dst[k*dst_step + j] = src[j*src_step + k] for j < rows, k < columns: blocks of whole cache lines,
 * of which both sides' are full at once. */
static inline void aotc_transposed(const float *src, int64_t src_step, float *dst, int64_t dst_step,
                                   int64_t rows, int64_t columns)
{
    enum { BLOCK = 16 };
    for (int64_t k = 0; k < columns; k += BLOCK)
        for (int64_t j = 0; j < rows; j += BLOCK)
            aotc_transposed_block(src + j * src_step + k, src_step, dst + k * dst_step + j,
                                  dst_step, rows - j < BLOCK ? (int)(rows - j) : BLOCK,
                                  columns - k < BLOCK ? (int)(columns - k) : BLOCK);
}

/* Pack n columns that lie along k: dst[k*nr + j] = src[j*step + k], zero for n <= j < nr. */
AOTC_INLINE void aotc_pack_columns(const float *src, int64_t step, int64_t n, int64_t depth,
                                   float *dst, int64_t nr)
{
    const int64_t whole = n - n % AOTC_LANES;
    for (int64_t j = 0; j < whole; j += AOTC_LANES) {
        int64_t k = 0;
        for (; k + AOTC_LANES <= depth; k += AOTC_LANES)
            aotc_transpose(src + j * step + k, step, dst + k * nr + j, nr);
        for (; k < depth; ++k)
            for (int64_t l = j; l < j + AOTC_LANES; ++l)
                dst[k * nr + l] = src[l * step + k];
    }
    for (int64_t j = whole; j < n; ++j)
        for (int64_t k = 0; k < depth; ++k)
            dst[k * nr + j] = src[j * step + k];
    for (int64_t j = n; j < nr; ++j)
        for (int64_t k = 0; k < depth; ++k)
            dst[k * nr + j] = 0.0f;
}

#endif
