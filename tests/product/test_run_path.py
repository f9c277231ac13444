"""What a run does: the same bits for any threads and callers, no allocation, no output."""

import subprocess

import numpy as np
import pytest
from product_models import MODELS, sources

from aotc.runtime.loading import load

THREADS, RUNS = 8, 1000

# Counts every call of the allocator between init and the end of the runs, made by whomever.
COUNTER = r"""
#define _GNU_SOURCE
#include "NAME.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);
static _Atomic long calls;
void *malloc(size_t n) { calls++; return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { calls++; return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { calls++; return __libc_realloc(p, n); }
void *aligned_alloc(size_t a, size_t n) { calls++; return __libc_memalign(a, n); }
void free(void *p) { calls++; __libc_free(p); }

int main(void)
{
    NAME_weights w;
    NAME_context c;
    aotc_pool pool;
    const int threads = 3;
    int64_t syms[8] = {0}, shape[8];
    const aotc_model_info *info = NAME_info();
    for (int i = 0; i < info->symbol_count; i++) {
        const aotc_symbol_info *s = &info->symbols[i];
        syms[i] = s->hi < INT64_MAX ? s->hi : s->lo + 40;
    }
    if (NAME_weights_open(&w, "NAME_weights.bin") || NAME_pool_create(&pool, threads)) return 1;
    const void *ins[8];
    void *outs[8];
    for (int i = 0; i < info->input_count + info->output_count; i++) {
        const int out = i >= info->input_count, k = out ? i - info->input_count : i;
        size_t n = 8;
        if (out ? NAME_output_shape(k, syms, shape) : NAME_input_shape(k, syms, shape)) return 2;
        const aotc_tensor_info *t = out ? &info->outputs[k] : &info->inputs[k];
        for (int d = 0; d < t->rank; d++) n *= (size_t)shape[d];
        void *p = calloc(1, n);
        if (out) outs[k] = p; else ins[k] = p;
    }
    const size_t bytes = NAME_arena_size_of(syms, threads);
    if (NAME_init(&c, &w, aligned_alloc(64, (bytes + 63) / 64 * 64), bytes, &pool)) return 3;
    calls = 0;
    for (int i = 0; i < 20; i++) if (NAME_run_buffers(&c, syms, ins, outs)) return 4;
    const long counted = calls;
    free(malloc(1));
    printf("%ld %ld\n", counted, calls - counted);
    return 0;
}
"""


@pytest.mark.parametrize("name", [
    n if n in ("attention", "ranges") else pytest.param(n, marks=pytest.mark.product)
    for n in MODELS])
