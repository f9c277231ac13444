/* aotc_dsa_sim.c: functional simulator of the accelerator behind aotc_dsa.h.
 *
 * Cores take turns, each work item from its start to its end, so that a run is deterministic.  A
 * transfer is made when it is waited for: until then its target cannot be read.  Every byte of LB
 * remembers whether it is there. */
#include "aotc_dsa_sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

aotc_dsa *aotc_dsa_open(void *memory, aotc_dsa_kept kept)
{
    aotc_dsa *const machine = memory;
    machine->kept = kept;
    machine->refusal[0] = '\0';
    memset(machine->nothing, 0, sizeof machine->nothing);
    return machine;
}

aotc_dsa_core *aotc_dsa_begin(aotc_dsa *machine, const char *kernel, int64_t item, int64_t items,
    int clusters)
{
    aotc_dsa_core *const core = &machine->core;
    core->machine = machine;
    core->cluster = (int)(item * clusters / items);
    const int64_t first = (core->cluster * items + clusters - 1) / clusters;
    core->number = (int)((item - first) % AOTC_DSA_CORES);
    core->item = item;
    core->kernel = kernel;
    const int flat = core->cluster * AOTC_DSA_CORES + core->number;
    core->local = machine->local[flat];
    core->state = machine->state[flat];
    core->buffers = 0;
    core->shared_buffers = 0;
    core->held_buffers = 0;
    core->transfers = 0;
    core->stored = 0;
    memset(core->state, AOTC_DSA_FREE, AOTC_DSA_LB_BYTES);
    return core;
}

/* ---- the trace ---- */

void aotc_dsa_trace(const aotc_dsa_core *core, const char *what, int token, int64_t bytes)
{
    const char *const name = getenv("AOTC_DSA_TRACE");
    FILE *const file = name == NULL ? NULL : fopen(name, "a");
    if (file != NULL) {
        fprintf(file, "%s %lld %d %d %s %d %lld\n", core->kernel, (long long)core->item,
            core->cluster, core->number, what, token, (long long)bytes);
        fclose(file);
    }
}

/* ---- refusals ---- */

void aotc_dsa_refuse(aotc_dsa_core *core, const char *format, ...)
{
    char *const text = core->machine->refusal;
    if (text[0] != '\0') {
        return;
    }
    const int used = snprintf(text, AOTC_DSA_TEXT, "%s, work item %lld on core %d of cluster %d: ",
        core->kernel, (long long)core->item, core->number, core->cluster);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, (size_t)(AOTC_DSA_TEXT - used), format, args);
    va_end(args);
}

/* The buffer with a byte of the core's LB; NULL if there is none. */
static const aotc_dsa_buffer *buffer_at(const aotc_dsa_core *core, size_t at)
{
    for (int i = core->buffers - 1; i >= 0; i--) {
        if (at >= core->buffer[i].at && at - core->buffer[i].at < core->buffer[i].bytes) {
            return &core->buffer[i];
        }
    }
    return NULL;
}

void aotc_dsa_refuse_state(aotc_dsa_core *core, size_t at, uint8_t state, const char *verb)
{
    const aotc_dsa_buffer *const b = buffer_at(core, at);
    const char *const why = state & AOTC_DSA_FREE ? "which is free"
        : state & AOTC_DSA_MOVING ? "before the wait for its DMA" : "which was never written";
    aotc_dsa_refuse(core, "%s byte %zu of %s, %s", verb, b == NULL ? at : at - b->at,
        b == NULL ? "LB" : b->name, why);
}

int aotc_dsa_outside(aotc_dsa_core *core, const void *place, size_t size, const char *verb)
{
    const uintptr_t at = (uintptr_t)place - (uintptr_t)core->local;
    const uintptr_t all = (uintptr_t)place - (uintptr_t)core->machine->local;
    if (at < AOTC_DSA_LB_BYTES && at + size <= AOTC_DSA_LB_BYTES) {
        if (at % size != 0) {
            aotc_dsa_refuse(core, "%s %zu bytes at byte %zu of LB, which is unaligned", verb, size,
                (size_t)at);
        }
        return at % size != 0;
    }
    if (all < sizeof core->machine->local && at != AOTC_DSA_LB_BYTES) {
        const int other = (int)(all / AOTC_DSA_LB_BYTES);
        aotc_dsa_refuse(core, "%s byte %zu of the LB of core %d of cluster %d", verb,
            (size_t)(all % AOTC_DSA_LB_BYTES), other % AOTC_DSA_CORES, other / AOTC_DSA_CORES);
    } else {
        aotc_dsa_refuse(core, "%s byte %lld of LB, which has %d", verb, (long long)(intptr_t)at,
            AOTC_DSA_LB_BYTES);
    }
    return 1;
}

