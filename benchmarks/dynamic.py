"""One bundle for ranges of extents beside bundles for one extent each and beside peers.

    python -m benchmarks.dynamic [MODEL ...] [--threads 1 2] [--variants auto] [--calls 1-3]
                                 [--models FOLDER] [--folder FOLDER] [--prepare] [--budget 200]

Image models get free batch, height and width; bert_small_dyn its own batch and sequence, gpt2_dyn
its sequence.  They are the zoo's where there is one, else written here with random weights.  Every
system goes through all calls, as a server sees them, then it is the next one's turn.  For every
call: milliseconds (medians) and speed by that of a bundle for these extents alone, of ONNX Runtime
and of OpenVINO, as far as installed, on the same dynamic file (above 1: faster); then geometric
means, worst calls, bytes of C and weights by the static bundles' medians, and seconds of compiling.
``--calls`` takes some of the calls, by place.  ``--prepare`` compiles and builds into ``--folder``
what a later run measures.  ``--budget``: seconds; no bundle for one call is begun after two thirds
of them, no round after all.  Nothing is asserted; pin it (taskset) to as many CPUs as threads.
"""

import argparse
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import onnx

import aotc
from aotc.runtime.compile_bundle import build
from benchmarks import dynamic_models, models, turns

FREE = ("b", 3, "h", "w")
IMAGES = {"b": (1, 8), "h": (96, 512), "w": (96, 512)}
CALLS = ((1, 96, 96), (1, 101, 131), (1, 224, 224), (2, 320, 256), (1, 512, 512), (4, 128, 192))
EVEN = ((1, 96, 96), (1, 112, 160), (1, 224, 224), (2, 320, 256), (1, 512, 512), (4, 128, 192))
SIDES = ((128, 128), (131, 250), (224, 224), (256, 384), (400, 300), (512, 512))
LENGTHS = ((1, 1), (1, 16), (1, 128), (4, 32), (8, 256), (1, 7), (2, 77), (1, 384), (8, 8),
           (1, 512))
SEQUENCES = ((1,), (16,), (128,), (512,), (7,), (77,), (384,))
SHARE = 2 / 3  # of the budget, in which bundles are made


@dataclass(frozen=True)
class Case:
    """``image``: the free shape of an image model's input, None: the model's own dimensions."""

    image: tuple | None
    ranges: dict
    calls: tuple


CASES = {
    "resnet18": Case(FREE, IMAGES, CALLS), "mobilenet_v2": Case(FREE, IMAGES, CALLS),
    "unet": Case(FREE, IMAGES, EVEN), "nafnet": Case(FREE, IMAGES, EVEN),
    "fcn": Case((1, 3, "h", "w"), {"h": (128, 512), "w": (128, 512)}, SIDES),
    "bert_small_dyn": Case(None, {"batch": (1, 8), "seq": (1, 512)}, LENGTHS),
    "gpt2_dyn": Case(None, {"seq": (1, 512)}, SEQUENCES)}


def freed(path, extents):
    """The model with these extents of its only input, numbers or names."""
    model = onnx.load(path)
    del model.graph.value_info[:]
    for dim, extent in zip(model.graph.input[0].type.tensor_type.shape.dim, extents):
        dim.Clear()
        if isinstance(extent, str):
            dim.dim_param = extent
        else:
            dim.dim_value = extent
    for output in model.graph.output:
        for dim in output.type.tensor_type.shape.dim:
            dim.Clear()
    return model


def model_of(name, folder):
    """The dynamic model: the zoo's, a file in ``folder``, or one written here.  SystemExit if
    there is none."""
    path, image = folder / f"{name}.onnx", CASES[name].image
    if not path.exists() and models.zoo_folder().is_dir() and name != "fcn":
        path = models.case(name, folder).path
    if path.exists():
        return onnx.load(path) if image is None else freed(path, image)
    if name in dynamic_models.IMAGES:
        return dynamic_models.IMAGES[name](image)
    if name in dynamic_models.TOKENS:
        return dynamic_models.TOKENS[name]()
    raise SystemExit(f"{name}: only in the zoo (AOTC_ZOO)")


def feeds_of(model, values, rng):
    """Random inputs of a call: normal floats, ids below 1000, masks of ones."""
    stored, feeds = {t.name for t in model.graph.initializer}, {}
    for x in model.graph.input:
        kind = x.type.tensor_type
        shape = [values.get(d.dim_param, d.dim_value) for d in kind.shape.dim]
        if x.name in stored:
            continue
        if kind.elem_type == onnx.TensorProto.FLOAT:
            feeds[x.name] = rng.standard_normal(shape).astype(np.float32)
        else:
            mask = "mask" in x.name
            feeds[x.name] = np.ones(shape, np.int64) if mask else rng.integers(0, 1000, shape)
    return feeds


def made(model, folder, name, dims, **options):
    """Seconds that compiling and building took, {stage: seconds}; once per folder."""
    note = folder.parent / f"{folder.name}.json"
    if not note.exists():
        start = time.perf_counter()
        bundle = aotc.compile(model, folder, name=name, dims=dims, **options)
        stages = bundle.seconds | {"compile": time.perf_counter() - start}
        build(folder, jobs=len(os.sched_getaffinity(0)))
        note.write_text(json.dumps(stages | {"all": time.perf_counter() - start}))
    return json.loads(note.read_text())


