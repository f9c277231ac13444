/* aotc_copy.h: memcpy without a call for a few bytes, as -ffreestanding would have it, and as cores
 * would that need aligned words. */
#ifndef AOTC_COPY_H
#define AOTC_COPY_H

#include <stddef.h>
#include <string.h>

#if defined(AOTC_FREESTANDING) && defined(__GNUC__)
#if defined(__arm__) && !defined(__ARM_FEATURE_UNALIGNED) || defined(__riscv)
static inline __attribute__((always_inline, unused)) void aotc_copy(
    void *to, const void *from, size_t bytes)
{
    if (!__builtin_constant_p(bytes) || bytes > 8)
        __builtin_memcpy(to, from, bytes);
    else
        _Pragma("GCC unroll 8") for (size_t i = 0; i < bytes; ++i)
            ((char *)to)[i] = ((const char *)from)[i];
}
#define memcpy(to, from, bytes) aotc_copy(to, from, bytes)
#else
#define memcpy(to, from, bytes) __builtin_memcpy(to, from, bytes)
#endif
#endif

#endif
