/* aotc_board.h: a Cortex-M from its reset on: the table of vectors, the FPU, a count of
 * instructions.
 *
 * The count is the system timer's, so it is one of instructions where an emulator gives each the
 * same time (-icount shift=N: 2^N ns); on a chip it is one of cycles.  The linker defines board_hz,
 * what the timer counts in a second, and board_shift, that N. */
#ifndef AOTC_BOARD_H
#define AOTC_BOARD_H

#include <stdint.h>

static uint32_t board_call(uint32_t operation, uint32_t argument)
{
    register uint32_t r0 __asm__("r0") = operation;
    register uint32_t r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

#include "aotc_semihosting.h"

#define BOARD_REGISTER(address) (*(volatile uint32_t *)(uintptr_t)(address))
#define BOARD_TIMER_CONTROL BOARD_REGISTER(0xE000E010u)
#define BOARD_TIMER_START BOARD_REGISTER(0xE000E014u)
#define BOARD_TIMER_NOW BOARD_REGISTER(0xE000E018u)
#define BOARD_CCR BOARD_REGISTER(0xE000ED14u)
#define BOARD_CPACR BOARD_REGISTER(0xE000ED88u)
enum { TIMER_TICKS = 1 << 24 };

int main(void);
void reset(void);

extern uint32_t data_start[], data_end[], data_image[], bss_start[], bss_end[], stack_top[];
extern uint32_t heap_start[], heap_end[];
extern const char board_hz[], board_shift[];

static volatile uint32_t board_turns;

static void board_tick(void)
{
    board_turns++;
}

static void board_fault(void)
{
    board_print("fault\n");
    board_exit(1);
}

static void board_start(void)
{
    board_turns = 0;
    BOARD_TIMER_START = TIMER_TICKS - 1;
    BOARD_TIMER_NOW = 0;
    BOARD_TIMER_CONTROL = 7; /* on, with interrupts, in steps of the core */
}

/* Instructions since board_start. */
static uint64_t board_count(void)
{
    const uint32_t left = BOARD_TIMER_NOW, turns = board_turns;
    const uint64_t ticks = (uint64_t)turns * TIMER_TICKS + (TIMER_TICKS - 1 - left);
    const uint32_t megahertz = (uint32_t)(uintptr_t)board_hz / 1000000u;
    BOARD_TIMER_CONTROL = 0;
    return ticks * 1000u / ((uint64_t)megahertz << (uint32_t)(uintptr_t)board_shift);
}

void reset(void)
{
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    BOARD_CPACR |= 0xFu << 20; /* floating point is off after a reset */
    __asm__ volatile("dsb\nisb");
#endif
#if !defined(__ARM_FEATURE_UNALIGNED)
    BOARD_CCR |= 1u << 3; /* an emulator may run a larger core: what this one lacks is a fault */
#endif
    for (uint32_t *to = data_start, *from = data_image; to < data_end;) {
        *to++ = *from++;
    }
    for (uint32_t *to = bss_start; to < bss_end;) {
        *to++ = 0;
    }
    board_exit(main());
}

/* stack pointer, reset, NMI, four faults, four reserved, and five more up to the timer's */
typedef void (*board_vector)(void);
static const struct {
    const uint32_t *stack;
    board_vector handlers[15];
} board_vectors __attribute__((used, section(".vectors"))) = {
    stack_top,
    {reset, board_fault, board_fault, board_fault, board_fault, board_fault, board_fault,
     board_fault, board_fault, board_fault, board_fault, board_fault, board_fault, board_fault,
     board_tick}
};

#endif
