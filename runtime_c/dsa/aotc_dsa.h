/* aotc_dsa.h: what generated kernels ask of a scratchpad accelerator (docs/dsa.md).
 *
 * A machine is clusters of cores.  A core computes on its local buffer (LB) alone; DMA engines copy
 * boxes between LB and DDR, or the global buffer (GB) of its cluster, while it computes, and a
 * token tells when they have arrived.  Work items are dealt to clusters as equal runs, and there to
 * the cores in turn.  This header goes with the functional simulator aotc_dsa_sim.c,
 * which refuses what the hardware could not do: of a machine's refusals the first is kept as text.
 *
 * A core has two units, which compute on its LB while the core waits for them: a vector unit, whose
 * registers are those of aotc_vec.h and whose loads and stores are runs of neighbours, and a matrix
 * engine, which multiplies tiles.
 *
 * The file that includes it defines AOTC_DSA_CLUSTERS, AOTC_DSA_CORES, AOTC_DSA_LB_BYTES,
 * AOTC_DSA_GB_BYTES, AOTC_DSA_ROWS and AOTC_DSA_COLUMNS, the matrix engine's tile, and
 * AOTC_DSA_BYTES, what a simulated machine has room for. */
#ifndef AOTC_DSA_H
#define AOTC_DSA_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    AOTC_DSA_ALIGNMENT = 64, /* of a buffer in LB */
    AOTC_DSA_BUFFERS = 512, /* of one work item that are told by name */
    AOTC_DSA_SHARED = 64, /* buffers in GB that one work item uses */
    AOTC_DSA_HELD = 64, /* buffers that it uses of those that stay in LB */
    AOTC_DSA_BRINGING = 64, /* copies to the GB of a cluster at once */
    AOTC_DSA_COMING = 255, /* the tag of bytes that those fill */
    AOTC_DSA_TRANSFERS = 512, /* in flight at once */
    AOTC_DSA_RANK = 8,
    AOTC_DSA_LANES = 16, /* of a vector, at most */
    AOTC_DSA_TEXT = 256
};

/* What is known of every byte of LB, as bits; 0: never written. */
enum {
    AOTC_DSA_THERE = 1, /* it may be read */
    AOTC_DSA_MOVING = 2, /* an engine writes it, or (with THERE) reads it: no store */
    AOTC_DSA_FREE = 4 /* no buffer has it */
};

typedef struct aotc_dsa_transfer {
    int token;
    int store; /* from LB */
    int shared; /* which buffer in GB is at the other end; -1: DDR is */
    uint8_t tag; /* of what is there */
    int rank;
    size_t size;
    uint8_t *local;
    uint8_t *far;
    int64_t extent[AOTC_DSA_RANK];
    int64_t local_step[AOTC_DSA_RANK];
    int64_t far_step[AOTC_DSA_RANK];
} aotc_dsa_transfer;

typedef struct aotc_dsa_buffer {
    const char *name;
    size_t at;
    size_t bytes;
} aotc_dsa_buffer;

/* A buffer in the GB of a work item's cluster.  Bytes that are written there carry its tag, those
 * that a cluster's engine fills AOTC_DSA_COMING. */
typedef struct aotc_dsa_shared_buffer {
    const char *name;
    uint8_t *at;
    size_t bytes;
    uint8_t tag; /* of a ring: of the place that was asked for last */
    uint8_t first; /* of a ring: the tag of its first round */
    uint8_t ring;
} aotc_dsa_shared_buffer;

/* A buffer that stays in LB from kernel to kernel: what is there lies at ``from`` while the core
 * does not work, in a byte for each, and as far behind those of all cores its tag. */
typedef struct aotc_dsa_held_buffer {
    size_t at;
    size_t bytes;
    uint8_t *from;
    uint8_t tag;
} aotc_dsa_held_buffer;

/* A copy from DDR to the GB of a cluster, which goes on behind the work item that began it. */
typedef struct aotc_dsa_bringing {
    int token;
    uint8_t tag;
    size_t bytes;
    uint8_t *to;
    const uint8_t *from;
} aotc_dsa_bringing;

