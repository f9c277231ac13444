"""Programs and Schedules to running C: many small cases share one bundle.

    built = build_cases([Case("conv", program), Case("tiled", program, schedule)], target, folder)
    built.check(rng)        every case against the evaluator, on fresh data
"""

import os
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from quick_builds import KEPT
from te_programs import random_feeds

from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.ir.expr import Axis, Load, Sym, rewrite, walk
from aotc.ir.program import Branch, Buffer, Compute, LibCall, Loop, Program
from aotc.ir.schedule import Group, Schedule
from aotc.oracle.check_plan import plan_faults
from aotc.oracle.evaluate import evaluate
from aotc.passes.rewrites import apply_rewrites
from aotc.runtime.feeds import machine
from aotc.runtime.loading import load
from aotc.sched import complete, decide, lower
from aotc.sched.text_choices.choose_writing import choose_writing
from aotc.target import TARGETS, _cpu_flags

# every bundle of these tests compiles without a warning; -Og takes half of -O1's time
STRICT = f"-Og -Wall -Wextra -Wshadow -Werror {os.environ.get(KEPT, '')}"
INFO = {"model_hash": "00" * 32, "graph": "test"}
# with AOTC_GPU set, CUDA kernels run on this machine's GPU, where they are simulated otherwise
ON_GPU = bool(os.environ.get("AOTC_GPU"))
# the CPU targets of one instruction set each that this machine can run
RUNNABLE = tuple(t for t in TARGETS.values() if not t.variants and t.arch in ("", machine())
                 and t.emitter == "c" and _cpu_flags().issuperset(t.cpu_flags))


def _rows(target):
    return {u.name for u in target.ukernels if u.category != "dot"}


# of those that differ in rows of 8-bit products only, the last
DISTINCT = tuple(t for i, t in enumerate(RUNNABLE)
                 if all(_rows(t) != _rows(s) for s in RUNNABLE[i + 1:]))


def at_length(target):
    """Marks of a test on ``target``: those between the narrowest and the widest take their turn in
    the longer suite."""
    return () if target in (RUNNABLE[0], RUNNABLE[-1]) else pytest.mark.product


def every(names, step):
    """Parameters of which every ``step``-th runs by default, the others in the longer suite."""
    return [pytest.param(n, id=str(n), marks=() if i % step == 0 else pytest.mark.product)
            for i, n in enumerate(names)]


@dataclass(frozen=True)
class Case:
    """A Program and how it runs.  ``schedule`` None: decided; fields left out are completed.
    ``tol``: allowed error relative to the largest finite magnitude of the expected output.
    ``floor``: that magnitude is taken to be at least this (sums that cancel).  ``special``: values
    strewn into f32 inputs."""

    name: str
    program: Program
    schedule: Schedule = None
    tol: float = 2e-6
    special: tuple = ()
    floor: float = 0.0


def renamed(program, prefix):
    """The Program with every buffer and symbol called ``prefix`` + its name."""
    def visit(n):
        if isinstance(n, Load):
            return Load(prefix + n.buffer, n.index, n.dtype)
        if isinstance(n, Sym):
            return Sym(prefix + n.name, n.lo, n.hi, n.likely)
        return Axis(n.name, rewrite(n.extent, visit)) if isinstance(n, Axis) else None

    def all_of(exprs):
        return tuple(rewrite(e, visit) for e in exprs)

    buffers = {prefix + n: Buffer(prefix + n, all_of(b.shape), b.dtype, b.role,
                                  prefix + n if b.role in ("input", "output") else "")
               for n, b in program.buffers.items()}
    def step(s):
        outs = tuple(prefix + o for o in s.outs)
        if isinstance(s, LibCall):
            return replace(s, outs=outs, inputs=tuple(prefix + b for b in s.inputs),
                           numbers=all_of(s.numbers))
        if isinstance(s, (Loop, Branch)):
            return renamed_region(s, prefix)
        fold = s.fold if isinstance(s.fold, str) else replace(
            s.fold, init=all_of(s.fold.init), update=all_of(s.fold.update))
        return replace(s, outs=outs, axes=all_of(s.axes), raxes=all_of(s.raxes), fold=fold,
                       body=rewrite(s.body, visit))

    steps = tuple(map(step, program.steps))
    return Program(program.name, tuple(prefix + n for n in program.inputs),
                   tuple(prefix + n for n in program.outputs), buffers,
                   {prefix + n: a for n, a in program.consts.items()}, steps,
                   all_of(program.syms), tuple(replace(c, cond=rewrite(c.cond, visit))
                                               for c in program.checks))


