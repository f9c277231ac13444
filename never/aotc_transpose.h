/* aotc_transpose.h: blocks of floats transposed in registers, and what is made of them: panels.
 * Included by aotc_vec.h. */
#ifndef AOTC_TRANSPOSE_H
#define AOTC_TRANSPOSE_H

/* The block r[j] lane k transposed in registers: a butterfly of lane swaps. */
#if defined(__AVX512F__) && AOTC_LANES == 16
AOTC_INLINE void aotc_transpose_lanes(aotc_vf *r)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
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
                const __m512 a = (__m512)r[j], b = (__m512)r[j + w];
                r[j] = (aotc_vf)_mm512_permutex2var_ps(a, low, b);
                r[j + w] = (aotc_vf)_mm512_permutex2var_ps(a, high, b);
            }
        }
    }
}
#elif defined(__AVX2__) && AOTC_LANES == 8
AOTC_INLINE void aotc_transpose_lanes(aotc_vf *v)
{
    __m256 r[8], t[8];
#pragma GCC unroll 4
    for (int j = 0; j < 8; j += 2) {
        t[j] = _mm256_unpacklo_ps((__m256)v[j], (__m256)v[j + 1]);
        t[j + 1] = _mm256_unpackhi_ps((__m256)v[j], (__m256)v[j + 1]);
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
        v[j] = (aotc_vf)_mm256_permute2f128_ps(r[j], r[j + 4], 0x20);
        v[j + 4] = (aotc_vf)_mm256_permute2f128_ps(r[j], r[j + 4], 0x31);
    }
}
#elif defined(__SSE2__) && AOTC_LANES == 4
AOTC_INLINE void aotc_transpose_lanes(aotc_vf *r)
{
    __m128 r0 = (__m128)r[0], r1 = (__m128)r[1], r2 = (__m128)r[2], r3 = (__m128)r[3];
    _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
    r[0] = (aotc_vf)r0;
    r[1] = (aotc_vf)r1;
    r[2] = (aotc_vf)r2;
    r[3] = (aotc_vf)r3;
}
#elif defined(__aarch64__) && AOTC_LANES == 4
AOTC_INLINE void aotc_transpose_lanes(aotc_vf *r)
{
    const float32x4x2_t even = vzipq_f32((float32x4_t)r[0], (float32x4_t)r[2]);
    const float32x4x2_t odd = vzipq_f32((float32x4_t)r[1], (float32x4_t)r[3]);
    const float32x4x2_t low = vzipq_f32(even.val[0], odd.val[0]);
    const float32x4x2_t high = vzipq_f32(even.val[1], odd.val[1]);
    r[0] = (aotc_vf)low.val[0];
    r[1] = (aotc_vf)low.val[1];
    r[2] = (aotc_vf)high.val[0];
    r[3] = (aotc_vf)high.val[1];
}
#elif AOTC_LANES > 1
AOTC_INLINE void aotc_transpose_lanes(aotc_vf *r)
{
    for (int j = 0; j < AOTC_LANES; ++j)
        for (int k = 0; k < j; ++k) {
            const float a = r[j][k];
            r[j][k] = r[k][j];
            r[k][j] = a;
        }
}
#else
AOTC_INLINE void aotc_transpose_lanes(aotc_vf *r)
{
    (void)r;
}
#endif

/* dst[k*dst_step + j] = src[j*src_step + k] for 0 <= j, k < AOTC_LANES. */
AOTC_INLINE void aotc_transpose(const float *src, int64_t src_step, float *dst, int64_t dst_step)
{
    aotc_vf r[AOTC_LANES];
#pragma GCC unroll 16
    for (int j = 0; j < AOTC_LANES; ++j)
        r[j] = aotc_load(src + j * src_step);
    aotc_transpose_lanes(r);
#pragma GCC unroll 16
    for (int k = 0; k < AOTC_LANES; ++k)
        aotc_store(dst + k * dst_step, r[k]);
}

/* dst[k*dst_step + j] = src[j*src_step + k] for k < columns and j < width, zero for rows <= j;
 * 0 < columns, width <= AOTC_LANES. */
static inline void aotc_transpose_part(const float *src, int64_t src_step, float *dst,
                                       int64_t dst_step, int64_t rows, int64_t columns,
                                       int64_t width)
{
    aotc_vf r[AOTC_LANES];
#pragma GCC unroll 16
    for (int j = 0; j < AOTC_LANES; ++j)
        r[j] = j < rows ? aotc_load_n(src + j * src_step, columns, 0.0f) : aotc_splat(0.0f);
    aotc_transpose_lanes(r);
#pragma GCC unroll 16
    for (int k = 0; k < AOTC_LANES; ++k)
        if (k < columns)
            aotc_store_n(dst + k * dst_step, r[k], width);
}

