"""Differential fuzzing of whole models: random ONNX graphs through the compiler, the C compiler and
cffi, against the reference evaluator and ONNX Runtime.

    python tests/fuzz/run_graphs.py --seconds 600 --seed 0 [--target native] [--sanitize] [--draw]

Prints one line per finding (its seed reproduces it) and exits with 1 if there was any.
``--sanitize`` runs every bundle's own test under the address and undefined-behaviour sanitizers
instead of comparing through cffi.  ``--draw`` draws target, decisions, threads and dynamic
dimensions of every graph by its seed too.  ``--plans`` compiles each graph for a target of its own,
up to the Plan, and runs nothing: most graphs in the least time.
"""

import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import ModelProto
from onnx_graphs import DTYPES, STORED, random_graph

import aotc
from aotc.errors import ModelError, ScheduleError, UnsupportedError
from aotc.ir.dtypes import TEXT
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.pipeline import run_pipeline
from aotc.runtime.tensor_info import stored_dtype
from aotc.target import TARGETS, runs_here

FLAGS = "-Og -Wall -Wextra -Werror"
SANITIZE = "-O0 -fsanitize=address,undefined -fno-sanitize-recover=all"


def close(got, want, rounding):
    """Equal, or for outputs with roundings equal up to a share of the largest finite value; bytes
    up to a step."""
    if isinstance(want, list):
        return len(got) == len(want) and all(close(g, w, rounding) for g, w in zip(got, want))
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if want.dtype == object:
        return got.tolist() == want.tolist()
    if want.dtype in STORED:
        got, want = got.astype(np.float32), want.astype(np.float32)
    if rounding and want.dtype in (np.uint8, np.int8):
        return bool((np.abs(got.astype(int) - want) <= 1).all())
    if not rounding or want.dtype.kind != "f":
        # -0.0 == 0.0, NaN equals NaN
        return np.array_equal(got, want, equal_nan=want.dtype.kind == "f")
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return False
    scale = max(1e-3, float(np.max(np.abs(want[finite]), initial=0)))
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(got[finite].astype(np.float64) - want[finite].astype(np.float64))
    return bool((error <= rounding * scale).all())


def part(model, output):
    """The model with the nodes that one output needs, no other output and no input beside theirs:
    one of a dtype that ONNX Runtime lacks would leave it without an opinion."""
    needed, nodes = {output}, []
    for node in reversed(model.graph.node):  # random graphs are in order
        if needed.intersection(node.output):
            nodes.insert(0, node)
            needed.update(node.input)
            needed.update(i for a in node.attribute for n in a.g.node for i in n.input)
            needed.update(o.name for a in node.attribute for o in a.g.output)
    out = ModelProto()
    out.CopyFrom(model)
    del out.graph.node[:], out.graph.output[:]
    out.graph.node.extend(nodes)
    out.graph.output.extend(o for o in model.graph.output if o.name == output)
    for rows in (out.graph.input, out.graph.initializer, out.graph.value_info):
        kept = [r for r in rows if r.name in needed]
        del rows[:]
        rows.extend(kept)
    return out


def opinions(graph, outputs):
    """{output: array} from ONNX Runtime: of the graph, or of the part that an output needs where
    it refuses something else in it."""
    found = second_opinion(graph)
    for n in (n for n in outputs if n not in found):
        model = part(graph.model, n)
        one = replace(graph, model=model, wanted={n: graph.wanted[n]},
                      feeds={i.name: graph.feeds[i.name] for i in model.graph.input})
        found |= second_opinion(one)
    return found


def second_opinion(graph):
    """{output: array} from ONNX Runtime, or {} where it is not there or refuses the model."""
    try:
        import onnxruntime as ort
        options = ort.SessionOptions()
        options.log_severity_level = 4
        session = ort.InferenceSession(graph.model.SerializeToString(), options,
                                       providers=["CPUExecutionProvider"])
        return dict(zip(graph.wanted, session.run(list(graph.wanted), graph.feeds)))
    except Exception:  # it raises its own classes, and many; it is only a second opinion
        return {}


