/* aotc_semihosting.h: a console, files and the end of a program through the debugger or the
 * emulator, and the three functions of string.h that a bundle calls.  A board's own header defines
 * board_call(operation, argument) before it includes this one. */
#ifndef AOTC_SEMIHOSTING_H
#define AOTC_SEMIHOSTING_H

#include <stddef.h>
#include <stdint.h>

enum { SYS_OPEN = 0x01, SYS_CLOSE = 0x02, SYS_WRITE0 = 0x04, SYS_WRITE = 0x05, SYS_READ = 0x06,
       SYS_FLEN = 0x0c, SYS_EXIT = 0x18, EXIT_OK = 0x20026, EXIT_ERROR = 0x20023 };
enum { READ_BINARY = 1, WRITE_BINARY = 5 };

static uint32_t board_call_with(uint32_t operation, const uint32_t *block)
{
    return board_call(operation, (uint32_t)(uintptr_t)block);
}

static void board_print(const char *text)
{
    board_call(SYS_WRITE0, (uint32_t)(uintptr_t)text);
}

static void board_number(uint32_t n)
{
    char digits[11];
    char *p = digits + 10;
    *p = '\0';
    do {
        *--p = (char)('0' + n % 10);
        n /= 10;
    } while (n != 0);
    board_print(p);
}

static _Noreturn void board_exit(int status)
{
    board_call(SYS_EXIT, status == 0 ? EXIT_OK : EXIT_ERROR);
    for (;;) {
    }
}

/* A file's handle, or -1. */
static int32_t board_open(const char *path, uint32_t mode)
{
    uint32_t length = 0;
    while (path[length] != '\0') {
        length++;
    }
    const uint32_t block[3] = {(uint32_t)(uintptr_t)path, mode, length};
    return (int32_t)board_call_with(SYS_OPEN, block);
}

static uint32_t board_file_bytes(int32_t file)
{
    const uint32_t block[1] = {(uint32_t)file};
    return board_call_with(SYS_FLEN, block);
}

/* 1 if all bytes were read, or written. */
static int board_move(uint32_t operation, int32_t file, const void *data, size_t bytes)
{
    const uint32_t block[3] = {(uint32_t)file, (uint32_t)(uintptr_t)data, (uint32_t)bytes};
    return board_call_with(operation, block) == 0;
}

static void board_close(int32_t file)
{
    const uint32_t block[1] = {(uint32_t)file};
    board_call_with(SYS_CLOSE, block);
}

/* The empty statement keeps compilers from making calls of these functions of their own loops. */
#define BOARD_KEEP(p) __asm__ volatile("" : "+r"(p) : : "memory")
#define BOARD_APART __attribute__((noinline, used))

void *memcpy(void *restrict to, const void *restrict from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);

BOARD_APART void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
    unsigned char *t = to;
    const unsigned char *f = from;
    if ((((uintptr_t)t | (uintptr_t)f) & 3) == 0) {
        for (; bytes >= 4; bytes -= 4, t += 4, f += 4) {
            BOARD_KEEP(t);
            *(uint32_t __attribute__((may_alias)) *)(void *)t
                = *(const uint32_t __attribute__((may_alias)) *)(const void *)f;
        }
    }
    for (; bytes != 0; bytes--, t++, f++) {
        BOARD_KEEP(t);
        *t = *f;
    }
    return to;
}

BOARD_APART void *memset(void *to, int value, size_t bytes)
{
    unsigned char *t = to;
    for (; bytes != 0; bytes--, t++) {
        BOARD_KEEP(t);
        *t = (unsigned char)value;
    }
    return to;
}

BOARD_APART int memcmp(const void *a, const void *b, size_t bytes)
{
    const unsigned char *x = a, *y = b;
    for (; bytes != 0; bytes--, x++, y++) {
        if (*x != *y) {
            return *x < *y ? -1 : 1;
        }
    }
    return 0;
}

#endif
