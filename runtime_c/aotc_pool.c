/* The built-in thread pool of one bundle.  A copy starts with the lines that set AOTC_NAME and
 * AOTC_HEADER.  Build option: AOTC_NO_THREADS (no threads: every pool has one worker).
 *
 * Threads are made once.  They look for work for a few microseconds after each job and then
 * sleep.  Every worker has a share of a job's items, the same part of every job: what a kernel left
 * in the cache of one core is read there by the next.  It takes its share in chunks, large ones
 * first and single items last, and then chunks from the end of others' shares, so that all end at
 * nearly the same time.  The caller works too and waits only for workers that have joined, so a
 * thread the system has not woken yet costs nothing.  Items are independent, so who runs which does
 * not change a bit of the result.  In a child of fork, which has no threads, the caller does all
 * of the work. */
#include "aotc_os.h"

#include AOTC_HEADER

#if defined(__wasm__) && !defined(_REENTRANT) && !defined(AOTC_NO_THREADS)
#define AOTC_NO_THREADS /* there are none but with -pthread */
#endif

#include <string.h>

#if defined(AOTC_NO_THREADS)

static aotc_status serial_for(void *self, aotc_task fn, void *frame, int64_t n)
{
    (void)self;
    fn(frame, 0, n, 0);
    return AOTC_OK;
}

aotc_status AOTC_NAME(pool_create)(aotc_pool *pool, int threads)
{
    if (pool == NULL) {
        return AOTC_NULL_POINTER;
    }
    (void)threads;
    pool->workers = 1;
    pool->parallel_for = serial_for;
    pool->self = NULL;
    return AOTC_OK;
}

void AOTC_NAME(pool_destroy)(aotc_pool *pool)
{
    if (pool != NULL) {
        memset(pool, 0, sizeof *pool);
    }
}

#else

#include "aotc_clock.h"
#include "aotc_threads.h"

#include <stdatomic.h>

enum { SPIN_NANOSECONDS = 30000, MAX_THREADS = 1024 };
#define GATE_OPEN 0x80000000u
#define MAX_UNITS 0x7fffffff

struct threads;

/* Number 0 is the caller. */
typedef struct worker {
    _Alignas(AOTC_ALIGNMENT) atomic_ullong share; /* units nobody has taken: end << 32 | begin */
    struct threads *pool;
    aotc_thread thread;
    int index;
} worker;

/* What is written often by different threads has a cache line of its own. */
typedef struct threads {
    _Alignas(AOTC_ALIGNMENT) atomic_uint epoch; /* counts jobs */
    _Alignas(AOTC_ALIGNMENT) atomic_uint gate;  /* GATE_OPEN while joinable, plus who is in */
    _Alignas(AOTC_ALIGNMENT) aotc_task fn;      /* the job: written while nobody is in */
    void *frame;
    int64_t items;
    int64_t unit; /* items that are taken together: 1, or more if 32 bits do not count them */
    _Alignas(AOTC_ALIGNMENT) atomic_int sleepers;
    atomic_int waiting;
    atomic_int stop;
    atomic_flag busy;
    int64_t spin_nanoseconds;
    aotc_process process; /* that has made the threads */
    aotc_lock lock;
    aotc_condition wake;
    aotc_condition done;
    int count; /* threads made so far, without the caller */
    worker *workers; /* count + 1 */
} threads;

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Looks at a word until it has (equal) or has not (!equal) the value; 0 if time ran out. */
static int spin(atomic_uint *word, unsigned value, int equal, int64_t limit)
{
    const int64_t start = limit > 0 ? aotc_nanoseconds() : 0;
    do {
        for (int i = 0; i < 32; i++) {
            if ((atomic_load(word) == value) == equal) {
                return 1;
            }
            relax();
        }
    } while (limit > 0 && aotc_nanoseconds() - start < limit);
    return 0;
}

static unsigned long long packed(unsigned long long begin, unsigned long long end)
{
    return end << 32 | begin;
}

