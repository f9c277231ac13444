/* board.c: start-up, console (a UART of the kind 16550) and end of program on the emulator's RISC-V
 * machine "virt", and the three functions of string.h that a bundle calls.
 *
 * Compile with -fno-builtin: compilers may otherwise replace the loop inside memset by a call of
 * memset. */
#include "board.h"

#include <stddef.h>
#include <stdint.h>

int main(void);
_Noreturn void run(void);
_Noreturn void trapped(void);
void *memcpy(void *restrict to, const void *restrict from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);

extern uint64_t bss_start[], bss_end[];

#define UART 0x10000000u
#define FINISHER 0x100000u /* ends the emulator with an exit status */

enum { SEND = 0, LINE_STATUS = 5, MAY_SEND = 0x20 };  /* registers of the UART, a bit of one */
enum { PASS = 0x5555, FAIL = 0x3333 };

/* The first instructions: one core goes on, with a stack, a place for traps, and the float and
 * vector units on (FS and VS of mstatus), which a reset leaves off. */
__asm__(".section .start, \"ax\"\n"
        ".globl start\n"
        "start:\n"
        "    csrr t0, mhartid\n"
        "    bnez t0, wait\n"
        "    la sp, stack_top\n"
        "    la t0, trapped\n"
        "    csrw mtvec, t0\n"
        "    li t0, 0x2200\n"
        "    csrs mstatus, t0\n"
        "    csrwi fcsr, 0\n"
        "    j run\n"
        "wait:\n"
        "    wfi\n"
        "    j wait\n"
        ".text\n");

static volatile uint8_t *uart(int reg)
{
    return (volatile uint8_t *)(uintptr_t)UART + reg;
}

void board_print(const char *text)
{
    for (; *text != '\0'; text++) {
        while ((*uart(LINE_STATUS) & MAY_SEND) == 0) {
        }
        *uart(SEND) = (uint8_t)*text;
    }
}

_Noreturn void board_exit(int status)
{
    *(volatile uint32_t *)(uintptr_t)FINISHER =
        status == 0 ? (uint32_t)PASS : (uint32_t)status << 16 | FAIL;
    for (;;) {
    }
}

_Noreturn __attribute__((aligned(4), used)) void trapped(void)
{
    board_print("trap\n");
    board_exit(1);
}

_Noreturn __attribute__((used)) void run(void)
{
    for (uint64_t *to = bss_start; to < bss_end;) {
        *to++ = 0;
    }
    board_exit(main());
}

void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
    unsigned char *t = to;
    const unsigned char *f = from;
    while (bytes-- != 0) {
        *t++ = *f++;
    }
    return to;
}

void *memset(void *to, int value, size_t bytes)
{
    unsigned char *t = to;
    while (bytes-- != 0) {
        *t++ = (unsigned char)value;
    }
    return to;
}

int memcmp(const void *a, const void *b, size_t bytes)
{
    const unsigned char *x = a, *y = b;
    for (; bytes-- != 0; x++, y++) {
        if (*x != *y) {
            return *x < *y ? -1 : 1;
        }
    }
    return 0;
}