/* dst[k*dst_step + j] = src[j*src_step + k] for j < rows, k < columns, at most a block of each. */
AOTC_INLINE void aotc_transposed_block(const float *src, int64_t src_step, float *dst,
                                       int64_t dst_step, int rows, int columns)
{
    for (int j = 0; j < rows; j += AOTC_LANES)
        for (int k = 0; k < columns; k += AOTC_LANES)
            if (rows - j >= AOTC_LANES && columns - k >= AOTC_LANES)
                aotc_transpose(src + j * src_step + k, src_step, dst + k * dst_step + j, dst_step);
            else
                aotc_transpose_part(src + j * src_step + k, src_step, dst + k * dst_step + j,
                                    dst_step, rows - j, columns - k, rows - j);
}

#if AOTC_LANES > 1 && (defined(__clang__) || __GNUC__ >= 12)
/* Lane l of vector m of the elements of two, and of three, vectors in turns; of three in two steps:
 * of the first two, then of those and the third. */
#define AOTC_AT(m, l) ((m) * AOTC_LANES + (l))
#define AOTC_OF_TWO(m, l) (AOTC_AT(m, l) % 2 * AOTC_LANES + AOTC_AT(m, l) / 2)
#define AOTC_OF_THREE(m, l) (AOTC_AT(m, l) % 3 % 2 * AOTC_LANES + AOTC_AT(m, l) / 3)
#define AOTC_WITH_THIRD(m, l) (AOTC_AT(m, l) % 3 == 2 ? AOTC_LANES + AOTC_AT(m, l) / 3 : (l))
#define AOTC_LIST4(F, m, l) F(m, l), F(m, l + 1), F(m, l + 2), F(m, l + 3)
#if AOTC_LANES == 16
#define AOTC_LIST(F, m) AOTC_LIST4(F, m, 0), AOTC_LIST4(F, m, 4), AOTC_LIST4(F, m, 8), \
                        AOTC_LIST4(F, m, 12)
#elif AOTC_LANES == 8
#define AOTC_LIST(F, m) AOTC_LIST4(F, m, 0), AOTC_LIST4(F, m, 4)
#else
#define AOTC_LIST(F, m) AOTC_LIST4(F, m, 0)
#endif
#define AOTC_PICK(F, m, a, b) __builtin_shufflevector(a, b, AOTC_LIST(F, m))

/* The elements of r[0] and r[1] in turns. */
AOTC_INLINE void aotc_weave_two(aotc_vf *r)
{
    const aotc_vf a = r[0], b = r[1];
    r[0] = AOTC_PICK(AOTC_OF_TWO, 0, a, b);
    r[1] = AOTC_PICK(AOTC_OF_TWO, 1, a, b);
}

/* The elements of r[0] .. r[2] in turns. */
AOTC_INLINE void aotc_weave_three(aotc_vf *r)
{
    const aotc_vf a = r[0], b = r[1], c = r[2];
    r[0] = AOTC_PICK(AOTC_WITH_THIRD, 0, AOTC_PICK(AOTC_OF_THREE, 0, a, b), c);
    r[1] = AOTC_PICK(AOTC_WITH_THIRD, 1, AOTC_PICK(AOTC_OF_THREE, 1, a, b), c);
    r[2] = AOTC_PICK(AOTC_WITH_THIRD, 2, AOTC_PICK(AOTC_OF_THREE, 2, a, b), c);
}

/* The elements of r[0] .. r[rows - 1] in turns; 2 <= rows <= 4. */
AOTC_INLINE void aotc_weave(aotc_vf *r, int rows)
{
    if (rows == 2) {
        aotc_weave_two(r);
    } else if (rows == 3) {
        aotc_weave_three(r);
    } else {
        aotc_vf even[2] = {r[0], r[2]}, odd[2] = {r[1], r[3]};
        aotc_weave_two(even);
        aotc_weave_two(odd);
        for (int m = 0; m < 2; ++m) {
            r[2 * m] = even[m];
            r[2 * m + 1] = odd[m];
            aotc_weave_two(r + 2 * m);
        }
    }
}

/* dst[k*rows + j] = src[j*src_step + k] for j < rows, k < columns; 2 <= rows <= 4. */
AOTC_INLINE void aotc_woven(const float *src, int64_t src_step, float *dst, int rows,
                            int64_t columns)
{
    aotc_vf r[4];
    int64_t k = 0;
    for (; k + AOTC_LANES <= columns; k += AOTC_LANES) {
#pragma GCC unroll 4
        for (int j = 0; j < rows; ++j)
            r[j] = aotc_load(src + j * src_step + k);
        aotc_weave(r, rows);
#pragma GCC unroll 4
        for (int m = 0; m < rows; ++m)
            aotc_store(dst + k * rows + m * AOTC_LANES, r[m]);
    }
    if (k == columns)
        return;
#pragma GCC unroll 4
    for (int j = 0; j < rows; ++j)
        r[j] = aotc_load_n(src + j * src_step + k, columns - k, 0.0f);
    aotc_weave(r, rows);
#pragma GCC unroll 4
    for (int m = 0; m < rows; ++m) {
        const int64_t n = (columns - k) * rows - m * AOTC_LANES;
        if (n > 0)
            aotc_store_n(dst + k * rows + m * AOTC_LANES, r[m], n < AOTC_LANES ? n : AOTC_LANES);
    }
}
#else
AOTC_INLINE void aotc_woven(const float *src, int64_t src_step, float *dst, int rows,
                            int64_t columns)
{
    for (int64_t k = 0; k < columns; ++k)
        for (int j = 0; j < rows; ++j)
            dst[k * rows + j] = src[j * src_step + k];
}
#endif

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