void *aotc_dsa_refused(aotc_dsa_core *core, const void *place, size_t size, const char *verb)
{
    if (!aotc_dsa_outside(core, place, size, verb)) {
        const size_t at = (size_t)((uintptr_t)place - (uintptr_t)core->local);
        const int reads = verb[0] == 'r';
        for (size_t i = at; i < at + size; i++) {
            const uint8_t s = core->state[i];
            if (reads ? !(s & AOTC_DSA_THERE) : (s & (AOTC_DSA_MOVING | AOTC_DSA_FREE)) != 0) {
                aotc_dsa_refuse_state(core, i, s, verb);
                break;
            }
        }
    }
    memset(core->machine->nothing, 0, sizeof core->machine->nothing);
    return core->machine->nothing;
}

/* True for an address in the GB of any cluster. */
int aotc_dsa_in_shared(const aotc_dsa *machine, const void *place)
{
    return (uintptr_t)place - (uintptr_t)machine->kept.shared < machine->kept.shared_bytes;
}

void *aotc_dsa_far(aotc_dsa_core *core, const void *place, size_t size, const char *verb)
{
    if (aotc_dsa_in_shared(core->machine, place)) {
        aotc_dsa_refuse(core, "%s DDR at a place that is in GB", verb);
        return core->machine->nothing;
    }
    const uintptr_t all = (uintptr_t)place - (uintptr_t)core->machine->local;
    if (all < sizeof core->machine->local || (uintptr_t)place % size != 0) {
        aotc_dsa_refuse(core, "%s DDR at a place that is %s", verb,
            all < sizeof core->machine->local ? "in LB" : "unaligned");
        return core->machine->nothing;
    }
    return (void *)(uintptr_t)place;
}

/* ---- buffers ---- */

/* True, and a refusal, for a buffer that cannot be in LB. */
int aotc_dsa_misplaced(aotc_dsa_core *core, const char *name, size_t at, size_t bytes)
{
    const int wrong = at % AOTC_DSA_ALIGNMENT != 0;
    const int beyond = at > AOTC_DSA_LB_BYTES || bytes > AOTC_DSA_LB_BYTES - at;
    if (wrong) {
        aotc_dsa_refuse(core, "buffer %s begins at byte %zu of LB, which is unaligned", name, at);
    } else if (beyond) {
        aotc_dsa_refuse(core, "buffer %s ends at byte %zu of LB, which has %d", name, at + bytes,
            AOTC_DSA_LB_BYTES);
    }
    return wrong || beyond;
}

void *aotc_dsa_local(aotc_dsa_core *core, const char *name, size_t at, size_t bytes)
{
    if (!aotc_dsa_misplaced(core, name, at, bytes)) {
        memset(core->state + at, 0, bytes);
        aotc_dsa_written_over(core, at, bytes);
    }
    if (core->buffers < AOTC_DSA_BUFFERS) {
        core->buffer[core->buffers++] = (aotc_dsa_buffer){name, at, bytes};
    }
    return core->local + at;
}

void *aotc_dsa_shared(aotc_dsa_core *core, const char *name, const void *first, int parts,
    size_t bytes)
{
    const aotc_dsa *const machine = core->machine;
    const size_t at = (size_t)((uintptr_t)first - (uintptr_t)machine->kept.shared);
    const size_t before_it = (size_t)core->cluster * machine->kept.shared_stride;
    uint8_t *const own = machine->kept.shared + before_it + at;
    if (core->cluster >= abs(parts)) {
        aotc_dsa_refuse(core, "buffer %s has no part in GB of cluster %d", name, core->cluster);
    } else if (at % AOTC_DSA_ALIGNMENT != 0) {
        aotc_dsa_refuse(core, "buffer %s begins at byte %zu of GB, which is unaligned", name, at);
    } else if (at > AOTC_DSA_GB_BYTES || bytes > AOTC_DSA_GB_BYTES - at) {
        aotc_dsa_refuse(core, "buffer %s ends at byte %zu of GB, which has %d", name, at + bytes,
            AOTC_DSA_GB_BYTES);
    } else if (at > machine->kept.shared_stride || bytes > machine->kept.shared_stride - at) {
        aotc_dsa_refuse(core, "buffer %s ends at byte %zu of %zu that the model has of GB", name,
            at + bytes,
            machine->kept.shared_stride);
    } else if (core->shared_buffers == AOTC_DSA_SHARED) {
        aotc_dsa_refuse(core, "uses more than %d buffers in GB", AOTC_DSA_SHARED);
    } else {
        /* a tag for each place, of 254 */
        core->shared_buffer[core->shared_buffers++] = (aotc_dsa_shared_buffer){name, own, bytes,
            (uint8_t)(1 + (at / AOTC_DSA_ALIGNMENT * 31 + bytes) % 254), 0, 0};
    }
    const size_t before = parts > 0 ? (size_t)core->cluster : 0; /* parts in front of its own */
    return (void *)((uintptr_t)own - before * bytes);
}

