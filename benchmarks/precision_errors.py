"""How far every level of precision is from f32 and from double precision, model by model.

    python -m benchmarks.precision_errors [MODEL ...] [--target x86-64-v4-bf16]

Models are those of the zoo, or .onnx files.  A line per model and level: the largest difference of
the worst output from f32 and from f64, as shares of its range, on one set of random inputs (the
same of all levels).  Levels with rows of their own are those that a budget (``--error``) may give.
The evaluator computes what a bundle does, but for roundings of f32, so that nothing is built and
any machine gives the same numbers; a model takes a minute or a few.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from aotc.ir.dtypes import is_float
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.shares import share_of_range
from aotc.passes.rewrites import apply_rewrites
from aotc.pipeline import run_pipeline
from aotc.samples import measuring_feeds
from aotc.sched.candidates.choose_rewrites import choose_rewrites
from aotc.sched.precision.levels import LEVELS, Level, levels_of, uniform_levels
from aotc.tools.exact import exact_outputs, exact_program
from benchmarks import models


def chosen(work, level, winograd="auto"):
    """The rewrites that a model gets at a level."""
    own = uniform_levels(work.program, level) if level.rows else None
    rewrites, _ = choose_rewrites(work.program, work.target, winograd, True, {}, True,
                                  level.precision, own)
    return rewrites


def outputs(program, rewrites, feeds):
    """{float output: array} of a Program with rewrites, by ONNX name."""
    found = evaluate(apply_rewrites(program, rewrites), feeds)
    return {program.buffers[n].onnx or n: a for n, a in found.items()
            if is_float(program.dtype(n))}


def worst(got, want):
    """The largest share of all outputs; None without ``want``."""
    return None if want is None else max(share_of_range(a, want[n]) for n, a in got.items())


def lines(path, target):
    """Of one model."""
    options = Options(path, target=target, stop_after="inline")
    work = run_pipeline(options)
    feeds = measuring_feeds(work.program)[0][0]
    wide = exact_program(options)
    exact = None if wide is None else exact_outputs(wide, feeds, np.inf)
    del wide
    f32 = None
    for level in (Level("f32"), *LEVELS):
        rewrites = chosen(work, level)
        if level not in (Level("f32"), *levels_of(rewrites).values()):
            continue
        found = outputs(work.program, rewrites, feeds)
        f32 = f32 or found
        shares = [worst(found, f32), worst(found, exact)]
        near, far = ("     -" if s is None else f"{s:.1e}" for s in shares)
        yield f"{Path(path).stem:16} {level!s:14} f32 {near}  f64 {far}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--target", default="x86-64-v4-bf16")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in args.models or models.names():
            path = name if name.endswith(".onnx") else models.case(name, Path(folder)).path
            for line in lines(path, args.target):
                print(line, flush=True)


if __name__ == "__main__":
    main()