def sanitized(graph, folder):
    """Lines that say what the sanitizers found in a run of the bundle's test on the graph's own
    inputs: counts that come from data fit those only.  What the test says of the outputs does not
    count here, another run compares them."""
    manifest = json.loads((folder / "manifest.json").read_text())
    extents = {d["symbol"]: n for t in manifest["inputs"]
               for d, n in zip(t["shape"], graph.feeds[t["onnx"]].shape) if isinstance(d, dict)}
    runs = b"".join(struct.pack("<q", extents[s["name"]]) for s in manifest["symbols"])
    runs += b"".join(np.ascontiguousarray(a).tobytes() for arrays in (graph.feeds, graph.wanted)
                     for a in arrays.values())
    (folder / "test_random.bin").write_bytes(b"AOTCTST1" + struct.pack("<Q", 1) + runs)
    done = subprocess.run(["make", "-s", "test", f"CFLAGS={SANITIZE}"], cwd=folder,
                          capture_output=True, text=True, timeout=300)
    text = done.stdout + done.stderr
    told = "Sanitizer" in text or "runtime error" in text or "FAILED" not in text
    return [text[-2000:]] if done.returncode and told else []


# what a user may ask for: option of aotc.compile -> values, the first one most of the time
DRAWN = {"connect": ("all", "none", "register"), "math": (None, "exact"),
         "optimize": (None, "size"), "winograd": ("auto", "off", 2, 4, 6),
         "weights": ("file", "embed"), "profile": (False, True),
         "arena": (None, None, None, 1 << 10, 1 << 14, 1 << 17)}


def drawn(seed, target):
    """Options of ``aotc.compile`` for a seed, ``threads`` among them."""
    rng = random.Random(seed)
    options = {name: values[0] if rng.random() < 0.5 else rng.choice(values)
               for name, values in DRAWN.items()}
    here = [t.name for t in TARGETS.values() if t.arch in ("", "x86_64", "aarch64")
            and t.name != "riscv64" and not t.name.startswith("cuda") and runs_here(t)]
    return options | {"target": rng.choice([target, *here]), "threads": rng.choice((1, 1, 2))}


def dynamic(graph, seed):
    """The graph with some extents of its inputs as names, equal ones often of one name, so that
    the compiler finds their ranges."""
    rng, model = random.Random(seed), ModelProto()
    model.CopyFrom(graph.model)
    for number, info in enumerate(model.graph.input):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_value > 1 and not info.name.startswith("p") and rng.random() < 0.4:
                dim.dim_param = f"n{dim.dim_value}" + rng.choice(("", f"_{number}"))
    for info in model.graph.output:  # of what extents they get
        info.type.tensor_type.ClearField("shape")
    return replace(graph, model=model)


def ranges(graph, seed):
    """Ranges of one or two named extents of a graph for kernels of their own, around those that it
    is run with; None most of the time."""
    rng = random.Random(seed + 1)
    names = sorted({d.dim_param for i in graph.model.graph.input
                    for d in i.type.tensor_type.shape.dim if d.dim_param})
    found = {}
    for name in rng.sample(names, min(len(names), rng.choice((0, 1, 1, 2)))):
        n = int(name[1:].partition("_")[0])
        found[name] = rng.choice(([(n, n)], [(1, n - 1)], [(1, n)], [(n, n + 3)], [(n, None)],
                                  [(1, 1), (2, n)], [(1, n - 1), (n, n)]))
    return found or None


# one of each kind of decisions and statements
PLANNED = ("c", "x86-64-v1", "x86-64-v3", "x86-64-v4", "x86-64-v4-amx", "aarch64", "riscv64",
           "cuda:sm_90", "dsa:stcp920")


def plan_faults(graph, seed):
    """Like ``faults``, of the Plan for one of ``PLANNED``: what its own checks refuse."""
    target = random.Random(seed).choice(PLANNED)
    try:
        work = run_pipeline(Options(graph.model, target=target, name="random", stop_after="plan"))
    except (UnsupportedError, ModelError):
        return None
    except Exception as err:  # whatever else comes out is a finding
        return [f"{target}: {type(err).__name__}: {err}"]
    return [] if work.refused is None else [f"{target}: decided again: {work.refused}"]