def renamed_region(s, prefix):
    """The region with every buffer and symbol called ``prefix`` + its name, in its bodies too."""
    def named(value):
        return prefix + value if isinstance(value, str) and value else value

    def fields(values):
        return tuple(replace(v, **{k: named(x) for k, x in vars(v).items()}) for v in values)
    bodies = tuple(renamed(b, prefix) for b in s.bodies)
    if isinstance(s, Branch):
        return replace(s, name=prefix + s.name, cond=prefix + s.cond, bodies=bodies,
                       outs=tuple(prefix + o for o in s.outs))
    def visit(n):
        return replace(n, name=prefix + n.name) if isinstance(n, Sym) else None
    return replace(s, name=prefix + s.name, body=bodies[0], trip=rewrite(s.trip, visit),
                   round=replace(s.round, name=prefix + s.round.name), states=fields(s.states),
                   slices=fields(s.slices), stacks=fields(s.stacks),
                   **{k: named(getattr(s, k)) for k in ("count", "going", "again", "ran")})


def renamed_group(g, prefix):
    def keys(d):
        return {prefix + k: v for k, v in d.items()}

    return Group(prefix + g.name, tuple(prefix + c for c in g.computes),
                 tuple(prefix + o for o in g.outputs), prefix + g.anchor, keys(g.connect), g.tile,
                 keys(g.choices), g.parallel, g.run, threads=g.threads, flat=g.flat,
                 patch=g.patch)


def scheduled(case, target):
    """The case's Schedule with everything chosen."""
    if case.schedule is None:
        return decide(case.program, target)
    return complete(case.program, at_home(case.schedule, target), target)


def at_home(schedule, target):
    """The Schedule with edges in L1 or L2 in the target's own scratch, where it has no such."""
    home = target.machine.scratch
    levels = dict.fromkeys(("L1", "L2"), home) | {x.name: x.name for x in target.machine.homes}
    return replace(schedule, groups=tuple(
        replace(g, connect={b: levels.get(lv, lv) for b, lv in g.connect.items()})
        for g in schedule.groups))


def merged(cases, target, name="cases"):
    """One Program and Schedule that hold every case; places in the arena are planned anew."""
    parts = []
    for i, c in enumerate(cases):
        prefix = f"q{i}_"
        s = scheduled(c, target)
        parts.append((renamed(apply_rewrites(c.program, s.rewrites), prefix),
                      [renamed_group(g, prefix) for g in s.groups],
                      {prefix + b: lay for b, lay in s.layouts.items()}))
    programs = [p for p, _, _ in parts]
    whole = Program(name, sum((p.inputs for p in programs), ()),
                    sum((p.outputs for p in programs), ()),
                    {n: b for p in programs for n, b in p.buffers.items()},
                    {n: a for p in programs for n, a in p.consts.items()},
                    sum((p.steps for p in programs), ()), sum((p.syms for p in programs), ()),
                    sum((p.checks for p in programs), ()))
    low = any(n.dtype == "bf16" for s in whole.steps if isinstance(s, Compute)
              for n in walk(s.body))
    schedule = Schedule(target.name, tuple(g for _, gs, _ in parts for g in gs),
                        {b: x for _, _, lays in parts for b, x in lays.items()},
                        precision="bf16" if low else "f32")
    return whole, complete(whole, schedule, target)