typedef struct aotc_dsa_cluster {
    int count;
    aotc_dsa_bringing bringing[AOTC_DSA_BRINGING];
} aotc_dsa_cluster;

/* What clusters and cores have from kernel to kernel, all of it zero in the beginning: GB of one
 * cluster behind the other, then as many tags, then a state of each cluster, in its slot of the
 * arena; LB of cores behind each other, then as many tags, in another one. */
typedef struct aotc_dsa_kept {
    uint8_t *shared;
    size_t shared_bytes; /* of all clusters */
    size_t shared_stride; /* of one cluster */
    uint8_t *held;
    size_t held_bytes; /* of all cores */
    size_t held_stride; /* of one core */
} aotc_dsa_kept;

struct aotc_dsa;

/* The core that a work item runs on. */
typedef struct aotc_dsa_core {
    struct aotc_dsa *machine;
    int cluster;
    int number;
    int64_t item;
    const char *kernel;
    uint8_t *local; /* its LB */
    uint8_t *state; /* of every byte there */
    int buffers;
    int shared_buffers;
    int held_buffers;
    int transfers;
    int64_t stored; /* bytes that the core's stage has stored in LB so far */
    aotc_dsa_buffer buffer[AOTC_DSA_BUFFERS];
    aotc_dsa_shared_buffer shared_buffer[AOTC_DSA_SHARED];
    aotc_dsa_held_buffer held_buffer[AOTC_DSA_HELD];
    aotc_dsa_transfer transfer[AOTC_DSA_TRANSFERS];
} aotc_dsa_core;

typedef struct aotc_dsa {
    aotc_dsa_core core; /* the one at work: simulated cores take turns */
    char refusal[AOTC_DSA_TEXT]; /* "" while all is well */
    aotc_dsa_kept kept;
    /* what a refused access gets instead */
    uint8_t nothing[8 * AOTC_DSA_LANES + 4 * AOTC_DSA_ROWS * AOTC_DSA_COLUMNS];
    uint8_t state[AOTC_DSA_CLUSTERS * AOTC_DSA_CORES][AOTC_DSA_LB_BYTES];
    uint8_t local[AOTC_DSA_CLUSTERS * AOTC_DSA_CORES][AOTC_DSA_LB_BYTES];
} aotc_dsa;

_Static_assert(sizeof(aotc_dsa) <= AOTC_DSA_BYTES, "room for a machine");

/* A machine in memory of AOTC_DSA_BYTES bytes, aligned to 64. */
aotc_dsa *aotc_dsa_open(void *memory, aotc_dsa_kept kept);
/* The core that work item ``item`` of ``items`` of a kernel runs on, which are dealt to so many
 * clusters; its LB holds nothing. */
aotc_dsa_core *aotc_dsa_begin(aotc_dsa *machine, const char *kernel, int64_t item, int64_t items,
    int clusters);
/* Number ``at`` of a turn's work items: each cluster runs ``items`` of its own from ``first`` on
 * (0: all of them), of ``count`` in all. */
static inline int64_t aotc_dsa_item(int64_t at, int64_t first, int64_t items, int64_t count,
    int clusters)
{
    return items == 0 ? at : at / items * (count / clusters) + first + at % items;
}

/* The work item is done: what it had in LB is freed. */
void aotc_dsa_end(aotc_dsa_core *core);

/* Buffer ``name`` of the core's LB, from byte ``at`` on: it holds nothing yet. */
void *aotc_dsa_local(aotc_dsa_core *core, const char *name, size_t at, size_t bytes);

/* Buffer ``name`` in GB, of ``parts`` equal parts of ``bytes`` bytes, on as many clusters, all as
 * far behind ``first`` on the first one; below 0: on so many clusters, each of which has all of it.
 * Returns where its first element would lie if all parts did so one behind the other: only those of
 * this work item's cluster may be reached. */
void *aotc_dsa_shared(aotc_dsa_core *core, const char *name, const void *first, int parts,
    size_t bytes);

