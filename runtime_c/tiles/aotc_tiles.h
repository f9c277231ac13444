/* aotc_tiles.h: matrix tiles of 16 rows of 64 bytes, and products of them.  Included after
 * aotc_num.h.
 *
 * A row of the left tile holds 16 groups of 4 bytes, neighbours of the sum (two bf16, or four u8 or
 * s8); a row of the right one the same group of 16 columns.  AOTC_TILE_* name tiles by literal
 * numbers, 0 to 7, of a variable that only the twin uses; addresses are of bytes.
 *
 * With AOTC_TILES_IN_C, and on machines without the instructions, the same in C.  It rounds alike:
 * within one product of tiles even and odd terms of a sum are added up by themselves, from zero on
 * and in order, then to each other, then to what the tile held; what is no normal number the
 * instruction takes for zero, C does not. */
#ifndef AOTC_TILES_H
#define AOTC_TILES_H

#include <stdint.h>
#include <string.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

enum { AOTC_TILE_ROWS = 16, AOTC_TILE_BYTES = 64, AOTC_GROUP_BYTES = 4 };

#if defined(__AMX_TILE__) && defined(__x86_64__) && !defined(AOTC_TILES_IN_C)
typedef struct { char none; } aotc_tiles;

/* A thread has the tiles from begin to end: all of them whole.  After end they cost nothing when it
 * sleeps. */
