"""DietCode's three workloads: one bundle for all shapes beside one for each, and beside peers.

    python -m benchmarks.dietcode [WORKLOAD ...] [--threads 1 2] [--variants auto] [--rounds 3]
                                  [--folder FOLDER] [--prepare]

``sequence``: [16 T, 768] x [768, 2304], T of 1..128; ``hidden``: [1024, I] x [H, I]^T, I and H of
768, 2304 and 3072, both operands fed; ``batch``: a 3x3 convolution of ResNet-50, 16..32 images.
For every shape: milliseconds (the shortest call, systems taking turns), and speed by that of a
bundle compiled for the shape alone, of ONNX Runtime and of OpenVINO on the same dynamic file (above
1: faster).
``--prepare`` compiles and builds into ``--folder`` what a later run measures.  Nothing is asserted;
pin it (taskset) to as many CPUs as it has threads.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx

import aotc
from benchmarks import turns
from benchmarks.exported.build import Writer

HIDDEN = (768, 2304, 3072)
TOKENS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48, 60, 64, 80, 96, 112, 120, 128)


def sequence():
    """A layer of BERT over 16 sequences of T tokens, with constant weights."""
    g = Writer("sequence", 1)
    return g.model(g.op("MatMul", g.input("x", ["rows", 768]), g.weight(768, 2304)))


def hidden():
    """The same with both sizes free: its weights are an input."""
    g = Writer("hidden", 1)
    return g.model(g.op("Gemm", g.input("x", [1024, "i"]), g.input("w", ["h", "i"]), transB=1))


def batch():
    """The 3x3 convolution that ResNet-50 has most often."""
    g = Writer("batch", 1)
    x = g.input("x", ["n", 256, 14, 14])
    return g.model(g.op("Conv", x, g.weight(256, 256, 3, 3), pads=[1, 1, 1, 1]))


# workload -> (its model, dims of the one bundle, calls)
WORKLOADS = {
    "sequence": (sequence, {"rows": (16, 2048)}, [{"rows": 16 * t} for t in TOKENS]),
    "hidden": (hidden, {"i": set(HIDDEN), "h": set(HIDDEN)},
               [{"i": i, "h": h} for i in HIDDEN for h in HIDDEN]),
    "batch": (batch, {"n": (16, 32)}, [{"n": n} for n in (16, 17, 19, 20, 23, 24, 28, 31, 32)]),
}


def feeds_of(model, extents, rng):
    """Normal inputs of a call."""
    shapes = {x.name: [extents.get(d.dim_param, d.dim_value) for d in x.type.tensor_type.shape.dim]
              for x in model.graph.input}
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def prepared(model, name, dims, folder, **options):
    """The folder of a built bundle, made if it is not there, with the seconds its search took."""
    if not (folder / "manifest.json").exists():
        made = aotc.compile(model, folder, name=name, dims=dims, **options)
        made.load()
        (folder.parent / f"{folder.name}.json").write_text(json.dumps(made.seconds))
    return folder, json.loads((folder.parent / f"{folder.name}.json").read_text())["schedule"]


def kernels_of(folder):
    """How many functions of kernels a bundle has."""
    manifest = json.loads((folder / "manifest.json").read_text())
    return len({k["c"] for k in manifest["kernels"]})


def prepare(name, args, folder):
    """(free bundle, its model's path, [(call, static bundle)]) of a workload."""
    build, dims, calls = WORKLOADS[name]
    model, home = build(), folder / name
    home.mkdir(parents=True, exist_ok=True)
    onnx.save(model, home / "model.onnx")
    variants = None if args.variants == "none" else args.variants
    free, seconds = prepared(model, name, dims, home / f"free-{args.variants}", variants=variants)
    static = [(c, prepared(model, name, c, home / "-".join(map(str, c.values())))[0])
              for c in calls]
    print(f"{name}: {kernels_of(free)} kernels, search {seconds:.1f} s", flush=True)
    return free, model, static


def measure(name, args, folder):
    """Print a line for every call of a workload, and means, for every number of threads."""
    free, model, static = prepare(name, args, folder)
    if args.prepare:
        return
    for threads in args.threads:
        print(f" {threads} thread{'s' if threads > 1 else ''}", flush=True)
        ours = aotc.load(free, threads=threads)
        peers = turns.opened(folder / name / "model.onnx", threads)
        labels, times = [], {n: [] for n in ("aotc", "static", *peers)}
        for extents, path in static:
            feeds = feeds_of(model, extents, np.random.default_rng(1))
            fixed = aotc.load(path, threads=threads)
            right = next(iter(fixed.run(feeds).values()))
            systems = {"aotc": [ours.bind(feeds)], "static": [fixed.bind(feeds)]}
            np.testing.assert_allclose(next(iter(systems["aotc"][0]().values())), right,
                                       rtol=1e-3, atol=1e-3)
            systems |= {p: [lambda run=run, x=feeds: run(x)] for p, run in peers.items()}
            for system, rows in turns.in_turns(systems, args.rounds).items():
                times[system] += rows
            labels.append(", ".join(f"{n} {v}" for n, v in extents.items()))
        turns.report(labels, times, min)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], metavar="N")
    parser.add_argument("--variants", choices=["auto", "none"], default="auto")
    parser.add_argument("--rounds", type=int, default=3, help="per system and shape")
    parser.add_argument("--folder", type=Path, help="keep models and bundles here, use those there")
    parser.add_argument("--prepare", action="store_true", help="compile and build, measure nothing")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="aotc-dietcode-") as scratch:
        for name in args.names or WORKLOADS:
            start = time.perf_counter()
            measure(name, args, args.folder or Path(scratch))
            print(f"  {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
