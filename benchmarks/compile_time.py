"""Compile time against size: families of models that repeat one structure.

    python -m benchmarks.compile_time [FAMILY ...] [--target x86-64-v3] [--json times.json]

Per family and size: CPU seconds of this process for all stages without writing, connected by cost
and at register level, the stage that took longest, and how many times longer the model takes than
the one of half its size.  A ratio above 2.3 means that time grows with the shape of a model.
"""

import argparse
import json
import multiprocessing
import time

from aotc.options import Options
from aotc.pipeline import run_pipeline
from benchmarks.repeated import FAMILIES


def measured(family, size, how, target):
    """(CPU seconds, name of the stage that took longest) of one model, in this process."""
    model = FAMILIES[family].model(size)
    start = time.process_time()
    work = run_pipeline(Options(model, None, target, family, connect=how, stop_after="bundle"))
    return time.process_time() - start, max(work.seconds, key=work.seconds.get)


def rows(families, target):
    """One {family, size, register_s, all_s, longest, ratio} after the other; every model in a
    process of its own, for what one has found must not serve another."""
    context = multiprocessing.get_context("spawn")
    for family in families:
        before = None
        for size in FAMILIES[family].sizes:
            found = {}
            for how in ("register", "all"):
                with context.Pool(1) as pool:
                    found[how] = pool.apply(measured, (family, size, how, target))
            taken = found["all"][0]
            yield {"family": family, "size": size, "register_s": found["register"][0],
                   "all_s": taken, "longest": found["all"][1],
                   "ratio": before and taken / before}
            before = taken


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--target", default="x86-64-v3")
    parser.add_argument("--json", metavar="FILE", help="also write the rows there")
    args = parser.parse_args(argv)
    unknown = [f for f in args.families if f not in FAMILIES]
    if unknown:
        parser.error(f"no family {', '.join(unknown)}; choose from {', '.join(FAMILIES)}")
    print("| family | size | register s | by cost s | longest stage | ratio |")
    print("|---|--:|--:|--:|---|--:|")
    done = []
    for row in rows(args.families or FAMILIES, args.target):
        done.append(row)
        ratio = f"{row['ratio']:.2f}" if row["ratio"] else ""
        print(f"| {row['family']} | {row['size']} | {row['register_s']:.1f} | {row['all_s']:.1f} | "
              f"{row['longest']} | {ratio} |", flush=True)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(done, f, indent=1)


if __name__ == "__main__":
    main()