/* Where byte ``at`` of a buffer in GB lies that has room for a part of it at a time, a ring which
 * begins at ``first``: what starts there next is of that part. */
void *aotc_dsa_ring(aotc_dsa_core *core, const void *first, size_t at);

/* Buffer ``name`` that stays in LB from kernel to kernel, from byte ``at`` on, of as many equal
 * parts of ``bytes`` bytes as there are work items, which this one has its own of.  Returns where
 * its first element would lie if all parts did so one behind the other. */
void *aotc_dsa_held(aotc_dsa_core *core, const char *name, size_t at, size_t bytes);

/* Start copying a box of elements of ``size`` bytes from DDR to LB, or from there to DDR.  Steps
 * are in elements.  It has arrived after aotc_dsa_wait for the token. */
void aotc_dsa_load(aotc_dsa_core *core, int token, void *local, const void *far, size_t size,
    int rank, const int64_t *extent, const int64_t *local_step, const int64_t *far_step);
void aotc_dsa_store(aotc_dsa_core *core, int token, void *far, const void *local, size_t size,
    int rank, const int64_t *extent, const int64_t *far_step, const int64_t *local_step);
/* The same between LB and GB. */
void aotc_dsa_fetch(aotc_dsa_core *core, int token, void *local, const void *shared, size_t size,
    int rank, const int64_t *extent, const int64_t *local_step, const int64_t *shared_step);
void aotc_dsa_keep(aotc_dsa_core *core, int token, void *shared, const void *local, size_t size,
    int rank, const int64_t *extent, const int64_t *shared_step, const int64_t *local_step);
void aotc_dsa_wait(aotc_dsa_core *core, int token);

/* Start copying elements side by side from DDR to the GB of the core's cluster, which goes on when
 * the work item is done; and wait until all under the token are there. */
void aotc_dsa_bring(aotc_dsa_core *core, int token, void *shared, const void *far, size_t size,
    int rank, const int64_t *extent, const int64_t *shared_step, const int64_t *far_step);
void aotc_dsa_arrive(aotc_dsa_core *core, int token);

/* A stage ends, for the trace: what it stored in LB is counted. */
void aotc_dsa_computed(aotc_dsa_core *core);

/* A product of the matrix engine.  Its accumulators hold sums of f32, ``summed`` rows of
 * ``columns`` each, to which it adds, in the order of taps and then of k,
 *
 *     acc[i * columns + j] +=
 *         a[tap * rows + i][first + k * a_step] * b[tap * b_tap + k * b_step + j]
 *
 * for the first ``left`` columns (all, if more are left): it neither reads nor changes others.
 * Elements of A and B are f32, or f16 where their size says so; each product and each sum is
 * rounded to f32.  A row at NULL is zeros.  All else lies in the core's LB. */
typedef struct aotc_dsa_product {
    int rows; /* pointers per tap */
    int summed; /* rows that have sums, at most AOTC_DSA_ROWS */
    int columns; /* at most AOTC_DSA_COLUMNS */
    size_t a_size;
    size_t b_size;
    int64_t first; /* element of each row */
    int64_t taps;
    int64_t steps; /* of k */
    int64_t a_step; /* steps are in elements */
    int64_t b_step;
    int64_t b_tap;
    int64_t left;
} aotc_dsa_product;

void aotc_dsa_multiply(aotc_dsa_core *core, const aotc_dsa_product *product,
    const void *const *a, const void *b, float *acc);

/* ``count`` neighbours in LB that the vector unit loads, or stores, from an address on: returns the
 * address, or some other that serves instead.  The same of DDR, which takes far longer. */
const void *aotc_dsa_loads(aotc_dsa_core *core, const void *place, int64_t count, size_t size);
void *aotc_dsa_stores(aotc_dsa_core *core, void *place, int64_t count, size_t size);
void *aotc_dsa_far_run(aotc_dsa_core *core, const void *place, int64_t count, size_t size,
    const char *verb);
