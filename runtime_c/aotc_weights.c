/* The weights image of one bundle.
 *
 * A bundle's copy starts with two lines that give every function the bundle's prefix:
 *     #define AOTC_NAME(x) bert_##x
 *     #define AOTC_HEADER "bert.h"
 * Build option: AOTC_NO_FILES (no file system: weights come from memory only).
 * AOTC_EMBEDDED is defined above in a bundle that carries its image in NAME_image.c.
 *
 * Image: a header of 64 bytes, then the payload; integers little-endian.
 *     0 magic "AOTCWTS1"   8 u32 version   12 u32 header bytes   16 u64 payload bytes
 *    24 u64 checksum      32 32 bytes: the hash that ties the image to this bundle's code
 * Checksum: over the payload's 64-bit words w[i], the last one filled up with zeros,
 *     sum of mix(w[i] ^ (i + 1) * K), mix(x) = low(x) * high(x) + rotate(x, 32), modulo 2^64.
 * Every word is mixed with its own place, so exchanged words are noticed; a change within one half
 * of a word always changes its mix, (low + 1) * (high + 2^32) - 2^32.  SSE2 has just this product:
 * the checksum takes about 1.5 times as long as a plain sum (8.7 against 5.8 ms, 134 MB). */
#include "aotc_os.h"

#include AOTC_HEADER

#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { HEADER_BYTES = 64, FORMAT_VERSION = 2, LINE_WORDS = 8, AHEAD_BYTES = 8192 };

static uint64_t load64(const uint8_t *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static uint32_t load32(const uint8_t *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static const uint64_t place = UINT64_C(0x9E3779B97F4A7C15);

static uint64_t mixed(uint64_t x)
{
    return (x & 0xffffffffu) * (x >> 32) + (x << 32 | x >> 32);
}

/* The part of the checksum that whole lines give; the first word is the payload's word `first`.
 * The reads of a plain loop leave a core waiting for most of the memory's latency; loops over a
 * line that -O2 does not unroll would keep their sums in memory. */
#if defined(__OPTIMIZE_SIZE__)
/* The loop over the words that are left takes all of them. */
#elif defined(__SSE2__)
static uint64_t lines(const uint8_t *p, size_t count, uint64_t first)
{
    const __m128i step = _mm_set1_epi64x((int64_t)(LINE_WORDS * place));
    __m128i key = _mm_set_epi64x((int64_t)((first + 2) * place), (int64_t)((first + 1) * place));
    __m128i keys[LINE_WORDS / 2], sums[LINE_WORDS / 2];
    uint64_t sum[2];
#pragma GCC unroll 4
    for (int k = 0; k < LINE_WORDS / 2; k++) {
        keys[k] = key;
        key = _mm_add_epi64(key, _mm_set1_epi64x((int64_t)(2 * place)));
        sums[k] = _mm_setzero_si128();
    }
    for (; count > 0; count--, p += 8 * LINE_WORDS) {
        _mm_prefetch((const char *)p + AHEAD_BYTES, _MM_HINT_T1);
#pragma GCC unroll 4
        for (int k = 0; k < LINE_WORDS / 2; k++) {
            const __m128i w = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * k));
            const __m128i x = _mm_xor_si128(w, keys[k]);
            const __m128i turned = _mm_shuffle_epi32(x, _MM_SHUFFLE(2, 3, 0, 1));
            const __m128i mix = _mm_add_epi64(_mm_mul_epu32(x, turned), turned);
            sums[k] = _mm_add_epi64(sums[k], mix);
            keys[k] = _mm_add_epi64(keys[k], step);
        }
    }
#pragma GCC unroll 4
    for (int k = 1; k < LINE_WORDS / 2; k++) {
        sums[0] = _mm_add_epi64(sums[0], sums[k]);
    }
    _mm_storeu_si128((__m128i *)(void *)sum, sums[0]);
    return sum[0] + sum[1];
}
#else
static uint64_t lines(const uint8_t *p, size_t count, uint64_t first)
{
    uint64_t sum = 0, key = (first + 1) * place;
    for (; count > 0; count--, p += 8 * LINE_WORDS, key += LINE_WORDS * place) {
#if defined(__GNUC__)
        __builtin_prefetch(p + AHEAD_BYTES);
#pragma GCC unroll 8
#endif
        for (size_t k = 0; k < LINE_WORDS; k++) {
            sum += mixed(load64(p + 8 * k) ^ (key + k * place));
        }
    }
    return sum;
}
#endif

