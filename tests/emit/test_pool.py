"""The built-in pool: every item runs exactly once, for any number of items and workers."""

import subprocess

import pytest

COUNT = r"""
#include "lookup.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNTED = 5000 };
typedef struct job {
    atomic_int seen[COUNTED], inside[8];
    atomic_llong items, calls, wrong;
    int64_t n;
} job;

static void count(void *frame, int64_t begin, int64_t end, int worker)
{
    job *j = frame;
    /* no two calls at the same time have the same worker; ranges lie inside */
    const int free = atomic_fetch_add(&j->inside[worker], 1) == 0;
    atomic_fetch_add(&j->wrong, !free || begin < 0 || begin >= end || end > j->n);
    atomic_fetch_add(&j->items, end - begin);
    atomic_fetch_add(&j->calls, 1);
    for (int64_t i = begin; i < end && i < COUNTED; i++) {
        atomic_fetch_add(&j->seen[i], 1);
    }
    atomic_fetch_sub(&j->inside[worker], 1);
}
"""

MAIN = COUNT + r"""
int main(int argc, char **argv)
{
    const int64_t sizes[] = {2, 3, 5, 7, 64, 1000, 4999, INT64_C(2147483647),
                             INT64_C(2147483648), INT64_C(1) << 33, INT64_C(1000000000000007)};
    aotc_pool pool;
    if (argc != 2 || lookup_pool_create(&pool, atoi(argv[1])) != AOTC_OK) {
        return 1;
    }
    static job j;
    for (int round = 0; round < 300; round++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const int64_t n = sizes[s];
            atomic_store(&j.items, 0);
            atomic_store(&j.calls, 0);
            j.n = n;
            for (int i = 0; i < COUNTED; i++) {
                atomic_store(&j.seen[i], 0);
            }
            if (pool.parallel_for(pool.self, count, &j, n) != AOTC_OK) {
                return 2;
            }
            int wrong = atomic_load(&j.wrong) != 0 || atomic_load(&j.items) != n;
            wrong |= n > 1000 && atomic_load(&j.calls) > 200 * pool.workers;
            for (int i = 0; i < COUNTED && n < COUNTED; i++) {
                wrong |= atomic_load(&j.seen[i]) != (i < n);
            }
            if (wrong) {
                printf("%lld items: %lld run\n", (long long)n, (long long)atomic_load(&j.items));
                return 3;
            }
        }
    }
    lookup_pool_destroy(&pool);
    return 0;
}
"""


# forks while the threads look for work (short pauses) and while they sleep (long ones)
FORKS = COUNT + r"""
int main(void)
{
    aotc_pool pool;
    if (lookup_pool_create(&pool, 4) != AOTC_OK) {
        return 1;
    }
    static job j;
    j.n = COUNTED;
    for (int round = 0; round < 200; round++) {
        pool.parallel_for(pool.self, count, &j, COUNTED);
        for (volatile int pause = 0; pause < (round & 127) << 10; pause++) {
        }
        const pid_t child = fork();
        if (child == 0) {
            alarm(20);
            atomic_store(&j.items, 0);
            for (int again = 0; again < 3; again++) {
                pool.parallel_for(pool.self, count, &j, COUNTED);
            }
            lookup_pool_destroy(&pool);
            _exit(atomic_load(&j.items) == 3 * COUNTED && pool.self == NULL ? 0 : 1);
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            printf("round %d: status %d\n", round, status);
            return 2;
        }
    }
    lookup_pool_destroy(&pool);
    return 0;
}
"""


def built(text, lookup_folder, folder):
    (folder / "main.c").write_text(text)
    subprocess.run(["cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O1", "-Wall", "-Wextra",
                    "-Werror", f"-I{lookup_folder}", "main.c",
                    str(lookup_folder / "lookup_pool.c"), "-pthread", "-o", "main"],
                   cwd=folder, check=True)
    return folder / "main"


@pytest.fixture(scope="module")
def counting(lookup_folder, tmp_path_factory):
    return built(MAIN, lookup_folder, tmp_path_factory.mktemp("pool"))


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_every_item_runs_once(counting, workers):
    done = subprocess.run([counting, str(workers)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout


def test_a_child_of_fork_works_alone(lookup_folder, tmp_path):
    """It has none of the threads: it neither wakes nor awaits them, not even to end the pool."""
    done = subprocess.run([built(FORKS, lookup_folder, tmp_path)], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stdout
