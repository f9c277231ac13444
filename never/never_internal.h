/* never_internal.h: what never.c and the kernels share.  Not for users. */
#ifndef NEVER_INTERNAL_H
#define NEVER_INTERNAL_H

#include "aotc_index.h"
#include "never.h"

/* One call of run: everything a kernel may read.  Worker w's scratch is slab + w*slab_stride;
 * slots, scratch and weights are aligned to 64 bytes, the caller's tensors may not be. */
typedef struct never_frame {
    int64_t sym_x_bytes;
    const uint8_t *weights;
    uint8_t *slot[1];
    uint8_t *slab;
    int64_t slab_stride;
    const void *in[2];
    void *out[2];
    int32_t fault; /* 1 + the number of the broken rule, see data_rules in never.c */
    int64_t fault_value; /* what broke it */
    int64_t fault_bound;
} never_frame;

/* Report a broken rule.  Of several at the same time one is kept. */
static inline void never_fault(never_frame *f, int32_t rule, int64_t value, int64_t bound)
{
#if defined(__GNUC__) || defined(__clang__)
    int32_t none = 0;
    if (!__atomic_compare_exchange_n(&f->fault, &none, rule + 1, 0, __ATOMIC_RELAXED,
            __ATOMIC_RELAXED)) {
        return;
    }
#else
    if (f->fault != 0) {
        return;
    }
    *(volatile int32_t *)&f->fault = rule + 1;
#endif
    f->fault_value = value;
    f->fault_bound = bound;
}

/* An index that comes from data: i where 0 <= i < n, else 0 and a fault. */
static inline int64_t never_checked(never_frame *f, int32_t rule, int64_t i, int64_t n)
{
    if (i >= 0 && i < n) {
        return i;
    }
    never_fault(f, rule, i, n);
    return 0;
}

/* An extent that comes from data: i, and a fault unless it is n. */
static inline int64_t never_expected(never_frame *f, int32_t rule, int64_t i, int64_t n)
{
    if (i != n) {
        never_fault(f, rule, i, n);
    }
    return i;
}

void never_k000(void *frame, int64_t begin, int64_t end, int worker);
void never_k001(void *frame, int64_t begin, int64_t end, int worker);

#endif
