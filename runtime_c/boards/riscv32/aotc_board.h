/* aotc_board.h: a 32-bit RISC-V hart from its reset on, in machine mode: stack, traps, the FPU, a
 * count of instructions.
 *
 * The count is that of retired instructions; an emulator that gives each the same time (-icount
 * shift=N) counts nanoseconds, 2^N for each.  The linker defines board_shift, that N. */
#ifndef AOTC_BOARD_H
#define AOTC_BOARD_H

#include <stdint.h>

static __attribute__((noinline)) uint32_t board_call(uint32_t operation, uint32_t argument)
{
    register uint32_t a0 __asm__("a0") = operation;
    register uint32_t a1 __asm__("a1") = argument;
    __asm__ volatile(".balign 16\n"
                     ".option push\n"
                     ".option norvc\n"
                     "slli zero, zero, 0x1f\n"
                     "ebreak\n"
                     "srai zero, zero, 7\n"
                     ".option pop"
                     : "+r"(a0) : "r"(a1) : "memory");
    return a0;
}

#include "aotc_semihosting.h"

int main(void);
void reset(void);
void board_run(void);
void board_trap(void);

extern uint32_t bss_start[], bss_end[], heap_start[], heap_end[];
extern const char board_shift[];

static uint32_t board_from;

static uint32_t board_retired(void)
{
    uint32_t n;
    __asm__ volatile(".option push\n.option arch, +zicsr\ncsrr %0, minstret\n.option pop"
                     : "=r"(n));
    return n;
}

static void board_start(void)
{
    board_from = board_retired();
}

/* Instructions since board_start; the counter has 32 bits. */
static uint64_t board_count(void)
{
    return (board_retired() - board_from) >> (uint32_t)(uintptr_t)board_shift;
}

__attribute__((used, aligned(4), noreturn)) void board_trap(void)
{
    board_print("fault\n");
    board_exit(1);
}

__attribute__((used)) void board_run(void)
{
    for (uint32_t *to = bss_start; to < bss_end;) {
        *to++ = 0;
    }
    board_exit(main());
}

__attribute__((naked, section(".reset"))) void reset(void)
{
    __asm__ volatile(".option push\n"
                     ".option norelax\n"
                     ".option arch, +zicsr\n"
                     "la gp, global_pointer\n"
                     "la sp, stack_top\n"
                     "la t0, board_trap\n"
                     "csrw mtvec, t0\n"
                     "li t0, 0x2000\n" /* floating point is off after a reset */
                     "csrs mstatus, t0\n"
                     "j board_run\n"
                     ".option pop");
}

#endif