def test_running_allocates_nothing(bundle, name, tmp_path):
    folder = bundle(name)
    subprocess.run(["make", "-s", "static"], cwd=folder, check=True)
    (tmp_path / "count.c").write_text(COUNTER.replace("NAME", name))
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", f"-I{folder}", str(tmp_path / "count.c"),
                    str(folder / f"lib{name}.a"), "-pthread", "-lm", "-o", str(tmp_path / "count")],
                   check=True)
    done = subprocess.run([str(tmp_path / "count")], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0
    order_pixel_shuffles, control = map(int, done.stdout.split())  # and nothing else was printed
    assert (order_pixel_shuffles, control) == (0, 2) and done.stderr == ""


def _inputs(model, dims):
    rng = np.random.default_rng(0)
    out = []
    for t in model.inputs:
        shape = [d if isinstance(d, int) else dims[d.symbol] for d in t.shape]
        out.append(rng.integers(0, 2, shape).astype(t.dtype) if t.dtype.kind == "i"
                   else rng.standard_normal(shape).astype(t.dtype))
    return out


@pytest.mark.parametrize("name, target", [
    pytest.param(n, t, marks=pytest.mark.product if t == "c" and n != "attention" else ())
    for n in MODELS for t in ("c", "native")])
def test_the_same_bits_for_any_number_of_threads(bundle, name, target):
    folder, bits = bundle(name, target), []
    for threads in (1, 2, 5):
        model = load(folder, threads=threads)
        feeds = _inputs(model, {s["name"]: s["hi"] - 1 for s in model.manifest["symbols"]})
        bits.append([a.tobytes() for a in model.run(feeds).values()])
    assert bits[0] == bits[1] == bits[2]


SERVER = r"""
#include "NAME.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = %d, RUNS = %d };
static NAME_weights weights;
static const void *ins[8];
static int64_t syms[8];
static size_t out_bytes;
static unsigned char *want;

static int run_once(NAME_context *c, unsigned char *out)
{
    void *outs[1] = {out};
    return NAME_run_buffers(c, syms, ins, outs);
}

static void *serve(void *pool)
{
    NAME_context c;
    const size_t bytes = (NAME_arena_size_of(syms, 2) + 63) / 64 * 64;
    unsigned char *out = malloc(out_bytes);
    void *arena = aligned_alloc(64, bytes);
    long wrong = NAME_init(&c, &weights, arena, bytes, pool);
    for (int i = 0; i < RUNS && wrong == 0; i++) {
        memset(out, 0xAA, out_bytes);
        wrong += run_once(&c, out) != AOTC_OK || memcmp(out, want, out_bytes) != 0;
    }
    free(out);
    free(arena);
    return (void *)wrong;
}

int main(void)
{
    const aotc_model_info *info = NAME_info();
    int64_t shape[8];
    pthread_t threads[THREADS];
    aotc_pool pool;
    NAME_context c;
    long wrong = 0;
    for (int i = 0; i < info->symbol_count; i++) {
        const aotc_symbol_info *s = &info->symbols[i];
        syms[i] = s->lo + 9 < s->hi ? s->lo + 9 : s->hi;
    }
    if (NAME_weights_open(&weights, "NAME_weights.bin")) return 1;
    for (int i = 0; i < info->input_count; i++) {
        size_t n = 1;
        if (NAME_input_shape(i, syms, shape)) return 2;
        for (int d = 0; d < info->inputs[i].rank; d++) n *= (size_t)shape[d];
        float *x = malloc(n * 8);
        for (size_t k = 0; k < n; k++) x[k] = (float)(k %% 17) / 9.0f - 0.8f;
        ins[i] = x;
    }
    if (NAME_output_shape(0, syms, shape)) return 3;
    out_bytes = 4;
    for (int d = 0; d < info->outputs[0].rank; d++) out_bytes *= (size_t)shape[d];
    want = malloc(out_bytes);
    const size_t bytes = (NAME_arena_size_of(syms, 1) + 63) / 64 * 64;
    if (NAME_init(&c, &weights, aligned_alloc(64, bytes), bytes, NULL)) return 4;
    if (run_once(&c, want) || NAME_pool_create(&pool, 2)) return 5;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, serve, i %% 2 ? &pool : NULL)) return 6;
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong += (long)result;
    }
    printf("%%ld\n", wrong);
    return wrong != 0;
}
"""


def _serve(folder, name, tmp_path, runs, flags=()):
    text = (SERVER % (THREADS, runs)).replace("NAME", name)
    (tmp_path / "serve.c").write_text(text)
    files = [str(folder / f) for f, _ in sources(folder)]
    cflags = {flag for _, more in sources(folder) for flag in more}
    subprocess.run(["cc", "-std=gnu11", "-O2", *flags, *cflags, f"-I{folder}",
                    str(tmp_path / "serve.c"), *files, "-pthread", "-lm",
                    "-o", str(tmp_path / "serve")], check=True)
    done = subprocess.run([str(tmp_path / "serve")], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr[-2000:]


@pytest.mark.parametrize("name", ["attention", *(pytest.param(n, marks=pytest.mark.product)
                                                for n in ("dense", "convnet"))])
def test_eight_threads_a_thousand_runs_each(bundle, name, tmp_path):
    """Contexts of one's own over the same weights, half of them sharing a pool."""
    _serve(bundle(name), name, tmp_path, RUNS)


@pytest.mark.product
@pytest.mark.parametrize("name", ["dense", "attention", "convnet"])
def test_contexts_and_pool_under_the_thread_sanitizer(bundle, name, tmp_path):
    _serve(bundle(name), name, tmp_path, 20, ["-g", "-fsanitize=thread"])
