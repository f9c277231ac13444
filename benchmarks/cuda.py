"""aotc on a GPU, beside PyTorch: one run of less than nine minutes.

    python -m benchmarks.cuda --out DIR [--stages 1 2 3] [--minutes 8.7] [--target cuda:sm_90]
                              [--machine h100] [--autotune] [--simulate]

Needs Python 3.11 with numpy, onnx, jinja2, cffi and pytest, nvcc and a C compiler. All models are
made from seeds.  Stages: (1) what the GPU reaches: copies and torch's products; (2) tests of the
rows on it; (3) operators: Gensor's, DietCode's, 4096^3, few rows, attention, in all types, beside
torch eager, as a CUDA graph and (4096^3) compiled with max-autotune; (4) nets at batch 1 and 32 in
f16 and tf32, and the zoo's where there is one, beside torch.compile and, where present, ONNX
Runtime's CUDA and TensorRT providers; (5) compute-sanitizer on three models; (6) predicted beside
measured seconds.  What is missing is skipped with a reason, what aotc refuses is written down as
refused.

DIR/cuda.json is written after every row, so that a run that is cut keeps what it has.  Milliseconds
are of one inference with inputs and outputs in device memory; systems take turns.
More --minutes are shared out alike; --autotune is worth having with an hour of them.
--simulate is a dry run of everything but the timing, on tiny shapes, without a GPU.
"""

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

from aotc.errors import AotcError
from aotc.runtime.cuda_model import devices
from aotc.target import TARGETS
from benchmarks import models
from benchmarks.gpu import cases, checks, nets, torch_twins
from benchmarks.gpu.measure import measure_case, measure_kernels, measure_net
from benchmarks.gpu.prepare import Pool
from benchmarks.gpu.stages import Stages
from benchmarks.gpu.timing import time_systems

MINUTES = 8.7  # of a run, unless it is told
# seconds of each stage at most; what one leaves is not the next one's
SHARES = {"1 ceilings": 30, "2 rows": 100, "3 operators": 170, "4 nets": 130, "5 sanitizers": 50,
          "6 cost": 10}
SANITIZED = ("mlp", "convnet", "attention")
KERNELS = 60  # whose predicted seconds stand beside measured ones
DRY = 20  # a simulator may take so many times as long
AUTOTUNED = ("bert_base", "resnet50")  # at batch 1 in f16; of the others compilation takes too long
# of a dry run: one of each kind and type
DRY_KINDS, DRY_TYPES = ("matmul", "conv", "attention", "norm"), ("f32", "f16", "s8", "int4w")
DRY_NETS = ("bert_base", "resnet50", "llama_layer", "diffusion_block")


def operators(simulate):
    """The cases of stage 3, the most wanted first."""
    found = [*cases.CUBE, *cases.FEW_ROWS, *cases.ATTENTION, *cases.DIETCODE, *cases.OTHERS,
             *cases.GENSOR]
    if not simulate:
        return found
    kept = {(c.kind, c.type if c.kind == "matmul" else ""): c.small() for c in reversed(found)
            if c.type in DRY_TYPES and c.kind in DRY_KINDS}
    return [*kept.values()]


def networks(simulate):
    """The nets of stage 4."""
    if not simulate:
        return [*nets.ALL, *nets.zoo_nets()]
    return [nets.Net(n.kind, 2, n.type, small=True) for n in nets.ALL
            if n.batch <= 2 and n.kind in DRY_NETS and n.type != "tf32"]


def measure_ceilings(stages, rows, why):
    """Bytes/s of copies, and torch's products of every type."""
    if why:
        rows["skipped"] = why
        return
    stages.note(rows, "copies of 256 MB", {"TB/s": torch_twins.copy_rate(256 << 20) * 1e-12})
    for case in cases.CUBE:
        if stages.late():
            return
        row = {}
        try:
            torch_twins.allow_tf32(case.type == "tf32")
            feeds = cases.make_feeds([("x", "int8" if case.type == "s8" else "float32",
                                       case.sizes[:2])])
            args = [t for of in torch_twins.tensors_of(case, feeds) for t in of]
            system = torch_twins.eager(torch_twins.function_of(case), args)
            ms = time_systems({"torch": system}, 0.3)["torch"]
            row = {"torch ms": ms, "TFLOP/s": case.flops() / ms * 1e-9}
        except Exception as err:  # what torch lacks differs by version
            row = {"torch": f"{type(err).__name__}: {err}".splitlines()[0]}
        stages.note(rows, case.name, row)


def measure_all(stages, rows, pool, wanted, measure):
    """Rows of what the pool prepares, in turn; what there is no time for is named."""
    for n, one in enumerate(wanted):
        if stages.late():
            rows["left out"] = [w.name for w in wanted[n:]]
            return
        try:
            row = measure(one, pool.get(one.stem, stages.left))
        except TimeoutError:
            row = {"left out": "not built in time"}
        except AotcError as err:
            row = {"failed": str(err)}
        except Exception as err:  # a row that fails is no reason to lose the others
            row = {"failed": f"{type(err).__name__}: {err}".splitlines()[0]}
        stages.note(rows, one.name, row)


