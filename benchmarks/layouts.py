"""Layouts decided without measuring, beside fixed ones, on nine operators (ALT, section 7).

    python -m benchmarks.layouts [OPERATOR ...] [--count 10] [--seconds 1] [--json layouts.json]
    python -m benchmarks.layouts --stem

Every configuration of ``alt_operators.json`` becomes one operator whose input and output may be
stored in any order, as between two layers: aotc's own choice, channels first (nchw), channels last
(nhwc) and channels in blocks of a vector (nchw16c: as many as the target has lanes).  All of them
are compiled by the same compiler with the same deciders, which only find the layouts settled; they
are kernels of one library and take turns in one pinned process, so that a change of the machine's
load meets all; CPU time counts, of the shortest of many calls.  Printed: milliseconds, aotc's time
by the best of the fixed ones, and geometric means.  GMM has [rows, channels] as its data: channels
last is row-major there.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.errors import AotcError
from aotc.ir.expr import Load, rewrite
from aotc.ir.layout import Layout, Pad, Reorder, Split, unfold_for_tile
from aotc.ir.program import Buffer, Compute, Program, static_shape
from aotc.options import Options
from aotc.passes.images.unfold import CHANNELS, match_unfold
from aotc.passes.relayout import relayout
from aotc.passes.rewrites import apply_rewrites
from aotc.pipeline import run_pipeline
from aotc.runtime.compile_bundle import build
from aotc.runtime.loading import load
from aotc.sched import check_schedule, decide, lower
from aotc.sched.candidates.layout_rules import settle_layouts
from aotc.sched.choose.layout_choices import channels_last
from aotc.sched.judge.neighbourhood import Neighbourhoods
from aotc.sched.model.elementwise import elementwise_class
from aotc.target import get_target
from aotc.tools.bench import pin
from benchmarks.alt_operators import KINDS, RANK
from benchmarks.kernels import _model, _random

LEAST = 15  # calls, however long they take
FIXED = ("nchw", "nhwc", "nchw16c")
FILE = Path(__file__).with_name("alt_operators.json")


def operator(kind, c):
    """(ONNX model, {input: array}) of one configuration: one node, weights constant."""
    if kind == "GMM":
        x = {"x": _random(c["m"], c["k"])}
        return _model([("MatMul", ["x", "w"], ["y"], {})], x, {"w": _random(c["k"], c["n"])},
                      "y"), x
    rank = RANK.get(kind, 2)
    x = {"x": _random(c["batch"], c["ic"], *(c["size"],) * rank)}
    k, attrs = c["kernel"], {"strides": [c["stride"]] * rank, "group": c["groups"]}
    if kind in ("T2D", "T3D"):
        w = _random(c["ic"], c["oc"], *(k,) * rank)
        attrs |= {"pads": [(k - 1) // 2] * 2 * rank, "output_padding": [k % 2] * rank}
        return _model([("ConvTranspose", ["x", "w"], ["y"], attrs)], x, {"w": w}, "y"), x
    w = _random(c["oc"], c["ic"] // c["groups"], *(k,) * rank)
    attrs |= {"pads": [c["dilation"] * (k - 1) // 2] * 2 * rank,
              "dilations": [c["dilation"]] * rank}
    return _model([("Conv", ["x", "w"], ["y"], attrs)], x, {"w": w}, "y"), x


def fixed_layout(name, shape, lanes):
    """One of ``FIXED`` for a tensor whose channels are dimension 1 of ``shape``."""
    rank = len(shape)
    if rank == 2:  # [rows, channels]
        name = {"nchw": "nhwc", "nhwc": "nchw"}.get(name, name)
    if name == "nchw":
        return Layout()
    if name == "nhwc":
        return Layout((Reorder((1, 0)),)) if rank == 2 else channels_last(rank, 1)
    more = -shape[1] % lanes
    inner = (0, 1, *range(3, rank + 1), 2)
    order = (1, 0, 2) if rank == 2 else inner
    return Layout((*((Pad(1, 0, more),) if more else ()), Split(1, (-1, lanes)), Reorder(order)))


def variants(program, target):
    """{name: {buffer: Layout} of the input and the output}; aotc's own choice is one of them."""
    shapes = {b: static_shape(program.shape(b)) for b in program.inputs + program.outputs}
    fixed = {name: {b: fixed_layout(name, s, target.lanes) for b, s in shapes.items()}
             for name in FIXED}
    chosen = settle_layouts(Neighbourhoods(program, target), frozenset(shapes))
    return fixed | {"aotc": {b: chosen[b] for b in shapes}}