def prepared(name, args, home, end):
    """(model, the free bundle's folder, {call: folder of its static bundle, None where the budget
    had no time for it})."""
    home.mkdir(parents=True, exist_ok=True)
    case, model = CASES[name], model_of(name, args.models or home)
    onnx.save(model, home / "free.onnx")
    free = home / f"free-{args.variants}"
    took = made(model, free, name, case.ranges, variants=args.variants)
    print(f"{name}: compiled in {took['compile']:.1f} s (deciding {took['schedule']:.1f}), "
          f"with building {took['all']:.1f} s", flush=True)
    static, seconds = {}, []
    for values in (dict(zip(case.ranges, case.calls[i])) for i in chosen(args.calls, case.calls)):
        folder = home / "-".join(map(str, values.values()))
        there = time.perf_counter() < end or (home / f"{folder.name}.json").exists()
        if there:
            seconds.append(made(model, folder, name, values)["compile"])
        static[tuple(values.items())] = folder if there else None
    sizes(free, [f for f in static.values() if f], seconds)
    return model, free, static


def chosen(text, calls):
    """Places of the calls that ``--calls`` names, as 1-3 or 2,5."""
    if text is None:
        return range(len(calls))
    first, dash, last = text.partition("-")
    places = range(int(first), int(last) + 1) if dash else map(int, text.split(","))
    return [p - 1 for p in places if p <= len(calls)]


def sizes(free, static, seconds):
    """Print bytes of the free bundle by those of static ones."""
    c, weights = turns.bytes_of(free)
    line = f"  C {c / 1e6:.2f} MB, weights {weights / 1e6:.1f} MB"
    if static:
        each = [turns.bytes_of(f) for f in static]
        line += (f"; static {median(e[0] for e in each) / 1e6:.2f}, "
                 f"{median(e[1] for e in each) / 1e6:.1f}: "
                 f"{c / median(e[0] for e in each):.2f} and "
                 f"{weights / median(e[1] for e in each):.2f} times; "
                 f"static compiled in {median(seconds):.1f} s")
    print(line, flush=True)


def measure(name, args, home, end):
    """Print a line for every call of one model, and means, for every number of threads."""
    model, free, static = prepared(name, args, home, end - (1 - SHARE) * args.budget)
    if args.prepare:
        return
    feeds = [feeds_of(model, dict(call), np.random.default_rng(1)) for call in static]
    labels = [", ".join(f"{n} {v}" for n, v in call) for call in static]
    for n, threads in enumerate(args.threads):
        print(f" {threads} thread{'s' if threads > 1 else ''}", flush=True)
        systems = systems_of(home / "free.onnx", free, static.values(), feeds, threads)
        for i, label in enumerate(labels):
            check(label, {s: calls[i]() for s, calls in systems.items() if calls[i]})
        now = time.perf_counter()
        until = now + (end - now) / (len(args.threads) - n)
        turns.report(labels, turns.in_turns(systems, args.rounds, until=until))


def systems_of(path, free, static, feeds, threads):
    """{system: [a function for each call]}, aotc's free bundle first."""
    systems = {"aotc": [bundle_call(free, threads, x) for x in feeds],
               "static": [bundle_call(f, threads, x) for f, x in zip(static, feeds)]}
    for peer, run in turns.opened(path, threads).items():
        systems[peer] = [lambda run=run, x=x: run(x) for x in feeds]
    return systems


def check(label, results):
    """Print which results are not those of the free bundle."""
    for system, other in results.items():
        far = turns.apart(results["aotc"], other)
        if far > turns.CLOSE:
            print(f"  {label}: {system} is {far:.1e} of the largest element apart")


def bundle_call(folder, threads, feeds):
    """A function that calls a bundle on these inputs, None without one."""
    if folder is None:
        return None
    model = aotc.load(folder, threads=threads)
    return lambda: model.run(feeds)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="MODEL", help=f"of {', '.join(CASES)}")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], metavar="N")
    parser.add_argument("--variants", choices=["auto"], help="find ranges by cost")
    parser.add_argument("--calls", metavar="1-3", help="some of the calls, by place")
    parser.add_argument("--models", type=Path, help="folder to keep the .onnx files in")
    parser.add_argument("--folder", type=Path, help="keep bundles here, use those there")
    parser.add_argument("--prepare", action="store_true", help="compile and build, measure nothing")
    parser.add_argument("--rounds", type=int, default=9, help="per system")
    parser.add_argument("--budget", type=float, default=3600, help="seconds for each model")
    args = parser.parse_args(argv)
    for name in args.names or CASES:
        end = time.perf_counter() + args.budget
        with tempfile.TemporaryDirectory(prefix="aotc-dynamic-") as scratch:
            measure(name, args, (args.folder or Path(scratch)) / name, end)


if __name__ == "__main__":
    main()