def check_sanitized(stages, rows, pool, simulate):
    """compute-sanitizer on small models."""
    for n, name in enumerate(SANITIZED):
        try:
            made = pool.get(f"s_{name}", stages.left)
        except TimeoutError:
            rows["left out"] = SANITIZED[n:]
            return
        row = {"refused": made.fault} if made.fault else (
            {"built": True} if simulate else
            checks.sanitize(made.folder, f"s_{name}", stages.left / (len(SANITIZED) - n)))
        stages.note(rows, name, row)


def compare_kernels(stages, rows, pool, wanted, simulate):
    """Predicted beside measured seconds of the kernels of what was prepared with ``profile``."""
    pairs = {}
    for one in wanted:
        if stages.late() or len(pairs) >= KERNELS:
            break
        try:
            made = pool.get(f"k_{one.stem}", stages.left)
            if not made.fault:
                pairs |= measure_kernels(made, one, simulate)
        except TimeoutError:
            break
    rows.update({"kernels": len(pairs), "skipped": "a dry run"} if simulate
                else checks.compare_costs(pairs))


def own_model(name):
    """One of ``models.OWN``."""
    return models.OWN[name]()[0]


def pick_target(simulate):
    """The target for the first GPU of this machine: its own, else the one for any.  AotcError if
    there is no GPU and nothing is to be simulated."""
    found = devices()
    if not found and not simulate:
        raise AotcError("no GPU here; --simulate does everything but the timing")
    name = f"cuda:{found[0][1]}" if found else "cuda"
    return name if name in TARGETS else "cuda"


def run(args, scratch):
    """All stages that are asked for; the Stages."""
    about = {"target": args.target, "machine": args.machine, "gpus": devices(),
             "simulated": args.simulate, "python": sys.version.split()[0]}
    slow = DRY if args.simulate else 1
    longer = max(1, args.minutes / MINUTES) * slow
    stages = Stages(args.out, args.minutes * 60 * slow, about)
    why = "a dry run" if args.simulate else torch_twins.why_not()
    asked, ops, whole = set(args.stages), operators(args.simulate), networks(args.simulate)
    pool = Pool(scratch, args.target, args.machine, args.simulate, args.jobs)
    try:
        for number, wanted in ((3, ops), (4, whole)):
            for one in wanted if number in asked else ():
                pool.ask(one.stem, one.model, one.options)
        for name in SANITIZED if 5 in asked else ():
            pool.ask(f"s_{name}", partial(own_model, name), {})
        for one in ops[:KERNELS] if 6 in asked else ():
            pool.ask(f"k_{one.stem}", one.model, {**one.options, "profile": True})

        def modes(case):
            return ("max-autotune",) if case.source == "4096^3" and case.type == "f16" else ()

        def mode(net):
            tuned = args.autotune or (net.kind in AUTOTUNED and net.batch == 1
                                      and net.type == "f16")
            return "max-autotune" if tuned else "reduce-overhead"
        work = {
            1: lambda s, rows: measure_ceilings(s, rows, why),
            2: lambda s, rows: rows.update(checks.run_row_tests(s.left, args.simulate)),
            3: lambda s, rows: measure_all(s, rows, pool, ops, lambda c, p: measure_case(
                c, p, args.simulate, why, modes(c))),
            4: lambda s, rows: measure_all(s, rows, pool, whole, lambda n, p: measure_net(
                n, p, args.simulate, why, mode(n))),
            5: lambda s, rows: check_sanitized(s, rows, pool, args.simulate),
            6: lambda s, rows: compare_kernels(s, rows, pool, ops[:KERNELS], args.simulate)}
        for number, (name, seconds) in enumerate(SHARES.items(), 1):
            if number in asked:
                stages.run(name, seconds * longer, work[number])
    finally:
        pool.close()
    return stages


def wrong_rows(results):
    """Names of what failed or is wrong."""
    return [f"{stage}: {name}" for stage, rows in results.items() if stage != "about"
            for name, row in [*rows.items(), (stage, rows)]
            if isinstance(row, dict) and ("failed" in row and row["failed"]
                                          or row.get("ok") is False or row.get("passed") is False)]


def main(argv=None):
    """Measure; the exit code is 1 if something failed or is wrong, 2 if there is nothing to run
    on."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="folder for cuda.json")
    parser.add_argument("--stages", type=int, nargs="+", default=[*range(1, len(SHARES) + 1)])
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of the whole run")
    parser.add_argument("--target", help="the first GPU's own if left out")
    parser.add_argument("--machine", help="the GPU that is decided for, by name (aotc targets)")
    parser.add_argument("--simulate", action="store_true", help="build for the CPU, check only")
    parser.add_argument("--autotune", action="store_true",
                        help="torch compiles every net with max-autotune: it takes minutes each")
    parser.add_argument("--jobs", type=int, help="processes that compile (one a CPU)")
    parser.add_argument("--scratch", help="folder for models and bundles; a temporary one")
    args = parser.parse_args(argv)
    try:
        args.target = args.target or pick_target(args.simulate)
    except AotcError as err:
        parser.error(str(err))
    with tempfile.TemporaryDirectory(prefix="aotc-cuda-") as scratch:
        folder = Path(args.scratch or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        stages = run(args, folder)
    wrong = wrong_rows(stages.results)
    print("\n".join(wrong) or "nothing is wrong", f"\n{stages.path}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