/* The part of the checksum that bytes give which start with the payload's word `first`. */
static uint64_t checksum(const uint8_t *p, size_t bytes, uint64_t first)
{
    const size_t words = bytes / 8;
#if defined(__OPTIMIZE_SIZE__)
    const size_t whole = 0;
    uint64_t sum = 0;
#else
    const size_t whole = words / LINE_WORDS;
    uint64_t sum = lines(p, whole, first);
#endif
    for (size_t i = whole * LINE_WORDS; i < words; i++) {
        sum += mixed(load64(p + 8 * i) ^ (first + i + 1) * place);
    }
    if (bytes % 8 != 0) {
        uint64_t last = 0;
        memcpy(&last, p + 8 * words, bytes % 8);
        sum += mixed(last ^ (first + words + 1) * place);
    }
    return sum;
}

/* Everything but the checksum. */
static aotc_status check_header(const uint8_t *image, size_t bytes)
{
    const uint64_t payload = AOTC_NAME(payload_bytes);
    if (((uintptr_t)image & (AOTC_ALIGNMENT - 1)) != 0) {
        return AOTC_WEIGHTS_MISALIGNED;
    }
    if (bytes < HEADER_BYTES) {
        return AOTC_WEIGHTS_TRUNCATED;
    }
    if (memcmp(image, "AOTCWTS1", 8) != 0) {
        return AOTC_WEIGHTS_MAGIC;
    }
    if (load32(image + 8) != FORMAT_VERSION || load32(image + 12) != HEADER_BYTES) {
        return AOTC_WEIGHTS_VERSION;
    }
    if (load64(image + 16) != bytes - HEADER_BYTES) {
        return AOTC_WEIGHTS_TRUNCATED;
    }
    if (memcmp(image + 32, AOTC_NAME(weights_hash), 32) != 0 || bytes - HEADER_BYTES != payload) {
        return AOTC_WEIGHTS_WRONG_MODEL;
    }
    return AOTC_OK;
}

static void set_image(aotc_weights *w, const uint8_t *image, size_t bytes)
{
    w->payload = image + HEADER_BYTES;
    w->payload_bytes = bytes - HEADER_BYTES;
}

aotc_status AOTC_NAME(weights_trusted)(aotc_weights *w, const void *image, size_t bytes)
{
    if (w == NULL || image == NULL) {
        return AOTC_NULL_POINTER;
    }
    memset(w, 0, sizeof *w);
    const aotc_status status = check_header(image, bytes);
    if (status == AOTC_OK) {
        set_image(w, image, bytes);
    }
    return status;
}

aotc_status AOTC_NAME(weights_from_memory)(aotc_weights *w, const void *image, size_t bytes)
{
    const aotc_status status = AOTC_NAME(weights_trusted)(w, image, bytes);
    if (status != AOTC_OK) {
        return status;
    }
    if (checksum(w->payload, bytes - HEADER_BYTES, 0) != load64((const uint8_t *)image + 24)) {
        memset(w, 0, sizeof *w);
        return AOTC_WEIGHTS_CHECKSUM;
    }
    return AOTC_OK;
}

#if !defined(AOTC_EMBEDDED)
aotc_status AOTC_NAME(weights_embedded)(aotc_weights *w)
{
    return w == NULL ? AOTC_NULL_POINTER : AOTC_NOT_AVAILABLE;
}

aotc_status AOTC_NAME(weights_embedded_trusted)(aotc_weights *w)
{
    return w == NULL ? AOTC_NULL_POINTER : AOTC_NOT_AVAILABLE;
}
#endif

#if defined(AOTC_NO_FILES)