#define aotc_dsa_reads(core, place, count) \
    aotc_dsa_loads(core, place, count, sizeof *(place))
#define aotc_dsa_writes(core, place, count) \
    aotc_dsa_stores(core, place, count, sizeof *(place))
#define aotc_dsa_far_reads(core, place, count) \
    aotc_dsa_far_run(core, place, count, sizeof *(place), "reads")
#define aotc_dsa_far_writes(core, place, count) \
    aotc_dsa_far_run(core, place, count, sizeof *(place), "writes")

/* Accesses that the simulator refuses end here: the place to read from or write to instead. */
void *aotc_dsa_refused(aotc_dsa_core *core, const void *place, size_t size, const char *verb);
/* The place of an element in DDR that a core reaches by itself, slowly. */
void *aotc_dsa_far(aotc_dsa_core *core, const void *place, size_t size, const char *verb);

/* True if all of an element's bytes have the bits ``want`` among the bits ``mask``. */
static inline int aotc_dsa_is(const aotc_dsa_core *core, size_t at, size_t size, uint8_t mask,
    uint8_t want)
{
    const uint64_t all = UINT64_C(0x0101010101010101) >> (8 * (sizeof(uint64_t) - size));
    uint64_t found = 0;
    memcpy(&found, core->state + at, size);
    return (found & (all * mask)) == all * want;
}

/* Element accesses: aotc_dsa_get_TYPE and _put_TYPE in LB, aotc_dsa_far_get_TYPE and _far_put_TYPE
 * in DDR. */
#define AOTC_DSA_ACCESS(name, type) \
    static inline type aotc_dsa_get_##name(aotc_dsa_core *core, const type *p) \
    { \
        const size_t at = (size_t)((uintptr_t)p - (uintptr_t)core->local); \
        if (at <= AOTC_DSA_LB_BYTES - sizeof *p && at % sizeof *p == 0 \
            && aotc_dsa_is(core, at, sizeof *p, AOTC_DSA_THERE, AOTC_DSA_THERE)) { \
            return *p; \
        } \
        return *(const type *)aotc_dsa_refused(core, p, sizeof *p, "reads"); \
    } \
    static inline void aotc_dsa_put_##name(aotc_dsa_core *core, type *p, type value) \
    { \
        const size_t at = (size_t)((uintptr_t)p - (uintptr_t)core->local); \
        if (at <= AOTC_DSA_LB_BYTES - sizeof *p && at % sizeof *p == 0 \
            && aotc_dsa_is(core, at, sizeof *p, AOTC_DSA_MOVING | AOTC_DSA_FREE, 0)) { \
            memset(core->state + at, AOTC_DSA_THERE, sizeof *p); \
            core->stored += (int64_t)sizeof *p; \
            *p = value; \
            return; \
        } \
        *(type *)aotc_dsa_refused(core, p, sizeof *p, "writes") = value; \
    } \
    static inline type aotc_dsa_far_get_##name(aotc_dsa_core *core, const type *p) \
    { \
        return *(const type *)aotc_dsa_far(core, p, sizeof *p, "reads"); \
    } \
    static inline void aotc_dsa_far_put_##name(aotc_dsa_core *core, type *p, type value) \
    { \
        *(type *)aotc_dsa_far(core, p, sizeof *p, "writes") = value; \
    }

AOTC_DSA_ACCESS(f64, double)
AOTC_DSA_ACCESS(f32, float)
AOTC_DSA_ACCESS(i64, int64_t)
AOTC_DSA_ACCESS(i32, int32_t)
AOTC_DSA_ACCESS(i16, int16_t)
AOTC_DSA_ACCESS(i8, int8_t)
AOTC_DSA_ACCESS(u64, uint64_t)
AOTC_DSA_ACCESS(u32, uint32_t)
AOTC_DSA_ACCESS(u16, uint16_t)
AOTC_DSA_ACCESS(u8, uint8_t)
AOTC_DSA_ACCESS(bool, uint8_t)
AOTC_DSA_ACCESS(f16, uint16_t)

#endif