def compile_program(program, schedule, target, folder, cflags=STRICT, threads=1):
    """The Model of one Program, built with extra compiler flags; GPUs are simulated, unless
    AOTC_GPU says otherwise."""
    schedule = choose_writing(program, schedule, target)
    plan = lower(program, schedule, target)
    assert plan_faults(plan) == []
    write_bundle(render_bundle(plan, schedule, INFO), folder)
    old = os.environ.get("CFLAGS")
    os.environ["CFLAGS"] = cflags
    try:
        return load(folder, threads=threads, simulate=target.emitter == "simt" and not ON_GPU,
                    jobs=os.cpu_count() if ON_GPU else 2)
    finally:
        if old is None:
            del os.environ["CFLAGS"]
        else:
            os.environ["CFLAGS"] = old


def build_cases(cases, target, folder, cflags=STRICT, threads=1):
    """A Built of all cases."""
    program, schedule = merged(cases, target)
    model = compile_program(program, schedule, target, folder, cflags, threads)
    return Built(tuple(cases), target, program, schedule, model, folder)


@dataclass(frozen=True)
class Built:
    cases: tuple
    target: object
    program: Program
    schedule: Schedule
    model: object
    folder: object

    def run(self, feeds):
        """feeds: one {input: array} per case; the outputs likewise."""
        flat = {f"q{i}_{n}": a for i, f in enumerate(feeds) for n, a in f.items()}
        out = self.model.run(flat)
        return [{n: out[f"q{i}_{n}"] for n in c.program.outputs}
                for i, c in enumerate(self.cases)]

    def sample(self, seed, syms=None):
        """(feeds, outputs, expected) of every case on fresh random data.  syms(sym, rng) -> value
        of a symbol; default: anything in its range, at most 40."""
        rng = np.random.default_rng(seed)
        pick = syms or (lambda s, r: int(r.integers(s.lo, min(s.hi, 40) + 1)))
        values = [{s.name: pick(s, rng) for s in c.program.syms} for c in self.cases]
        feeds = [random_feeds(c.program, rng, v, c.special)
                 for c, v in zip(self.cases, values)]
        want = [evaluate(c.program, f, v) for c, f, v in zip(self.cases, feeds, values)]
        return SimpleNamespace(feeds=feeds, got=self.run(feeds), want=want, syms=values)

    def check(self, seed=0, syms=None):
        """Every case equals the evaluator; all differences in one message."""
        s = self.sample(seed, syms)
        wrong = [f"{c.name}: {text} (syms {v})" for c, g, w, v in
                 zip(self.cases, s.got, s.want, s.syms)
                 for text in differences(g, w, c.tol, c.floor)]
        assert not wrong, "\n".join(wrong)


def differences(got, want, tol, floor=0.0):
    """Texts that say where outputs differ: NaN and infinities must match exactly, integers too.
    tol is relative to the largest finite magnitude of an output, at least ``floor``."""
    out = []
    for name, w in want.items():
        g = got[name]
        if g.shape != w.shape or g.dtype != w.dtype:
            out.append(f"{name}: {g.dtype}{g.shape}, expected {w.dtype}{w.shape}")
            continue
        if w.dtype.kind != "f":
            bad = g != w
        else:
            finite = np.isfinite(w)
            scale = np.abs(w[finite]).max(initial=floor)
            with np.errstate(all="ignore"):
                near = np.abs(g.astype(float) - w) <= tol * scale + 1e-30
            bad = ~np.where(finite, near, (g == w) | (np.isnan(g) & np.isnan(w)))
        if bad.any():
            at = tuple(np.argwhere(bad)[0].tolist())
            out.append(f"{name}{list(w.shape)}: {bad.sum()} of {bad.size} differ, first at {at}: "
                       f"{g[at]!r}, expected {w[at]!r}")
    return out
