/* aotc_tiles_allowed.h: whether this process may use matrix tiles, of bf16 and of bytes.
 *
 * The CPU has to have them, the system to save their registers, and this process to be allowed:
 * Linux gives them to one that asks, once for all its threads.  It refuses where a thread's signal
 * stack is too small for them.  With AOTC_TILES_IN_C none of that is needed. */
#ifndef AOTC_TILES_ALLOWED_H
#define AOTC_TILES_ALLOWED_H

#if defined(AOTC_TILES_IN_C)
static int aotc_tiles_allowed(void) { return 1; }

#elif defined(__linux__) && defined(__x86_64__) && !defined(AOTC_FREESTANDING) \
    && (defined(__GNUC__) || defined(__clang__))
#include <cpuid.h>

static int aotc_tiles_allowed(void)
{
    unsigned a, b, c, d, low, high;
    const unsigned units = 1u << 22 | 1u << 24 | 1u << 25; /* bf16, tiles, int8 */
    const unsigned saved = 0x600e0; /* of the registers of AVX-512 and of tiles */
    long done = 158;                /* arch_prctl, which C libraries do not declare */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & units) != units
        || !__get_cpuid(1, &a, &b, &c, &d) || (c & 1u << 27) == 0) {
        return 0;
    }
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    (void)high;
    if ((low & saved) != saved) {
        return 0;
    }
    /* ARCH_REQ_XCOMP_PERM of XTILEDATA */
    __asm__ volatile("syscall" : "+a"(done) : "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory");
    return done == 0;
}

#else
static int aotc_tiles_allowed(void) { return 0; }
#endif

#endif