def stem():
    """(ONNX model, {input: array}, variants): the first layer of image networks, 230 x 230 with its
    padding, in the layouts that ALT compares; the last ones overlap their input's tiles."""
    x, w = {"x": _random(1, 3, 230, 230)}, {"w": _random(64, 3, 7, 7), "b": _random(64)}
    nodes = [("Conv", ["x", "w", "b"], ["c"], {"strides": [2, 2]}), ("Relu", ["c"], ["y"], {})]
    last = channels_last(4, 1)
    blocks = Layout((Split(1, (-1, 16)), Reorder((0, 1, 3, 4, 2))))
    tiles = [Layout((Split(1, (-1, o)), Split(3, (-1, 4)), Split(5, (-1, 16)),
                     Reorder((0, 3, 5, 1, 4, 6, 2)))) for o in (16, 64)]
    overlapped = Layout((unfold_for_tile(2, 4, 7, 2), unfold_for_tile(4, 16, 7, 2),
                         Reorder((0, 2, 4, 3, 5, 1))))
    return _model(nodes, x, w, "y"), x, {
        "nhwo": {"x": last, "y": last}, "nohw": {"x": Layout(), "y": Layout()},
        "nohw16o": {"x": last, "y": blocks}, "tiled16o": {"x": overlapped, "y": tiles[0]},
        "tiled64o": {"x": overlapped, "y": tiles[1]}}


def renamed(program, prefix):
    """The Program with every buffer's name prefixed."""
    def visit(n):
        return replace(n, buffer=prefix + n.buffer) if isinstance(n, Load) else None

    buffers = {prefix + n: Buffer(prefix + n, b.shape, b.dtype, b.role,
                                  prefix + n if b.role in ("input", "output") else "")
               for n, b in program.buffers.items()}
    steps = tuple(replace(s, outs=tuple(prefix + o for o in s.outs), body=rewrite(s.body, visit),
                          origin=(prefix,)) for s in program.steps)
    return replace(program, inputs=tuple(prefix + n for n in program.inputs),
                   outputs=tuple(prefix + n for n in program.outputs), buffers=buffers, steps=steps,
                   consts={prefix + n: a for n, a in program.consts.items()})


def first_layers(program):
    """The rewrites that join few channels with a window, for all variants alike."""
    found = [(s.out, match_unfold(program, s)) for s in program.steps if isinstance(s, Compute)]
    return tuple(("unfold", out, {}) for out, m in found
                 if m is not None and m.channel.extent.value < CHANNELS)


def count_cpu_time(folder):
    """The bundle's profile counts the time its thread runs, not what others take in between."""
    found = [f for f in Path(folder).glob("aotc_clock.h") if "CLOCK_MONOTONIC" in f.read_text()]
    for f in found:
        f.write_text(f.read_text().replace("CLOCK_MONOTONIC", "CLOCK_THREAD_CPUTIME_ID"))
    if not found:
        raise AotcError(f"{folder}: no profile, whose clock it would be")


def laid_out(program, own):
    """The Program with its input and output in the layouts ``own``, {buffer: Layout}, and so what
    only lies between them and the operator."""
    inner = {b: x for io, x in own.items() for b in elementwise_class(program, io)
             if program.buffers[b].role == "temp"}
    return relayout(program, inner | own)


def compiled(program, layouts, target, folder):
    """The loaded Model that holds the operator once per entry of ``layouts``, and the names of the
    rows that each became."""
    parts = []
    for name, own in layouts.items():
        part = renamed(laid_out(program, own), f"{name}_")
        parts.append(apply_rewrites(part, first_layers(part)))
    whole = Program("op", *(sum((getattr(p, a) for p in parts), ()) for a in ("inputs", "outputs")),
                    *({n: b for p in parts for n, b in getattr(p, a).items()}
                      for a in ("buffers", "consts")), sum((p.steps for p in parts), ()))
    schedule = decide(whole, target)
    faults = check_schedule(whole, schedule, target)
    if faults:
        raise AotcError("\n".join(faults))
    info = {"model_hash": "0" * 64, "graph": "op"}
    plan = lower(whole, schedule, target)
    write_bundle(render_bundle(plan, schedule, info, profile=True), folder)
    count_cpu_time(folder)
    build(folder)
    rows = {n: [_row(g.choice(s)) for g in schedule.groups if g.outputs[0].startswith(f"{n}_")
                for s in g.rows] for n in layouts}
    return load(folder), rows


def _row(choice):
    """The row that computes a stage, and how it reads operands."""
    ways = "".join(f" {k}:{v}" for k, v in (("a", choice.a), ("b", choice.b)) if v)
    return choice.row.split("__")[0] + ways


def shortest(model, layouts, feeds, shape, seconds):
    """{variant: its shortest call in milliseconds}; ``shape``: of the output.  AotcError if two
    variants disagree."""
    call = model.bind({f"{n}_{b}": own[b].apply(x) for n, own in layouts.items()
                       for b, x in feeds.items()})
    results = [layouts[n][b].unapply(y, shape) for (n, b), y in (
        (name.split("_", 1), y) for name, y in call().items())]
    if not all(np.allclose(y, results[0], rtol=1e-3, atol=1e-2) for y in results):
        raise AotcError("the variants compute different values")
    best, end, calls = {}, time.perf_counter() + seconds, 0
    while calls < LEAST or time.perf_counter() < end:
        model.profile(reset=True)
        call()
        calls += 1
        took = {}
        for cost in model.profile():
            took[cost.nodes[0]] = took.get(cost.nodes[0], 0.0) + cost.seconds * 1e3
        best = {n: min(best.get(n, 1e9), took[f"{n}_"]) for n in layouts}
    return best