AOTC_INLINE void aotc_tiles_begin(void)
{
    static const struct {
        uint8_t palette, start, rest[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } all = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    __asm__ volatile("ldtilecfg %0" : : "m"(all) : "memory");
}
AOTC_INLINE void aotc_tiles_end(void) { __asm__ volatile("tilerelease" : : : "memory"); }

/* the compiler knows no tiles: that these read and write memory it is told */
#define AOTC_TILE_ZERO(t, c) __asm__ volatile("tilezero %%tmm" #c : : : "memory")
#define AOTC_TILE_LOAD(t, c, from, step) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #c : : "r"(from), "r"((int64_t)(step)) : "memory")
#define AOTC_TILE_STORE(t, c, to, step) \
    __asm__ volatile("tilestored %%tmm" #c ", (%0,%1,1)" \
                     : : "r"(to), "r"((int64_t)(step)) : "memory")
#define AOTC_TILE_BF16(t, c, a, b) \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : : : "memory")
#define AOTC_TILE_U8S8(t, c, a, b) \
    __asm__ volatile("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #c : : : "memory")
#define AOTC_TILE_S8S8(t, c, a, b) \
    __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c : : : "memory")

#else
typedef struct { uint32_t words[AOTC_TILE_ROWS][AOTC_TILE_BYTES / 4]; } aotc_tile;
typedef struct { aotc_tile at[8]; } aotc_tiles;
AOTC_INLINE void aotc_tiles_begin(void) { }
AOTC_INLINE void aotc_tiles_end(void) { }

AOTC_INLINE void aotc_tile_move(char *to, int64_t to_step, const char *from, int64_t from_step)
{
    for (int i = 0; i < AOTC_TILE_ROWS; i++) {
        memcpy(to + i * to_step, from + i * from_step, AOTC_TILE_BYTES);
    }
}
AOTC_INLINE float aotc_tile_half(uint32_t pair, int odd)
{
    return aotc_float_u32(odd ? pair & 0xffff0000u : pair << 16);
}
AOTC_INLINE void aotc_tile_bf16(aotc_tile *c, const aotc_tile *a, const aotc_tile *b)
{
    for (int i = 0; i < AOTC_TILE_ROWS; i++) {
        for (int j = 0; j < AOTC_TILE_BYTES / 4; j++) {
            float sums[2] = {0.0f, 0.0f};
            for (int k = 0; k < AOTC_TILE_ROWS; k++) {
                for (int odd = 0; odd < 2; odd++) {
                    sums[odd] += aotc_tile_half(a->words[i][k], odd)
                        * aotc_tile_half(b->words[k][j], odd);
                }
            }
            c->words[i][j] = aotc_bits_f32(aotc_float_u32(c->words[i][j]) + (sums[0] + sums[1]));
        }
    }
}
/* flip: 128 for rows of s8, which are those of u8 with the highest bit turned, less 128 */
AOTC_INLINE void aotc_tile_bytes(aotc_tile *c, const aotc_tile *a, const aotc_tile *b,
    uint32_t flip)
{
    for (int i = 0; i < AOTC_TILE_ROWS; i++) {
        for (int j = 0; j < AOTC_TILE_BYTES / 4; j++) {
            uint32_t sum = c->words[i][j];
            for (int k = 0; k < AOTC_TILE_ROWS; k++) {
                for (int byte = 0; byte < 32; byte += 8) {
                    const uint32_t x = ((a->words[i][k] >> byte & 0xffu) ^ flip) - flip;
                    const uint32_t y = ((b->words[k][j] >> byte & 0xffu) ^ 0x80u) - 0x80u;
                    sum += x * y;
                }
            }
            c->words[i][j] = sum;
        }
    }
}

#define AOTC_TILE_ZERO(t, c) memset(&(t).at[c], 0, sizeof (t).at[c])
#define AOTC_TILE_LOAD(t, c, from, step) \
    aotc_tile_move((char *)&(t).at[c], AOTC_TILE_BYTES, (const char *)(from), step)
#define AOTC_TILE_STORE(t, c, to, step) \
    aotc_tile_move((char *)(to), step, (const char *)&(t).at[c], AOTC_TILE_BYTES)
#define AOTC_TILE_BF16(t, c, a, b) aotc_tile_bf16(&(t).at[c], &(t).at[a], &(t).at[b])
#define AOTC_TILE_U8S8(t, c, a, b) aotc_tile_bytes(&(t).at[c], &(t).at[a], &(t).at[b], 0u)
#define AOTC_TILE_S8S8(t, c, a, b) aotc_tile_bytes(&(t).at[c], &(t).at[a], &(t).at[b], 0x80u)
#endif

/* True if each of eight rows lies step bytes behind the one before it.  It is asked for every panel
 * of columns, beside as few as sixteen products of tiles. */
#if defined(__AVX512F__)
AOTC_INLINE __m512i aotc_rows_at(const void *const *rows)
{
    return _mm512_loadu_si512((const void *)rows);
}
AOTC_INLINE int aotc_eight_apart(const void *const *rows, int64_t step)
{
    const __m512i apart = _mm512_sub_epi64(aotc_rows_at(rows), aotc_rows_at(rows - 1));
    return _mm512_cmpeq_epi64_mask(apart, _mm512_set1_epi64(step)) == 0xff;
}
#else
AOTC_INLINE int aotc_eight_apart(const void *const *rows, int64_t step)
{
    for (int i = 0; i < 8; i++) {
        if ((int64_t)((intptr_t)rows[i] - (intptr_t)rows[i - 1]) != step) {
            return 0;
        }
    }
    return 1;
}
#endif

/* Bytes from each row of a tile to the next, if they are the same for all; 0 if not. */
AOTC_INLINE int64_t aotc_rows_step(const void *const *rows)
{
    const int64_t step = (int64_t)((intptr_t)rows[1] - (intptr_t)rows[0]);
    return aotc_eight_apart(rows + 1, step) && aotc_eight_apart(rows + 8, step) ? step : 0;
}

/* True if in every tap a tile of rows, from row r of mr on, is the row before it and no other. */
AOTC_INLINE int aotc_rows_repeat(const void *const *rows, int64_t taps, int mr, int r)
{
    for (int64_t tap = 0; tap < taps; tap++, rows += mr) {
        if (!aotc_eight_apart(rows + r, 0) || !aotc_eight_apart(rows + r + 8, 0)) {
            return 0;
        }
    }
    return 1;
}

/* The line at p, which may lie behind what there is, comes into the second cache. */
#if defined(__GNUC__) || defined(__clang__)
#define AOTC_TILE_FETCH(p, i) \
    __builtin_prefetch((const void *)((uintptr_t)(p) + (uintptr_t)(i)), 0, 2)
#else
#define AOTC_TILE_FETCH(p, i) ((void)(p), (void)(i))
#endif

/* So many groups from p on, as a row of a whole tile with zeros behind. */
AOTC_INLINE void aotc_part_row(char *to, const char *p, int64_t groups)
{
#if defined(__AVX512F__)
    const __mmask16 live = (__mmask16)((1u << groups) - 1);
    _mm512_storeu_si512(to, _mm512_maskz_loadu_epi32(live, p));
#else
    const size_t bytes = (size_t)(groups * AOTC_GROUP_BYTES);
    memcpy(to, p, bytes);
    memset(to + bytes, 0, AOTC_TILE_BYTES - bytes);
#endif
}
/* The same of each row of a tile, from byte k on. */
AOTC_INLINE void aotc_rows_gather(char *to, const void *const *rows, int64_t k, int64_t groups)
{
    for (int i = 0; i < AOTC_TILE_ROWS; i++, to += AOTC_TILE_BYTES) {
        aotc_part_row(to, (const char *)rows[i] + k, groups);
    }
}
/* So many rows of two right tiles side by side, as whole ones with zeros below. */
AOTC_INLINE void aotc_columns_gather(char *to, const char *panel, int64_t rows)
{
    for (int i = 0; i < 2 * AOTC_TILE_ROWS; i++, to += AOTC_TILE_BYTES) {
        const int live = i < 2 * rows;
        aotc_part_row(to, live ? panel + i * AOTC_TILE_BYTES : panel, live ? AOTC_TILE_ROWS : 0);
    }
}

#endif
