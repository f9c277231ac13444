/* aotc_dsa_kept.c: what stays in the simulated accelerator's memories from kernel to kernel:
 * buffers in the LB of cores, and what clusters bring into their GB. */
#include "aotc_dsa_sim.h"

/* ---- what stays in LB ---- */

/* Where a core has what stays in its LB; NULL if it has nothing there. */
static uint8_t *held_of(const aotc_dsa_core *core)
{
    const aotc_dsa_kept *const kept = &core->machine->kept;
    const size_t first = (size_t)(core->cluster * AOTC_DSA_CORES + core->number)
        * kept->held_stride;
    return first + kept->held_stride <= kept->held_bytes ? kept->held + first : NULL;
}

/* A buffer goes over what may have stayed in these bytes of LB. */
void aotc_dsa_written_over(const aotc_dsa_core *core, size_t at, size_t bytes)
{
    uint8_t *const held = held_of(core);
    const size_t stride = core->machine->kept.held_stride;
    if (held != NULL && at < stride) {
        const size_t end = at + bytes < stride ? at + bytes : stride;
        memset(held + core->machine->kept.held_bytes + at, 0, end - at);
    }
}

void *aotc_dsa_held(aotc_dsa_core *core, const char *name, size_t at, size_t bytes)
{
    uint8_t *const held = held_of(core);
    if (aotc_dsa_misplaced(core, name, at, bytes)) {
        return core->local;
    }
    if (held == NULL || at + bytes > core->machine->kept.held_stride) {
        aotc_dsa_refuse(core, "buffer %s has no place that stays in LB of core %d of cluster %d",
            name, core->number, core->cluster);
    } else if (core->held_buffers == AOTC_DSA_HELD || core->buffers == AOTC_DSA_BUFFERS) {
        aotc_dsa_refuse(core, "uses more than %d buffers that stay in LB", AOTC_DSA_HELD);
    } else {
        /* a tag for each place and part, of 254 */
        const uint8_t tag = (uint8_t)(1
            + (at / AOTC_DSA_ALIGNMENT * 31 + (size_t)(core->item / AOTC_DSA_CORES) + bytes) % 254);
        const uint8_t *const tags = held + core->machine->kept.held_bytes;
        core->buffer[core->buffers++] = (aotc_dsa_buffer){name, at, bytes};
        core->held_buffer[core->held_buffers++] = (aotc_dsa_held_buffer){at, bytes, held, tag};
        for (size_t i = at; i < at + bytes; i++) {
            core->state[i] = tags[i] == tag ? AOTC_DSA_THERE : 0;
        }
        memcpy(core->local + at, held + at, bytes);
    }
    return (void *)((uintptr_t)(core->local + at) - (uintptr_t)core->item * bytes);
}

void aotc_dsa_keep_held(const aotc_dsa_core *core)
{
    for (int i = 0; i < core->held_buffers; i++) {
        const aotc_dsa_held_buffer *const b = &core->held_buffer[i];
        uint8_t *const tags = b->from + core->machine->kept.held_bytes;
        memcpy(b->from + b->at, core->local + b->at, b->bytes);
        for (size_t k = b->at; k < b->at + b->bytes; k++) {
            if (core->state[k] & AOTC_DSA_THERE) {
                tags[k] = b->tag;
            }
        }
    }
}

/* ---- what clusters bring ---- */

/* The state of the core's cluster, behind what all have in GB and the tags. */
static aotc_dsa_cluster *cluster_of(const aotc_dsa_core *core)
{
    const aotc_dsa_kept *const kept = &core->machine->kept;
    return (aotc_dsa_cluster *)(void *)(kept->shared + 2 * kept->shared_bytes) + core->cluster;
}

void aotc_dsa_bring(aotc_dsa_core *core, int token, void *shared, const void *far, size_t size,
    int rank, const int64_t *extent, const int64_t *shared_step, const int64_t *far_step)
{
    const int at = aotc_dsa_shared_at(core, shared);
    const int64_t count = extent[0];
    aotc_dsa_trace(core, "bring", token, count * (int64_t)size);
    if (at < 0) {
        aotc_dsa_refuse(core,
            "starts a bring to a place that is in no buffer in GB of its cluster");
        return;
    }
    const aotc_dsa_shared_buffer *const b = &core->shared_buffer[at];
    aotc_dsa_cluster *const cluster = cluster_of(core);
    const size_t bytes = (size_t)count * size;
    const size_t first = (size_t)((uintptr_t)shared - (uintptr_t)b->at);
    if (rank != 1 || shared_step[0] != 1 || far_step[0] != 1 || (uintptr_t)far % size != 0
        || aotc_dsa_in_shared(core->machine, far)) {
        aotc_dsa_refuse(core, "starts a bring of what is no run of elements in DDR");
    } else if (bytes > b->bytes - first) {
        aotc_dsa_refuse(core, "fills byte %zu of %s, of which cluster %d has %zu",
            first + bytes - 1, b->name, core->cluster, b->bytes);
    } else if (cluster->count == AOTC_DSA_BRINGING) {
        aotc_dsa_refuse(core, "starts more than %d copies to GB", AOTC_DSA_BRINGING);
    } else {
        cluster->bringing[cluster->count++] = (aotc_dsa_bringing){token, b->tag, bytes, shared,
            far};
        memset((uint8_t *)shared + core->machine->kept.shared_bytes, AOTC_DSA_COMING, bytes);
    }
}

void aotc_dsa_arrive(aotc_dsa_core *core, int token)
{
    aotc_dsa_cluster *const cluster = cluster_of(core);
    int left = 0;
    aotc_dsa_trace(core, "arrive", token, 0);
    for (int i = 0; i < cluster->count; i++) {
        const aotc_dsa_bringing *const b = &cluster->bringing[i];
        if (b->token == token) {
            memcpy(b->to, b->from, b->bytes);
            memset(b->to + core->machine->kept.shared_bytes, b->tag, b->bytes);
        } else {
            cluster->bringing[left++] = *b;
        }
    }
    cluster->count = left;
}
