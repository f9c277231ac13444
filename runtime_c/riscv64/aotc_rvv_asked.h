/* aotc_rvv_asked.h: what Linux and the CPU say of the vector extension.  Included where both are
 * there; aotc_rvv_bits only after the extension's letter was found. */
#ifndef AOTC_RVV_ASKED_H
#define AOTC_RVV_ASKED_H

#include <stdint.h>

long syscall(long number, ...); /* <unistd.h> has it beyond ISO C alone */

/* True if a bit of the word of extensions that riscv_hwprobe knows is set, or nobody can be asked:
 * before Linux 6.4 the compiler's flags decide. */
static inline int aotc_rvv_has(int bit)
{
    enum { HWPROBE = 258, EXTENSIONS = 4 };
    struct {
        int64_t key;
        uint64_t value;
    } asked = {EXTENSIONS, 0};
    const long failed = syscall(HWPROBE, &asked, (long)1, (long)0, (void *)0, (long)0);
    return failed != 0 || (asked.value >> bit & 1) != 0;
}

/* Bits of a vector register: the register vlenb has its bytes. */
static inline unsigned long aotc_rvv_bits(void)
{
    unsigned long bytes;
    __asm__ volatile("csrr %0, 0xc22" : "=r"(bytes));
    return 8 * bytes;
}

#endif
