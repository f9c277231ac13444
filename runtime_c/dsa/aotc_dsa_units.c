/* aotc_dsa_units.c: the units of a simulated core, behind aotc_dsa.h: runs of neighbours that
 * vectors load and store, and the matrix engine.  Each access asks for the state of its bytes. */
#include "aotc_dsa_sim.h"
#include "aotc_num.h"

/* True if the bytes of a run of elements in a core's LB have the bits ``want`` among ``mask``; else
 * the access is refused. */
static int run_of(aotc_dsa_core *core, const void *place, int64_t count, size_t size, uint8_t mask,
    uint8_t want, const char *verb)
{
    const size_t bytes = (size_t)count * size;
    const size_t at = (size_t)((uintptr_t)place - (uintptr_t)core->local);
    const uint8_t *const state = core->state;
    if (aotc_dsa_outside(core, place, size, verb)
        || aotc_dsa_outside(core, (const uint8_t *)place + bytes - size, size, verb)) {
        return 0;
    }
    uint8_t wrong = 0;
    for (size_t i = at; i < at + bytes; i++) {
        wrong |= (uint8_t)((state[i] & mask) ^ want);
    }
    for (size_t i = at; wrong != 0 && i < at + bytes; i++) {
        if ((state[i] & mask) != want) {
            aotc_dsa_refuse_state(core, i, state[i], verb);
            return 0;
        }
    }
    return 1;
}

/* True if a core may read a run of elements of its LB; else it is refused. */
static int readable(aotc_dsa_core *core, const void *place, int64_t count, size_t size,
    const char *verb)
{
    return run_of(core, place, count, size, AOTC_DSA_THERE, AOTC_DSA_THERE, verb);
}

const void *aotc_dsa_loads(aotc_dsa_core *core, const void *place, int64_t count, size_t size)
{
    if (count <= 0 || readable(core, place, count, size, "reads")) {
        return place;
    }
    memset(core->machine->nothing, 0, sizeof core->machine->nothing);
    return core->machine->nothing;
}

void *aotc_dsa_stores(aotc_dsa_core *core, void *place, int64_t count, size_t size)
{
    if (count <= 0) {
        return place;
    }
    if (!run_of(core, place, count, size, AOTC_DSA_MOVING | AOTC_DSA_FREE, 0, "writes")) {
        return core->machine->nothing;
    }
    memset(core->state + ((uintptr_t)place - (uintptr_t)core->local), AOTC_DSA_THERE,
        (size_t)count * size);
    core->stored += count * (int64_t)size;
    return place;
}

void *aotc_dsa_far_run(aotc_dsa_core *core, const void *place, int64_t count, size_t size,
    const char *verb)
{
    void *const first = aotc_dsa_far(core, place, size, verb);
    return first == place && count > 1
            && aotc_dsa_far(core, (const uint8_t *)place + (size_t)(count - 1) * size, size, verb)
                == core->machine->nothing
        ? core->machine->nothing
        : first;
}

/* The value of an element of f32 or f16. */
static float widened(const uint8_t *place, size_t size)
{
    float x;
    uint16_t bits;
    if (size == sizeof x) {
        memcpy(&x, place, sizeof x);
        return x;
    }
    memcpy(&bits, place, sizeof bits);
    return aotc_f16_to_f32(bits);
}

/* True if the engine may read a product's operands in one tap. */
static int operands(aotc_dsa_core *core, const aotc_dsa_product *p, const void *const *a,
    const uint8_t *b, int64_t columns)
{
    const int64_t apart = p->a_step == 1 ? 1 : p->steps; /* runs of a row */
    for (int i = 0; i < p->summed; i++) {
        if (a[i] == NULL || (i > 0 && a[i] == a[i - 1])) {
            continue;
        }
        for (int64_t r = 0; r < apart; r++) {
            const uint8_t *const at = (const uint8_t *)a[i]
                + (p->first + r * p->a_step) * (int64_t)p->a_size;
            if (!readable(core, at, apart == 1 ? p->steps : 1, p->a_size, "multiplies")) {
                return 0;
            }
        }
    }
    for (int64_t k = 0; k < p->steps; k++) {
        if (!readable(core, b + k * p->b_step * (int64_t)p->b_size, columns, p->b_size,
                "multiplies")) {
            return 0;
        }
    }
    return 1;
}

enum { DEPTH = 256 }; /* steps of the sum whose columns the simulator keeps side by side */

/* Add the products of some steps of one tap. */
static void multiplied(const aotc_dsa_product *p, const void *const *a, int64_t first,
    int64_t steps, float columns[DEPTH][AOTC_DSA_COLUMNS], int64_t width, float *acc)
{
    for (int i = 0; i < p->summed; i++) {
        float sums[AOTC_DSA_COLUMNS] = {0};
        memcpy(sums, acc + i * p->columns, (size_t)width * sizeof *sums);
        for (int64_t k = 0; k < steps; k++) {
            const int64_t at = p->first + (first + k) * p->a_step;
            const float x = a[i] == NULL ? 0.0f
                : widened((const uint8_t *)a[i] + at * (int64_t)p->a_size, p->a_size);
            for (int j = 0; j < AOTC_DSA_COLUMNS; j++) {
                sums[j] += x * columns[k][j];
            }
        }
        memcpy(acc + i * p->columns, sums, (size_t)width * sizeof *sums);
    }
}

void aotc_dsa_computed(aotc_dsa_core *core)
{
    aotc_dsa_trace(core, "compute", 0, core->stored);
    core->stored = 0;
}

void aotc_dsa_multiply(aotc_dsa_core *core, const aotc_dsa_product *p, const void *const *a,
    const void *b, float *acc)
{
    const int64_t width = p->left < p->columns ? p->left : p->columns;
    float columns[DEPTH][AOTC_DSA_COLUMNS];
    if (p->summed > AOTC_DSA_ROWS || p->columns > AOTC_DSA_COLUMNS || p->summed > p->rows
        || width <= 0) {
        aotc_dsa_refuse(core, "multiplies %d rows by %d columns; the engine has %d by %d",
            p->summed, p->columns, AOTC_DSA_ROWS, AOTC_DSA_COLUMNS);
        return;
    }
    aotc_dsa_trace(core, "matrix", 0, p->taps * p->steps
            * ((int64_t)p->a_size * p->summed + (int64_t)p->b_size * width));
    for (int64_t tap = 0; tap < p->taps; tap++, a += p->rows) {
        const uint8_t *const here = (const uint8_t *)b + tap * p->b_tap * (int64_t)p->b_size;
        if (!operands(core, p, a, here, width)) {
            return;
        }
        for (int64_t first = 0; first < p->steps; first += DEPTH) {
            const int64_t steps = p->steps - first < DEPTH ? p->steps - first : DEPTH;
            for (int64_t k = 0; k < steps; k++) {
                const uint8_t *const row = here + (first + k) * p->b_step * (int64_t)p->b_size;
                for (int64_t j = 0; j < AOTC_DSA_COLUMNS; j++) {
                    columns[k][j] = j < width ? widened(row + j * (int64_t)p->b_size, p->b_size)
                                              : 0.0f;
                }
            }
            multiplied(p, a, first, steps, columns, width, acc);
        }
    }
}