/* Every worker's part of the job, in order. */
static void set_shares(threads *p)
{
    const int64_t units = (p->items + p->unit - 1) / p->unit;
    const int64_t workers = p->count + 1;
    for (int64_t i = 0; i < workers; i++) {
        atomic_store(&p->workers[i].share, packed((unsigned long long)(units * i / workers),
                                                  (unsigned long long)(units * (i + 1) / workers)));
    }
}

/* Half of what a share holds, at least one unit, from its start or (a thief) its end, and run it;
 * 0 if there is nothing left. */
static int run_half(threads *p, int owner, int index)
{
    atomic_ullong *const share = &p->workers[owner].share;
    unsigned long long left = atomic_load(share), begin, end, rest;
    do {
        begin = left & 0xffffffffu;
        end = left >> 32;
        if (begin == end) {
            return 0;
        }
        const unsigned long long half = (end - begin + 1) / 2;
        if (owner == index) {
            rest = packed(begin + half, end);
            end = begin + half;
        } else {
            rest = packed(begin, end - half);
            begin = end - half;
        }
    } while (!atomic_compare_exchange_weak(share, &left, rest));
    const int64_t first = (int64_t)begin * p->unit, last = (int64_t)end * p->unit;
    p->fn(p->frame, first, last < p->items ? last : p->items, index);
    return 1;
}

/* The own share, then what others have left. */
static void take_chunks(threads *p, int index)
{
    int owner = index;
    do {
        while (run_half(p, owner, index)) {
        }
        owner = owner < p->count ? owner + 1 : 0;
    } while (owner != index);
}

/* Sleep until there is a newer job than the one seen.  sleepers is raised before the epoch is
 * read again, and the caller raises the epoch before it reads sleepers: one of them notices. */
static unsigned await_job(threads *p, unsigned seen)
{
    if (!spin(&p->epoch, seen, 0, p->spin_nanoseconds)) {
        aotc_lock_take(&p->lock);
        atomic_fetch_add(&p->sleepers, 1);
        while (atomic_load(&p->epoch) == seen) {
            aotc_condition_wait(&p->wake, &p->lock);
        }
        atomic_fetch_sub(&p->sleepers, 1);
        aotc_lock_give(&p->lock);
    }
    return atomic_load(&p->epoch);
}

static int join_job(threads *p)
{
    unsigned gate = atomic_load(&p->gate);
    while ((gate & GATE_OPEN) != 0) {
        if (atomic_compare_exchange_weak(&p->gate, &gate, gate + 1)) {
            return 1;
        }
    }
    return 0;
}

static void leave_job(threads *p)
{
    if (atomic_fetch_sub(&p->gate, 1) == 1 && atomic_load(&p->waiting) != 0) {
        aotc_lock_take(&p->lock);
        aotc_condition_wake(&p->done);
        aotc_lock_give(&p->lock);
    }
}

AOTC_THREAD_MAIN(worker_main, argument)
{
    worker *w = argument;
    threads *p = w->pool;
    unsigned seen = 0;
    for (;;) {
        seen = await_job(p, seen);
        if (atomic_load(&p->stop) != 0) {
            return 0;
        }
        if (join_job(p)) {
            take_chunks(p, w->index);
            leave_job(p);
        }
    }
}

/* A child of fork has the memory of the threads, but none of them: whoever slept or held the lock
 * there never answers, so that neither may be touched. */
static int forked(const threads *p)
{
    return aotc_this_process() != p->process;
}

static void wake_all(threads *p)
{
    atomic_fetch_add(&p->epoch, 1);
    if (atomic_load(&p->sleepers) > 0) {
        if (forked(p)) {
            atomic_store(&p->sleepers, 0);
            return;
        }
        aotc_lock_take(&p->lock);
        aotc_condition_wake_all(&p->wake);
        aotc_lock_give(&p->lock);
    }
}