void *aotc_dsa_ring(aotc_dsa_core *core, const void *first, size_t at)
{
    const int found = aotc_dsa_shared_at(core, first);
    if (found < 0) {
        aotc_dsa_refuse(core, "has no ring there in GB");
        return (void *)(uintptr_t)first;
    }
    aotc_dsa_shared_buffer *const b = &core->shared_buffer[found];
    if (!b->ring) {
        b->ring = 1;
        b->first = b->tag;
    }
    b->tag = (uint8_t)(1 + ((size_t)b->first - 1 + at / b->bytes) % 254);
    return b->at + at % b->bytes;
}

void aotc_dsa_end(aotc_dsa_core *core)
{
    if (core->transfers > 0) {
        aotc_dsa_refuse(core, "ends before the wait for token %d", core->transfer[0].token);
    }
    aotc_dsa_keep_held(core);
    memset(core->state, AOTC_DSA_FREE, AOTC_DSA_LB_BYTES);
}

/* ---- transfers ---- */

/* Change the states of one run of a transfer's elements in LB.  A target may be written, a source
 * must be there. */
static int claim(aotc_dsa_core *core, const uint8_t *place, size_t bytes, int store)
{
    const size_t at = (size_t)(place - core->local);
    for (size_t i = at; i < at + bytes; i++) {
        const uint8_t s = core->state[i];
        if (store ? !(s & AOTC_DSA_THERE) : (s & (AOTC_DSA_MOVING | AOTC_DSA_FREE)) != 0) {
            aotc_dsa_refuse_state(core, i, s, store ? "sends" : "fills");
            return 0;
        }
        core->state[i] = (uint8_t)(AOTC_DSA_MOVING | (store ? AOTC_DSA_THERE : 0));
    }
    return 1;
}

/* Ask whether a transfer may reach one run of its elements in GB: inside its buffer and, where they
 * are read, written there. */
static int reaches(aotc_dsa_core *core, const aotc_dsa_transfer *t, const uint8_t *place,
    size_t bytes)
{
    const aotc_dsa_shared_buffer *const b = &core->shared_buffer[t->shared];
    const size_t at = (size_t)((uintptr_t)place - (uintptr_t)b->at);
    if (at > b->bytes || bytes > b->bytes - at) {
        aotc_dsa_refuse(core, "%s byte %lld of %s, of which cluster %d has %zu",
            t->store ? "fills" : "sends", (long long)(intptr_t)at, b->name, core->cluster,
            b->bytes);
        return 0;
    }
    for (size_t i = 0; !t->store && i < bytes; i++) {
        const uint8_t tag = place[core->machine->kept.shared_bytes + i];
        if (tag != t->tag) {
            aotc_dsa_refuse(core, "sends byte %zu of %s, %s", at + i, b->name,
                tag == 0 ? "which was never written"
                    : tag == AOTC_DSA_COMING ? "before the wait for its DMA"
                    : b->ring ? "where another part of it, or another buffer, is by now"
                    : "where another buffer is by now");
            return 0;
        }
    }
    for (size_t i = 0; t->store && i < bytes; i++) {
        if (place[core->machine->kept.shared_bytes + i] == AOTC_DSA_COMING) {
            aotc_dsa_refuse(core, "fills byte %zu of %s, before the wait for the DMA to it", at + i,
                b->name);
            return 0;
        }
    }
    return 1;
}

/* Go through the runs of a transfer, elements side by side on both ends: claim them (``made`` 0) or
 * copy them. */
static void each(aotc_dsa_core *core, const aotc_dsa_transfer *t, int made)
{
    int64_t at[AOTC_DSA_RANK] = {0};
    const int last = t->rank - 1;
    const int runs = t->local_step[last] == 1 && t->far_step[last] == 1;
    const size_t size = t->size;
    const size_t bytes = runs ? size * (size_t)t->extent[last] : size;
    for (int d = 0; d < t->rank; d++) {
        if (t->extent[d] <= 0) {
            return;
        }
    }
    for (;;) {
        uint8_t *local = t->local;
        uint8_t *far = t->far;
        for (int d = 0; d < t->rank; d++) {
            local += at[d] * t->local_step[d] * (int64_t)size;
            far += at[d] * t->far_step[d] * (int64_t)size;
        }
        if (made) {
            memcpy(t->store ? far : local, t->store ? local : far, bytes);
            memset(core->state + (local - core->local), AOTC_DSA_THERE, bytes);
            if (t->shared >= 0 && t->store) {
                memset(far + core->machine->kept.shared_bytes, t->tag, bytes);
            }
        } else if (aotc_dsa_outside(core, local, size, t->store ? "sends" : "fills")
            || aotc_dsa_outside(core, local + bytes - size, size, t->store ? "sends" : "fills")
            || !claim(core, local, bytes, t->store)
            || (t->shared >= 0 && !reaches(core, t, far, bytes))) {
            return;
        }
        int d = runs ? last - 1 : last;
        while (d >= 0 && ++at[d] == t->extent[d]) {
            at[d--] = 0;
        }
        if (d < 0) {
            return;
        }
    }
}