def measure_stem(target, seconds):
    """{layout: milliseconds} of the first layer."""
    model, feeds, layouts = stem()
    with tempfile.TemporaryDirectory(prefix="aotc-layouts-") as folder:
        path = Path(folder) / "op.onnx"
        onnx.save(model, path)
        program = run_pipeline(Options(path, target=target.name, stop_after="inline")).program
        built, rows = compiled(program, layouts, target, Path(folder) / "bundle")
        shape = static_shape(program.shape(program.outputs[0]))
        return pinned(shortest, built, layouts, feeds, shape, seconds), rows


def pinned(measured, *args):
    """``measured(*args)`` in a process that is pinned to one CPU while it measures."""
    before = pin(1)
    try:
        return measured(*args)
    finally:
        os.sched_setaffinity(0, before)


def measure(kind, c, target, seconds):
    """One line of the results, plain data."""
    model, feeds = operator(kind, c)
    with tempfile.TemporaryDirectory(prefix="aotc-layouts-") as folder:
        path = Path(folder) / "op.onnx"
        onnx.save(model, path)
        program = run_pipeline(Options(path, target=target.name, stop_after="inline")).program
        layouts, shape = variants(program, target), static_shape(program.shape(program.outputs[0]))
        chosen = layouts.pop("aotc")
        same = next((n for n, own in layouts.items() if own == chosen), None)
        layouts |= {} if same else {"aotc": chosen}  # the same C need not be timed twice
        built, rows = compiled(program, layouts, target, Path(folder) / "bundle")
        times = pinned(shortest, built, layouts, feeds, shape, seconds)
    return {"operator": kind, **c, "choice": same or str(chosen),
            "ms": times | {"aotc": times[same or "aotc"]}, "rows": rows}


def main(argv=None):
    """Measure; the exit code is 1 if a configuration failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operators", nargs="*", help=", ".join(KINDS))
    parser.add_argument("--count", type=int, default=10, help="configurations of each")
    parser.add_argument("--target", default="native")
    parser.add_argument("--seconds", type=float, default=1.0, help="per configuration")
    parser.add_argument("--json", default="layouts.json", help="file for the results")
    parser.add_argument("--stem", action="store_true", help="the first layer of image networks")
    args = parser.parse_args(argv)
    if args.stem:
        times, rows = measure_stem(get_target(args.target), args.seconds)
        print("\n".join(f"{n}: {t:.3f} ms, {', '.join(rows[n])}" for n, t in times.items()))
        return 0
    target, table, results, failed = get_target(args.target), json.loads(FILE.read_text()), [], []
    print("| operator | configuration | choice | aotc ms | " + " | ".join(FIXED)
          + " | ratio to best |\n|---|---|---|--:|" + "--:|" * (len(FIXED) + 1))
    for kind in args.operators or KINDS:
        for c in table[kind][:args.count]:
            try:
                row = measure(kind, c, target, args.seconds)
            except AotcError as err:
                failed.append([kind, c])
                print(f"{kind} {c} failed: {err}", file=sys.stderr)
                continue
            results.append(row)
            print(line(kind, c, row), flush=True)
            Path(args.json).write_text(json.dumps({"results": results, "failed": failed}))
    print("\n".join(summary(results)))
    return 1 if failed else 0


def line(kind, c, row):
    """One row of the table."""
    ms = row["ms"]
    best = min(ms[n] for n in FIXED)
    what = " ".join(f"{k} {v}" for k, v in c.items() if v != 1 or k == "kernel")
    return f"| {kind} | {what} | {row['choice']} | {ms['aotc']:.3f} | " + " | ".join(
        f"{ms[n]:.3f}" for n in FIXED) + f" | {ms['aotc'] / best:.2f} |"


def summary(results):
    """Geometric means: aotc by the best of the fixed layouts of each configuration, and by the one
    fixed layout that is best over all of them."""
    mean = statistics.geometric_mean
    for kind in dict.fromkeys(r["operator"] for r in results):
        ratios = [r["ms"]["aotc"] / min(r["ms"][n] for n in FIXED) for r in results
                  if r["operator"] == kind]
        yield (f"{kind}: to the best of each {mean(ratios):.3f}, worst {max(ratios):.2f}, above "
               f"1.05: {sum(x > 1.05 for x in ratios)} of {len(ratios)}")
    if results:
        to = {n: mean(r["ms"]["aotc"] / r["ms"][n] for r in results) for n in FIXED}
        yield "all: " + ", ".join(f"to {n} {x:.3f}" for n, x in to.items())


if __name__ == "__main__":
    sys.exit(main())
