"""``aotc verify --per-node``: which kernel is the first that computes something else?

The model is compiled with its own Schedule and every tensor its kernels store is made visible, as
a copy at the end.  Then each kernel is judged by itself: its exact result from the very numbers it
read, in double precision, against what it wrote.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.errors import AotcError
from aotc.ir.category import category
from aotc.ir.dtypes import BF16, HALF, Array, from_bf16, to_bf16
from aotc.ir.expr import Axis, Cast, Expr, Load
from aotc.ir.program import Buffer, Compute, Program, Step, update
from aotc.ir.schedule import PRECISION, Group, Schedule
from aotc.options import Dims, Options, asked_precision
from aotc.oracle.evaluate import infer_syms, input_arrays, run_step
from aotc.oracle.quanta import quanta
from aotc.passes.double_precision import promote_to_f64
from aotc.pipeline import run_pipeline
from aotc.runtime.compile_bundle import Progress
from aotc.runtime.loading import load
from aotc.runtime.model import Model
from aotc.samples import EXTENT_CAP, SAMPLE_FLOPS, Feeds, extents, run_work
from aotc.sched import complete, lower
from aotc.target import get_target, runs_here
from aotc.target.base import Target
from aotc.tools.as_exported import refuse
from aotc.tools.drift import drift_lines
from aotc.tools.verify import QUANTUM, ROUNDED, make_cases, read_inputs

# Error of one f32 compute by category, as a share of the output's range, on random data: sums grow
# with their length (a few roundings per 64 terms in the accumulation order of the kernels), maps
# with the functions they call; moves do not round.  A kernel may take the sum over its computes.
BOUNDS = {"move": 0.0, "map": 2e-6, "window": 4e-6, "reduction": 8e-6, "contraction": 2e-5,
          "dot": 2e-6}
# What is rounded to bf16 or f16 from numbers that are a rounding of f32 apart may be a step apart:
# 2^-7, 2^-10.
LOW_STEPS = {BF16: 8e-3, HALF: 1e-3}
_COPY = "aotc_seen_"


@dataclass(frozen=True)
class NodeError:
    """One stored tensor: its kernel's ONNX ``nodes``, ``share`` of the range, or in quanta where
    ``unit`` says so, ``limit``."""

    tensor: str
    nodes: tuple[str, ...]
    share: float
    limit: float
    unit: str = "of its range"

    @property
    def ok(self) -> bool:
        return self.share <= self.limit


def verify_nodes(path: str | Path, target: str = "native", dims: Dims = None, threads: int = 1,
                 report: Callable[[str], object] = print, progress: Progress | None = None,
                 runs: int = 1, inputs: str | Path | None = None,
                 **decisions: Any) -> list[NodeError]:
    """Judge every kernel of a model on random inputs, ``runs`` sets per choice of dynamic
    dimensions, or on the ``inputs`` of an .npz file.  decisions: as ``aotc.compile``'s.

    Returns the list of NodeError in order of execution and reports the first one that exceeds its
    bound, or that none does; at a lower precision of products, what every stored tensor is off from
    double precision, too.  Errors as ``aotc.compile`` and ``aotc.load``; AotcError for targets
    that do not run on this machine.
    """
    refuse("verify --per-node", decisions.get("alias"))
    row = get_target(target, asked_precision(Options(path, **decisions)))
    row = next(filter(runs_here, row.variants), row)
    work = run_pipeline(Options(path, target=row.name, dims=dims, name=Path(path).stem,
                                stop_after="schedule", progress=progress, **decisions))
    if inputs and len(work.parts) > 1:
        raise AotcError("verify --per-node: inputs belong to one variant only; compile without "
                        "variants, or leave the inputs out")
    results = []
    for part in work.parts:
        # the Program as the Schedule rewrites it has every tensor that is stored
        # (no input's shape tells a symbol that is a number in it)
        program, schedule = part.program, part.schedule
        program = replace(program, syms=tuple(s for s in program.syms if s.lo != s.hi))
        stored = tuple(schedule.buffers)
        with tempfile.TemporaryDirectory(prefix="aotc-nodes-") as folder:
            model = _observed(program, schedule, row, stored, Path(folder) / "bundle", threads)
            cases = make_cases(program, runs, _cap(program))
            for case in [read_inputs(inputs, work.settings.fixed, program)] if inputs else cases:
                got = model.run(case.feeds)
                results += _judge(program, schedule, case.feeds, got, stored)
                if schedule.precision != PRECISION[0] and len(work.parts) == 1:
                    seen = {n: got[_COPY + n] for n in stored} | {
                        n: got[program.buffers[n].onnx or n] for n in program.outputs}
                    for line in drift_lines(work.program, schedule, case.feeds, seen):
                        report(line)
    report(_verdict(results))
    return results


def _cap(program: Program) -> int:
    """The largest extent to try for dynamic dimensions: the evaluator is exact and slow."""
    caps = [EXTENT_CAP >> k for k in range(5)]
    return next((c for c in caps if all(run_work(program, syms) <= SAMPLE_FLOPS
                                        for syms in extents(program, c))), caps[-1])


def _verdict(results: Sequence[NodeError]) -> str:
    worst = max(results, key=lambda r: r.share / r.limit if r.limit else r.share, default=None)
    wrong = next((r for r in results if not r.ok), None)
    if wrong is None:
        return (f"{len(results)} stored tensors, all within their bounds"
                + (f"; nearest to it: {_line(worst)}" if worst else ""))
    return f"first beyond its bound: {_line(wrong)}"


def _line(r: NodeError) -> str:
    return (f"{r.tensor} of {', '.join(r.nodes[:6])}: {r.share:.2g} {r.unit} "
            f"(bound {r.limit:.2g})")


def _observed(program: Program, schedule: Schedule, target: Target, stored: Sequence[str],
              folder: Path, threads: int) -> Model:
    """The running model with a copy of every stored tensor among its outputs."""
    buffers, steps = dict(program.buffers), list(program.steps)
    for name in stored:
        b = program.buffers[name]
        axes = tuple(Axis(f"i{d}", n) for d, n in enumerate(b.shape))
        value: Expr = Load(name, axes, b.dtype)
        if b.dtype == BF16:  # which no caller's tensor is
            value = Cast("f32", value)
        buffers[_COPY + name] = Buffer(_COPY + name, b.shape, value.dtype, "output", _COPY + name)
        steps.append(Compute((_COPY + name,), axes, (), "none", value))
    seen = tuple(_COPY + n for n in stored)
    program = update(program, buffers=buffers, steps=tuple(steps),
                     outputs=program.outputs + seen)
    groups = schedule.groups + tuple(Group(n, (n,), (n,), n) for n in seen)
    schedule = complete(program, replace(schedule, groups=groups, buffers={}), target)
    info = {"model_hash": "00" * 32, "graph": program.name}
    write_bundle(render_bundle(lower(program, schedule, target), schedule, info), folder)
    return load(folder, threads)


def _judge(program: Program, schedule: Schedule, feeds: Feeds, got: Feeds,
           stored: Sequence[str]) -> list[NodeError]:
    """NodeErrors of one run, kernel by kernel."""
    group_of = {c: g for g in schedule.groups for c in g.computes}
    exact = promote_to_f64(program)
    arrays = {n: _widened(a) for n, a in input_arrays(program, feeds).items()}
    syms = infer_syms(program, arrays, None)
    arrays.update(exact.consts)
    # of what has room for more elements than there are, the copy is judged
    made = [program.buffers[n] for n in program.outputs]
    roomy = {name for b in made for name, _ in b.counts}
    outputs = {b.onnx or b.name: b.name for b in made if not b.counts and b.onnx not in roomy}
    seen = {name: got[_COPY + name] for name in stored} | {
        name: got[onnx] for onnx, name in outputs.items()}
    results = []
    for plain, step in zip(program.steps, exact.steps):
        if not isinstance(step, Compute) or not isinstance(plain, Compute):
            # a library kernel: what reads it is judged from what it has made
            arrays.update({name: _widened(seen[name]) for name in step.outs})
            continue
        for name, want in zip(step.outs, run_step(exact, step, arrays, syms, {})):
            arrays[name] = want
            if name in seen:
                group, low = group_of[plain.out], program.dtype(name) == BF16
                results.append(_compared(program, group, plain, name, seen[name],
                                         from_bf16(want).astype(np.float64) if low else want))
                arrays[name] = to_bf16(seen[name]) if low else _widened(seen[name])
    return results


def _widened(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def _is_compute(step: Step) -> TypeGuard[Compute]:
    return isinstance(step, Compute)


def _bound(c: Compute) -> float:
    """What one compute may be off."""
    kind = category(c.axes, c.raxes, c.fold, c.body)
    if isinstance(c.body, Cast) and c.body.dtype in LOW_STEPS:
        return LOW_STEPS[c.body.dtype]
    return BOUNDS["contraction" if kind == "dot" and c.body.dtype == "f32" else kind]


def _compared(program: Program, group: Group, step: Compute, name: str, got: Array,
              want: Array) -> NodeError:
    computes = [program.producer[c] for c in group.computes]
    quantum = quanta(program, computes[:computes.index(step) + 1]).get(name, 0.0)
    limit = sum(map(_bound, filter(_is_compute, computes))) if want.dtype.kind == "f" else 0.0
    limit = limit + ROUNDED if quantum is None else limit
    nodes = tuple(dict.fromkeys(n for c in computes for n in c.origin)) or (name,)
    finite = np.isfinite(want)
    same = np.array_equal(got[~finite], want[~finite].astype(got.dtype), equal_nan=True)
    if not want.size or not finite.any():
        return NodeError(name, nodes, 0.0 if same else np.inf, limit)
    a, b = got[finite].astype(np.float64), want[finite].astype(np.float64)
    if quantum and same:
        return NodeError(name, nodes, float(np.max(np.abs(a - b))) / quantum, QUANTUM, "quanta")
    scale = max(float(np.ptp(b)), 1e-2 * float(np.max(np.abs(b))), 1e-30)
    error = float(np.max(np.abs(a - b))) / scale
    return NodeError(name, nodes, error if same and error == error else np.inf, limit)