/* Pack n columns that lie along k: dst[k*nr + j] = src[j*step + k], zero for n <= j < nr; nr is a
 * multiple of AOTC_LANES. */
AOTC_INLINE void aotc_pack_columns(const float *src, int64_t step, int64_t n, int64_t depth,
                                   float *dst, int64_t nr)
{
    for (int64_t j = 0; j < nr; j += AOTC_LANES)
        for (int64_t k = 0; k < depth; k += AOTC_LANES)
            if (n - j >= AOTC_LANES && depth - k >= AOTC_LANES)
                aotc_transpose(src + j * step + k, step, dst + k * nr + j, nr);
            else
                aotc_transpose_part(src + j * step + k, step, dst + k * nr + j, nr, n - j,
                                    depth - k, AOTC_LANES);
}

#if AOTC_LANES > 1
/* Neighbours of 4 / n bytes, zero-extended, one in each lane. */
AOTC_INLINE aotc_vm aotc_extended(const char *p, int n)
{
#if defined(__AVX512F__) && AOTC_LANES == 16
    return (aotc_vm)(n == 2 ? _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p))
                            : _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p)));
#elif defined(__AVX2__) && AOTC_LANES == 8
    return (aotc_vm)(n == 2 ? _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p))
                            : _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p)));
#else
    typedef uint16_t twos __attribute__((vector_size(2 * AOTC_LANES)));
    typedef uint8_t ones __attribute__((vector_size(AOTC_LANES)));
    twos two;
    ones one;
    if (n == 2) {
        memcpy(&two, p, sizeof two);
        return __builtin_convertvector(two, aotc_vm);
    }
    memcpy(&one, p, sizeof one);
    return __builtin_convertvector(one, aotc_vm);
#endif
}
#endif

/* A panel of `width` columns for products that take n neighbours of the sum at a time, of 4 / n
 * bytes each: to[k / n][j][k % n] = from[j*step + k] for j < columns and k < depth, else zero.
 * across: of columns side by side, from[k*step + j]. */
AOTC_INLINE void aotc_pack_groups(const char *from, int64_t step, int64_t columns, int64_t depth,
                                  char *to, int64_t width, int n, int across)
{
    const int64_t size = 4 / n, groups = depth / n;
    int64_t moved = 0; /* columns whose whole groups move as vectors */
#if AOTC_LANES > 1
    if (across) {
        moved = columns - columns % AOTC_LANES;
        for (int64_t k = 0; k < groups; ++k) {
            for (int64_t j = 0; j < moved; j += AOTC_LANES) {
                aotc_vm all = {0};
                for (int u = 0; u < n; ++u)
                    all |= aotc_extended(from + ((k * n + u) * step + j) * size, n)
                           << (int)(8 * size * u);
                aotc_store((float *)(void *)(to + 4 * (k * width + j)), (aotc_vf)all);
            }
        }
    } else if (((uintptr_t)from & 3) == 0 && step % n == 0 && width % AOTC_LANES == 0) {
        moved = width;
        aotc_pack_columns((const float *)(const void *)from, step / n, columns, groups,
                          (float *)(void *)to, width);
    }
#endif
    if (moved < width)
        for (int64_t k = 0; k < groups; ++k)
            memset(to + 4 * (k * width + columns), 0, (size_t)(4 * (width - columns)));
    for (int64_t k = moved >= columns ? groups : 0; k * n < depth; ++k) {
        const int64_t end = k < groups ? columns : width;
        for (int64_t j = k < groups ? moved : 0; j < end; ++j) {
            for (int64_t u = 0; u < n; ++u) {
                const int64_t at = across ? (k * n + u) * step + j : j * step + k * n + u;
                char *const here = to + ((k * width + j) * n + u) * size;
                if (j < columns && k * n + u < depth)
                    memcpy(here, from + at * size, (size_t)size);
                else
                    memset(here, 0, (size_t)size);
            }
        }
    }
}

#define AOTC_PACKING(NAME, N, ACROSS) \
static inline void NAME(const void *from, int64_t step, int64_t columns, int64_t depth, void *to, \
                        int64_t width) \
{ \
    aotc_pack_groups(from, step, columns, depth, to, width, N, ACROSS); \
}
AOTC_PACKING(aotc_pack_pairs, 2, 0)
AOTC_PACKING(aotc_pack_pairs_across, 2, 1)
AOTC_PACKING(aotc_pack_fours, 4, 0)
AOTC_PACKING(aotc_pack_fours_across, 4, 1)

#endif
