"""Differential fuzzing below the frontend: random Programs (not ONNX graphs), decided or under
random legal Schedules, through the emitter and the C compiler against the evaluator.

    python tests/fuzz/run_programs.py --seconds 600 --seed 0 [--batch 12]

Batches of Programs share a bundle for one of the targets that this machine runs, drawn with the
number of threads and how edges are connected.  Prints one line per finding and exits with 1 if
there was any; a batch is reproduced by its first seed with the same --batch.
"""

import argparse
import random
import sys
import tempfile
import time
import warnings
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "helpers"))

from harness import RUNNABLE, Case, build_cases  # noqa: E402
from te_random import random_program, random_schedule  # noqa: E402

from aotc.passes.inline import inline_moves  # noqa: E402
from aotc.sched import CONNECT, decide  # noqa: E402

TARGETS = tuple(t for t in RUNNABLE if t.emitter != "simt")


def case(seed, target):
    """The Case of a seed: every other one under a random Schedule, two of three with moves
    inlined as the pipeline does."""
    program = random_program(seed)
    program = inline_moves(program) if seed % 3 else program
    if seed % 2:
        schedule = random_schedule(program, target, seed)
    else:
        schedule = decide(program, target, random.Random(seed).choice(list(CONNECT)))
    return Case(f"seed {seed}", program, schedule, 2e-5, floor=1.0)  # sums of both signs cancel


def batch_faults(seed, count, folder):
    """Lines that say what is wrong with the ``count`` Programs from ``seed`` on."""
    rng = random.Random(seed)
    target, threads = rng.choice(TARGETS), rng.choice((1, 2))
    where = f"batch {seed} ({target.name}, {threads} threads)"
    try:
        cases = [case(s, target) for s in range(seed, seed + count)]
        built = build_cases(cases, target, folder, threads=threads)
        built.check(seed)
        built.check(seed + 1, syms=lambda s, r: s.lo)
        built.check(seed + 2, syms=lambda s, r: s.hi)
    except AssertionError as err:
        return [f"{where}: {line}" for line in str(err).splitlines()]
    except Exception as err:  # whatever else comes out is a finding
        return [f"{where}: {type(err).__name__}: {str(err)[:2000]}"]
    return []


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--batches", type=int, help="stop after so many")
    args = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    end, seed, found, done = time.monotonic() + args.seconds, args.seed, 0, 0
    while time.monotonic() < end and (args.batches is None or done < args.batches):
        with tempfile.TemporaryDirectory(prefix="aotc-fuzz-") as folder:
            lines = batch_faults(seed, args.batch, Path(folder) / "bundle")
        for line in lines:
            print(line, flush=True)
        found, seed, done = found + len(lines), seed + args.batch, done + 1
    print(f"{seed - args.seed} Programs from seed {args.seed}: {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
