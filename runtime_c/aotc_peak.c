/* What one core of this machine can do: multiply-adds of float vectors per second, and bytes read
 * from memory per second.  Compiled for a target by `aotc bench --profile`; not part of a bundle.
 * AOTC_LANES is given on the command line. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "aotc_vec.h"

#include <stdlib.h>
#include <time.h>

enum { CHAINS = 12, STEPS = 1 << 20, REPEATS = 20, ENOUGH = 1 << 27, WINDOWS = 5 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Twelve independent chains: more than the latency times the units of any core so far. */
static float multiply_add(int64_t steps, float a, float b)
{
    /* different starts: equal chains would be computed once */
    const aotc_vf x = aotc_splat(a), y = aotc_splat(b);
    aotc_vf c0 = x, c1 = c0 + y, c2 = c1 + y, c3 = c2 + y, c4 = c3 + y, c5 = c4 + y;
    aotc_vf c6 = c5 + y, c7 = c6 + y, c8 = c7 + y, c9 = c8 + y, c10 = c9 + y, c11 = c10 + y;
    for (int64_t i = 0; i < steps; i++) {
        c0 = aotc_fma(c0, x, y);
        c1 = aotc_fma(c1, x, y);
        c2 = aotc_fma(c2, x, y);
        c3 = aotc_fma(c3, x, y);
        c4 = aotc_fma(c4, x, y);
        c5 = aotc_fma(c5, x, y);
        c6 = aotc_fma(c6, x, y);
        c7 = aotc_fma(c7, x, y);
        c8 = aotc_fma(c8, x, y);
        c9 = aotc_fma(c9, x, y);
        c10 = aotc_fma(c10, x, y);
        c11 = aotc_fma(c11, x, y);
    }
    return aotc_hsum(c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9 + c10 + c11);
}

/* Floating-point operations per second: the best of several runs. */
double aotc_peak_flops(void)
{
    volatile float a = 0.999f, b = 1e-6f, sink = 0.0f;
    double best = 0.0;
    for (int r = 0; r < REPEATS; r++) {
        const double start = seconds();
        sink = multiply_add(STEPS, a, b);
        const double rate = 2.0 * CHAINS * AOTC_LANES * STEPS / (seconds() - start);
        best = rate > best ? rate : best;
    }
    (void)sink;
    return best;
}

#if defined(AOTC_PEAK_PAIRS)
#include "aotc_num.h"
#include "aotc_pairs.h"

/* The same of products of bf16, two per lane and step. */
double aotc_peak_pairs(void)
{
    uint16_t row[2] = {0x3f7f, 0x3f7e}, column[2 * AOTC_LANES];
    volatile float sink = 0.0f;
    double best = 0.0;
    for (int i = 0; i < 2 * AOTC_LANES; i++) {
        column[i] = (uint16_t)(0x3380 + i);
    }
    for (int r = 0; r < REPEATS; r++) {
        const double start = seconds();
        const aotc_pair_rows x = aotc_pair_a(row);
        const aotc_pair_columns y = aotc_pair_b(column);
        const aotc_vf s = aotc_splat((float)r), t = aotc_splat(1e-6f);
        aotc_vf c0 = s, c1 = c0 + t, c2 = c1 + t, c3 = c2 + t, c4 = c3 + t, c5 = c4 + t;
        aotc_vf c6 = c5 + t, c7 = c6 + t, c8 = c7 + t, c9 = c8 + t, c10 = c9 + t, c11 = c10 + t;
        for (int64_t i = 0; i < STEPS; i++) {
            c0 = aotc_pair(c0, x, y);
            c1 = aotc_pair(c1, x, y);
            c2 = aotc_pair(c2, x, y);
            c3 = aotc_pair(c3, x, y);
            c4 = aotc_pair(c4, x, y);
            c5 = aotc_pair(c5, x, y);
            c6 = aotc_pair(c6, x, y);
            c7 = aotc_pair(c7, x, y);
            c8 = aotc_pair(c8, x, y);
            c9 = aotc_pair(c9, x, y);
            c10 = aotc_pair(c10, x, y);
            c11 = aotc_pair(c11, x, y);
        }
        sink = aotc_hsum(c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9 + c10 + c11);
        const double rate = 4.0 * CHAINS * AOTC_LANES * STEPS / (seconds() - start);
        best = rate > best ? rate : best;
    }
    (void)sink;
    return best;
}
#endif

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Bytes per second read one after the other from a block of `bytes`; 0 if there is no memory.  The
 * median of windows long enough that threads which start together share nearly all of them. */
double aotc_peak_read(size_t bytes)
{
    const size_t n = bytes / sizeof(float) / (4 * AOTC_LANES) * (4 * AOTC_LANES);
    const size_t passes = n * sizeof(float) < ENOUGH ? ENOUGH / (n * sizeof(float) + 1) + 1 : 1;
    float *p = malloc(n * sizeof(float));
    volatile float sink = 0.0f;
    double rates[WINDOWS];
    if (p == NULL) {
        return 0.0;
    }
    for (size_t i = 0; i < n; i++) {
        p[i] = 1.0f;
    }
    for (int r = 0; r < WINDOWS; r++) {
        const double start = seconds();
        aotc_vf s0 = aotc_splat(0.0f), s1 = s0, s2 = s0, s3 = s0;
        for (size_t k = 0; k < passes; k++) {
            for (size_t i = 0; i < n; i += 4 * AOTC_LANES) {
                s0 += aotc_load(p + i);
                s1 += aotc_load(p + i + AOTC_LANES);
                s2 += aotc_load(p + i + 2 * AOTC_LANES);
                s3 += aotc_load(p + i + 3 * AOTC_LANES);
            }
        }
        sink = aotc_hsum(s0 + s1 + s2 + s3);
        rates[r] = (double)(passes * n * sizeof(float)) / (seconds() - start);
    }
    (void)sink;
    free(p);
    qsort(rates, WINDOWS, sizeof rates[0], compare);
    return rates[WINDOWS / 2];
}