def evaluated(graph, target):
    """{output: array} of the Program in numpy, as the scheduler gets it; not of strings and
    sequences, which the caller of a bundle sees in another form."""
    program = run_pipeline(Options(graph.model, target=target, name="random",
                                   stop_after="inline")).program
    feeds = {n: a.view(f"u{a.itemsize}") if a.dtype in STORED else a
             for n, a in graph.feeds.items()}
    buffers = [(program.buffers[n], a) for n, a in evaluate(program, feeds).items()]
    return {b.onnx: a.view(stored_dtype(b.stored)) if b.stored else a for b, a in buffers
            if b.onnx in graph.wanted and b.stored != TEXT}


def faults(graph, folder, target="c", sanitize=False, options=None):
    """Lines that say what is wrong with the compiled graph; [] if it is right, None if it is
    refused with good reason.  ``options``: of ``aotc.compile``, ``threads``, and ``evaluate`` for
    the Program instead."""
    options = {"target": target} | (options or {})
    threads, in_numpy = options.pop("threads", 1), options.pop("evaluate", False)
    try:
        if in_numpy:
            return differences(graph, evaluated(graph, target))
        bundle = aotc.compile(graph.model, folder, name="random", **options)
        if sanitize:  # runs are recorded as the bundle has them: plain numbers
            plain = all(getattr(a, "dtype", None) in DTYPES
                        for a in (*graph.feeds.values(), *graph.wanted.values()))
            return sanitized(graph, folder) if plain else []
        if bundle.refused is not None:
            return [f"decided again: {bundle.refused}"]
        got = bundle.load(threads).run(graph.feeds)
    except UnsupportedError:
        return None
    except ScheduleError as err:
        # extents may have no such range; then the message says which there are
        asked = options.get("variants") and all(f.startswith("variants") for f in err.faults)
        return None if asked or "arena limit" in str(err) and options.get("arena") else [f"{err}"]
    except ModelError as err:  # the reference evaluator takes graphs that nobody else does
        return [f"ModelError: {err}"] if second_opinion(graph) else None
    except Exception as err:  # whatever else comes out is a finding
        return [f"{type(err).__name__}: {err}"]
    return differences(graph, got)


def differences(graph, got):
    """Lines that say which outputs are wrong."""
    wrong = [n for n, want in graph.wanted.items()
             if n in got and not close(got[n], want, graph.rounding[n])]
    other = opinions(graph, wrong) if wrong else {}
    return [f"{n}: got {head(got[n])}, reference {head(graph.wanted[n])}"
            for n in wrong if n not in other or not close(got[n], other[n], graph.rounding[n])]


def head(array):
    """The first elements of a tensor, of every one of a sequence."""
    return [head(a) for a in array] if isinstance(array, list) else array.reshape(-1)[:6]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--graphs", type=int, help="stop after so many graphs")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--target", default="native")
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--evaluate", action="store_true",
                        help="the Program in numpy, up to what is scheduled; ten times as many")
    parser.add_argument("--of", choices=("contrib", "joined", "loops", "ml", "more",
                                         "nodes", "rows", "stored", "texts"),
                        help="most nodes from this module's rows")
    parser.add_argument("--plans", action="store_true",
                        help="decisions and Plans for targets of all kinds, nothing is run")
    args = parser.parse_args(arguments)
    os.environ["CFLAGS"] = FLAGS
    warnings.simplefilter("ignore")
    end, seed, found, refused = time.monotonic() + args.seconds, args.seed, 0, 0
    while time.monotonic() < end and (args.graphs is None or seed < args.seed + args.graphs):
        graph, options = random_graph(seed, of=args.of), {}
        if args.evaluate:
            options = {"evaluate": not any(a.dtype == object for a in graph.feeds.values())}
        if args.draw or args.plans:
            options = drawn(seed, args.target)
            if seed % 3 == 0:
                graph = dynamic(graph, seed)
                options["variants"] = ranges(graph, seed)
        with tempfile.TemporaryDirectory(prefix="aotc-fuzz-") as folder:
            lines = plan_faults(graph, seed) if args.plans else faults(
                graph, Path(folder) / "bundle", args.target, args.sanitize, options)
        if lines is None:
            refused += 1
        elif lines:
            found += 1
            print(f"seed {seed}: {'; '.join(lines)}", flush=True)
        seed += 1
    print(f"{seed - args.seed} graphs from seed {args.seed}: {found} findings, {refused} refused")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
