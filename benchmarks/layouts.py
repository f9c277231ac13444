"""Layouts decided without measuring, beside fixed ones, on nine operators (ALT, section 7).

    python -m benchmarks.layouts [OPERATOR ...] [--count 10] [--seconds 1] [--json layouts.json]

Every configuration of ``alt_operators.json`` becomes one operator whose input and output may be
stored in any order, as between two layers: aotc's own choice, channels first (nchw), channels last
(nhwc) and channels in blocks of a vector (nchw16c: as many as the target has lanes).  All of them
are compiled by the same compiler with the same deciders, which only find the layouts settled; they
are kernels of one library and take turns in one pinned process, so that a change of the machine's
load meets all.  The shortest of many calls counts.  Printed: milliseconds, aotc's time by the best
of the fixed ones, and geometric means.  GMM has [rows, channels] as its data: channels last is
row-major there.
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

from aotc.bench import pin
from aotc.emit.bundle import render_bundle, write_bundle
from aotc.errors import AotcError
from aotc.ir.expr import Load, rewrite
from aotc.ir.layout import Layout, Pad, Reorder, Split
from aotc.ir.program import Buffer, Compute, Program, static_shape
from aotc.ir.relayout import relayout
from aotc.ir.rewrites import apply_rewrites
from aotc.ir.unfold import CHANNELS, match_unfold
from aotc.pipeline import Options, run_pipeline
from aotc.runtime.build import build
from aotc.runtime.model import load
from aotc.sched import check_schedule, decide, lower
from aotc.sched.layout_choices import channels_last
from aotc.target import get_target
from benchmarks.alt_operators import KINDS, RANK
from benchmarks.kernels import _model, _random

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
    attrs |= {"pads": [c["dilation"] * (k - 1) // 2] * 2 * rank, "dilations": [c["dilation"]] * rank}
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
    """{name: {buffer: Layout} of the input and the output}."""
    shapes = {b: static_shape(program.shape(b)) for b in program.inputs + program.outputs}
    return {name: {b: fixed_layout(name, s, target.lanes) for b, s in shapes.items()}
            for name in FIXED}


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


def compiled(program, layouts, target, folder):
    """The loaded Model that holds the operator once per entry of ``layouts``, and the names of the
    rows that each became."""
    parts = []
    for name, own in layouts.items():
        part = renamed(relayout(program, own), f"{name}_")
        parts.append(apply_rewrites(part, first_layers(part)))
    whole = Program("op", *(sum((getattr(p, a) for p in parts), ()) for a in ("inputs", "outputs")),
                    *({n: b for p in parts for n, b in getattr(p, a).items()}
                      for a in ("buffers", "consts")), sum((p.steps for p in parts), ()))
    schedule = decide(whole, target)
    faults = check_schedule(whole, schedule, target)
    if faults:
        raise AotcError("\n".join(faults))
    info = {"model_hash": "0" * 64, "graph": "op"}
    write_bundle(render_bundle(lower(whole, schedule, target), schedule, info, profile=True), folder)
    build(folder)
    rows = {n: [f"{u.split('__')[0]}" + "".join(f" {k}:{v}" for k, v in g.loops.get(s, {}).items()
                                               if k in ("a", "b"))
                for g in schedule.groups if g.outputs[0].startswith(f"{n}_")
                for s, u in g.ukernel.items()] for n in layouts}
    return load(folder), rows


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
    while calls < 5 or time.perf_counter() < end:
        model.profile(reset=True)
        call()
        calls += 1
        took = {}
        for cost in model.profile():
            took[cost.nodes[0]] = took.get(cost.nodes[0], 0.0) + cost.seconds * 1e3
        best = {n: min(best.get(n, 1e9), took[f"{n}_"]) for n in layouts}
    return best


def measure(kind, c, target, seconds):
    """One line of the results, plain data."""
    model, feeds = operator(kind, c)
    with tempfile.TemporaryDirectory(prefix="aotc-layouts-") as folder:
        path = Path(folder) / "op.onnx"
        onnx.save(model, path)
        program = run_pipeline(Options(path, target=target.name, stop_after="inline")).program
        layouts, shape = variants(program, target), static_shape(program.shape(program.outputs[0]))
        built, rows = compiled(program, layouts, target, Path(folder) / "bundle")
        before = pin(1)
        try:
            times = shortest(built, layouts, feeds, shape, seconds)
        finally:
            os.sched_setaffinity(0, before)
    return {"operator": kind, **c, "ms": times, "rows": rows}


def main(argv=None):
    """Measure; the exit code is 1 if a configuration failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operators", nargs="*", help=", ".join(KINDS))
    parser.add_argument("--count", type=int, default=10, help="configurations of each")
    parser.add_argument("--target", default="native")
    parser.add_argument("--seconds", type=float, default=1.0, help="per configuration")
    parser.add_argument("--json", default="layouts.json", help="file for the results")
    args = parser.parse_args(argv)
    target, table, results, failed = get_target(args.target), json.loads(FILE.read_text()), [], []
    for kind in args.operators or KINDS:
        for c in table[kind][:args.count]:
            try:
                row = measure(kind, c, target, args.seconds)
            except AotcError as err:
                failed.append([kind, c])
                print(f"{kind} {c} failed: {err}", file=sys.stderr)
                continue
            results.append(row)
            print(kind, " ".join(f"{n} {t:.3f}" for n, t in row["ms"].items()), c, row["rows"],
                  flush=True)
            Path(args.json).write_text(json.dumps(results))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