aotc_status AOTC_NAME(weights_open)(aotc_weights *w, const char *path)
{
    return w == NULL || path == NULL ? AOTC_NULL_POINTER : AOTC_NOT_AVAILABLE;
}

static void release(void *memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
}

#else

#include "aotc_files.h"

enum { WINDOW_BYTES = 1 << 24 }; /* a multiple of every page size */

static void release(void *memory, size_t bytes)
{
    aotc_file_unmap(memory, bytes);
}

/* Tables of which a run touches little are mapped in small pages: a large page (2 MiB) would become
 * resident for every element looked up.  Linux maps large pages where a file's cache holds them,
 * also against MADV_NOHUGEPAGE, but never across two areas: halves with different advice are. */
static void keep_small(const uint8_t *image)
{
#if defined(__linux__) && defined(MADV_RANDOM)
    const uintptr_t large = (uintptr_t)1 << 21;
    for (const uint64_t(*range)[2] = AOTC_NAME(untouched); (*range)[1] != 0; range++) {
        const uintptr_t begin = (uintptr_t)image + (*range)[0];
        const uintptr_t end = (uintptr_t)image + (*range)[1];
        for (uintptr_t at = (begin + large - 1) / large * large; at + large <= end; at += large) {
            (void)madvise((void *)at, large / 2, MADV_RANDOM);
        }
    }
#else
    (void)image;
#endif
}

/* The payload's checksum, read through windows that are mapped one after the other: pages of the
 * weights that no kernel reads never become resident.  What was read into memory, where systems
 * have no mappings, is there already. */
static aotc_status check_payload(const aotc_file *file, const uint8_t *image, size_t bytes)
{
    uint64_t sum = 0;
    if (!AOTC_FILES_MAPPED) {
        sum = checksum(image + HEADER_BYTES, bytes - HEADER_BYTES, 0);
    }
    for (size_t at = AOTC_FILES_MAPPED ? 0 : bytes; at < bytes; at += WINDOW_BYTES) {
        const size_t size = bytes - at < WINDOW_BYTES ? bytes - at : WINDOW_BYTES;
        const size_t skip = at == 0 ? HEADER_BYTES : 0;
        void *const window = aotc_file_map(file, at, size, 1);
        if (window == NULL) {
            return AOTC_OUT_OF_MEMORY;
        }
        sum += checksum((const uint8_t *)window + skip, size - skip,
                        (at + skip - HEADER_BYTES) / 8);
        aotc_file_unmap(window, size);
    }
    return sum == load64(image + 24) ? AOTC_OK : AOTC_WEIGHTS_CHECKSUM;
}

static aotc_status open_file(const aotc_file *file, aotc_weights *w)
{
    if (file->bytes < HEADER_BYTES) {
        return AOTC_WEIGHTS_TRUNCATED;
    }
    const size_t bytes = (size_t)file->bytes;
    void *const memory = bytes == file->bytes ? aotc_file_map(file, 0, bytes, 0) : NULL;
    if (memory == NULL) {
        return AOTC_OUT_OF_MEMORY;
    }
    aotc_status status = check_header(memory, bytes);
    if (status == AOTC_OK) {
        status = check_payload(file, memory, bytes);
    }
    if (status != AOTC_OK) {
        release(memory, bytes);
        return status;
    }
    keep_small(memory);
    set_image(w, memory, bytes);
    w->memory = memory;
    w->memory_bytes = bytes;
    return AOTC_OK;
}

aotc_status AOTC_NAME(weights_open)(aotc_weights *w, const char *path)
{
    aotc_file file;
    if (w == NULL || path == NULL) {
        return AOTC_NULL_POINTER;
    }
    memset(w, 0, sizeof *w);
    if (!aotc_file_open(&file, path)) {
        return AOTC_WEIGHTS_MISSING;
    }
    const aotc_status status = open_file(&file, w);
    aotc_file_close(&file);
    return status;
}

#endif

void AOTC_NAME(weights_close)(aotc_weights *w)
{
    if (w != NULL) {
        if (w->memory != NULL) {
            release(w->memory, w->memory_bytes);
        }
        memset(w, 0, sizeof *w);
    }
}