/* Which buffer in GB has an address; -1 if none has. */
int aotc_dsa_shared_at(const aotc_dsa_core *core, const void *place)
{
    for (int i = 0; i < core->shared_buffers; i++) {
        const aotc_dsa_shared_buffer *const b = &core->shared_buffer[i];
        if ((uintptr_t)place - (uintptr_t)b->at < b->bytes) {
            return i;
        }
    }
    return -1;
}

static void start(aotc_dsa_core *core, const char *engine, int token, int store, void *local,
    void *far, size_t size, int rank, const int64_t *extent, const int64_t *local_step,
    const int64_t *far_step)
{
    const int inside = engine[0] == 'f' || engine[0] == 'k'; /* GB is at the other end */
    const int shared = inside ? aotc_dsa_shared_at(core, far) : -1;
    if (inside ? shared < 0 : aotc_dsa_in_shared(core->machine, far)) {
        aotc_dsa_refuse(core,
            inside ? "starts a %s at a place that is in no buffer in GB of its cluster"
            : "starts a %s at a place that is in GB", engine);
        return;
    }
    if (core->transfers == AOTC_DSA_TRANSFERS) {
        aotc_dsa_refuse(core, "starts more than %d transfers", AOTC_DSA_TRANSFERS);
        return;
    }
    if (rank < 1 || rank > AOTC_DSA_RANK || (uintptr_t)far % size != 0) {
        aotc_dsa_refuse(core, "starts a transfer of %d dimensions at an address in %s that is %s",
            rank,
            inside ? "GB" : "DDR",
            (uintptr_t)far % size != 0 ? "unaligned" : "aligned");
        return;
    }
    aotc_dsa_transfer *const t = &core->transfer[core->transfers++];
    const uint8_t tag = shared < 0 ? 0 : core->shared_buffer[shared].tag;
    *t = (aotc_dsa_transfer){token, store, shared, tag, rank, size, local, far, {0}, {0}, {0}};
    int64_t bytes = (int64_t)size;
    for (int d = 0; d < rank; d++) {
        bytes *= extent[d] > 0 ? extent[d] : 0;
        t->extent[d] = extent[d];
        t->local_step[d] = local_step[d];
        t->far_step[d] = far_step[d];
    }
    aotc_dsa_trace(core, engine, token, bytes);
    each(core, t, 0);
}

void aotc_dsa_load(aotc_dsa_core *core, int token, void *local, const void *far, size_t size,
    int rank, const int64_t *extent, const int64_t *local_step, const int64_t *far_step)
{
    start(core, "load", token, 0, local, (void *)(uintptr_t)far, size, rank, extent, local_step,
        far_step);
}

void aotc_dsa_store(aotc_dsa_core *core, int token, void *far, const void *local, size_t size,
    int rank, const int64_t *extent, const int64_t *far_step, const int64_t *local_step)
{
    start(core, "store", token, 1, (void *)(uintptr_t)local, far, size, rank, extent, local_step,
        far_step);
}

void aotc_dsa_fetch(aotc_dsa_core *core, int token, void *local, const void *shared, size_t size,
    int rank, const int64_t *extent, const int64_t *local_step, const int64_t *shared_step)
{
    start(core, "fetch", token, 0, local, (void *)(uintptr_t)shared, size, rank, extent, local_step,
        shared_step);
}

void aotc_dsa_keep(aotc_dsa_core *core, int token, void *shared, const void *local, size_t size,
    int rank, const int64_t *extent, const int64_t *shared_step, const int64_t *local_step)
{
    start(core, "keep", token, 1, (void *)(uintptr_t)local, shared, size, rank, extent, local_step,
        shared_step);
}

void aotc_dsa_wait(aotc_dsa_core *core, int token)
{
    int left = 0;
    aotc_dsa_trace(core, "wait", token, 0);
    for (int i = 0; i < core->transfers; i++) {
        if (core->transfer[i].token != token) {
            core->transfer[left++] = core->transfer[i];
        } else if (core->machine->refusal[0] == '\0') {
            each(core, &core->transfer[i], 1);
        }
    }
    core->transfers = left;
}
