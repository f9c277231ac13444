"""Hand-made plans with hand-written kernels: what the bundle's tests run on."""

from types import SimpleNamespace

import numpy as np

from aotc.emit.bundle.render import render_bundle
from aotc.emit.text.c_names import prefix
from aotc.emit.text.cexpr import sym_field
from aotc.ir.expr import Const, Sym, Var, check_index, compare
from aotc.ir.kernel.plan_kernels import About, Kernel, LoweredKernel, Scratch
from aotc.ir.plan import Place, Plan
from aotc.ir.program import Check
from aotc.ir.schedule import Schedule

BATCH, SEQ = Sym("batch", 1, 64), Sym("seq", 1, 100)
INFO = {"model_hash": "ab" * 32, "graph": "a test"}
WIDTH = 8
TABLE = np.arange(5 * WIDTH, dtype=np.float32).reshape(5, WIDTH) / 7

# k00 looks rows up in a table into the arena; k01 scales by a weight through its scratch.
KERNELS = """#include "{n}_internal.h"
#include <string.h>

void {n}_k00(void *frame, int64_t begin, int64_t end, int worker)
{{
    {n}_frame *f = frame;
    const float *table = (const void *)f->weights;
    float *rows = (void *)f->slot[0];
    (void)worker;
    for (int64_t tile = begin; tile < end; tile++) {{
        int64_t id;
        memcpy(&id, (const uint8_t *)f->in[0] + tile * 8, sizeof id);
        id = {n}_checked(f, 0, id, 5);
        memcpy(rows + tile * 8, table + id * 8, 8 * sizeof(float));
    }}
}}

void {n}_k01(void *frame, int64_t begin, int64_t end, int worker)
{{
    {n}_frame *f = frame;
    const float *rows = (const void *)f->slot[0];
    const float *scale = (const void *)(f->weights + 192);
    float *scratch = (void *)(f->slab + worker * f->slab_stride);
    for (int64_t tile = begin; tile < end; tile++) {{
        float bias;
        memcpy(&bias, (const uint8_t *)f->in[1] + tile / f->{seq} * 4, sizeof bias);
        for (int64_t i = 0; i < 8; i++) {{
            scratch[i] = rows[tile * 8 + i] * scale[i] + bias;
        }}
        memcpy((uint8_t *)f->out[0] + tile * 32, scratch, 32);
    }}
}}
"""


def lookup_plan(name="lookup", ids="ids", bias="bias", out="out", node="gather_0",
                batch=BATCH, seq=SEQ, checks=None):
    """ids i64[batch, seq], bias f32[batch] -> out f32[batch, seq, 8]."""
    rows = batch * seq
    width = Const(WIDTH)
    places = (Place("p_ids", "i64", (batch, seq), "input", rows, index=0, onnx=ids),
              Place("p_bias", "f32", (batch,), "input", batch, index=1, onnx=bias),
              Place("p_out", "f32", (batch, seq, width), "output", rows * WIDTH, onnx=out),
              Place("t0", "f32", (batch, seq, width), "arena", rows * WIDTH),
              Place("table", "f32", (Const(5), width), "weights", Const(40)),
              Place("scale", "f32", (width,), "weights", Const(8), offset=192))
    kernels = (Kernel(LoweredKernel(
        "k00", About("look up", (node,)), rows, ((Var("row"), check_index(Var("id"), Const(5))),),
        (),
        (), (), ()), ()), Kernel(LoweredKernel(
            "k01", About("scale", ("scale_0",)), rows, (), (Scratch("s", "f32", 8, 0),), (), (),
            ()), ()))
    if checks is None:
        checks = (Check(compare("lt", batch + seq, Const(150)), "batch + seq must stay small"),)
    scale = np.linspace(1, 2, WIDTH, dtype=np.float32)
    return Plan(name, "c", (batch, seq), checks, places, (rows * (WIDTH * 4),), kernels,
                (("table", TABLE), ("scale", scale)))


def reference(ids, bias):
    return TABLE[ids] * np.linspace(1, 2, WIDTH, dtype=np.float32) + bias[:, None, None]


def feeds(batch=3, seq=7):
    rng = np.random.default_rng(1)
    return (rng.integers(0, 5, (batch, seq)),
            rng.standard_normal(batch).astype(np.float32))


def sample(ids="ids", bias="bias", out="out", batch=3, seq=7, syms=("batch", "seq")):
    i, b = feeds(batch, seq)
    return SimpleNamespace(syms=dict(zip(syms, (batch, seq))), inputs={ids: i, bias: b},
                           outputs={out: reference(i, b)})


def lookup_bundle(samples=None, model_hash=INFO["model_hash"], **names):
    """The Bundle of ``lookup_plan`` with one recorded run."""
    plan = lookup_plan(**names)
    if samples is None:
        samples = (sample(),)
    n = prefix(plan.name)
    text = KERNELS.format(n=n, seq=sym_field(plan.syms[1].name))
    info = {**INFO, "model_hash": model_hash}
    return render_bundle(plan, Schedule("c", ()), info, samples, {f"{n}_kernels_0.c": text})


def number(library, status):
    """The C value of a status by its name."""
    return {name: value for value, name in library.statuses.items()}[status]