static void await_workers(threads *p)
{
    atomic_fetch_and(&p->gate, ~GATE_OPEN);
    if (!spin(&p->gate, 0, 1, p->spin_nanoseconds)) {
        aotc_lock_take(&p->lock);
        atomic_store(&p->waiting, 1);
        while (atomic_load(&p->gate) != 0) {
            aotc_condition_wait(&p->done, &p->lock);
        }
        atomic_store(&p->waiting, 0);
        aotc_lock_give(&p->lock);
    }
}

/* A caller that finds the pool busy (another context, or a call from inside a job) does its work
 * itself: no waiting, no deadlock, the same result. */
static aotc_status threads_for(void *self, aotc_task fn, void *frame, int64_t n)
{
    threads *p = self;
    if (atomic_flag_test_and_set(&p->busy)) {
        fn(frame, 0, n, 0);
        return AOTC_OK;
    }
    p->fn = fn;
    p->frame = frame;
    p->items = n;
    p->unit = n / MAX_UNITS + 1;
    set_shares(p);
    atomic_store(&p->gate, GATE_OPEN);
    wake_all(p);
    take_chunks(p, 0);
    await_workers(p);
    atomic_flag_clear(&p->busy);
    return AOTC_OK;
}

static void destroy(threads *p)
{
    if (!forked(p)) {
        atomic_store(&p->stop, 1);
        wake_all(p);
        for (int i = 1; i <= p->count; i++) {
            aotc_thread_join(p->workers[i].thread);
        }
        aotc_condition_end(&p->done);
        aotc_condition_end(&p->wake);
        aotc_lock_end(&p->lock);
    }
    aotc_free(p->workers);
    aotc_free(p);
}

static int start_threads(threads *p, int wanted)
{
    for (int i = 1; i <= wanted; i++) {
        worker *w = &p->workers[i];
        w->pool = p;
        w->index = i;
        if (!aotc_thread_start(&w->thread, worker_main, w)) {
            return 0;
        }
        p->count = i;
    }
    return 1;
}

aotc_status AOTC_NAME(pool_create)(aotc_pool *pool, int threads_wanted)
{
    const long cpus = aotc_processors();
    if (pool == NULL) {
        return AOTC_NULL_POINTER;
    }
    memset(pool, 0, sizeof *pool);
    if (threads_wanted <= 0) {
        threads_wanted = cpus > 0 && cpus < MAX_THREADS ? (int)cpus : 1;
    }
    if (threads_wanted > MAX_THREADS) {
        return AOTC_POOL_REFUSED;
    }
    threads *p = aotc_allocate(sizeof *p);
    if (p == NULL) {
        return AOTC_OUT_OF_MEMORY;
    }
    memset(p, 0, sizeof *p);
    p->workers = aotc_allocate((size_t)threads_wanted * sizeof(worker));
    if (p->workers == NULL) {
        aotc_free(p);
        return AOTC_OUT_OF_MEMORY;
    }
    atomic_flag_clear(&p->busy);
    p->process = aotc_this_process();
    /* with more threads than processors, looking for work keeps others from doing it */
    p->spin_nanoseconds = threads_wanted > cpus ? 0 : SPIN_NANOSECONDS;
    if (!aotc_lock_make(&p->lock) || !aotc_condition_make(&p->wake) ||
        !aotc_condition_make(&p->done)) {
        aotc_free(p->workers);
        aotc_free(p);
        return AOTC_POOL_REFUSED;
    }
    if (!start_threads(p, threads_wanted - 1)) {
        destroy(p);
        return AOTC_POOL_REFUSED;
    }
    pool->workers = threads_wanted;
    pool->parallel_for = threads_for;
    pool->self = p;
    return AOTC_OK;
}

void AOTC_NAME(pool_destroy)(aotc_pool *pool)
{
    if (pool != NULL) {
        if (pool->self != NULL) {
            destroy(pool->self);
        }
        memset(pool, 0, sizeof *pool);
    }
}

#endif
