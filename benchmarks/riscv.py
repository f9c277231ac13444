"""What models cost on RISC-V with vectors, counted under an emulator, per function.

    python -m benchmarks.riscv [MODEL|FILE.onnx ...] [--vlen 128,256,512] [--dlen 128]
                               [--functions] [--json riscv.json] [--models FOLDER]

Emulated time means nothing, so a plugin of the emulator (``tests/qemu/rvcost.c`` says what counts
how) counts one call of a model: the same numbers on every run.  The score of a function is

    scalar instructions (vset included) + micro-ops x VLEN/DLEN + elements moved one by one

for a datapath of DLEN bits: a micro-op works on one register of VLEN bits.  DLEN is 128 unless
told, the narrowest there is, so that vector work weighs most.  The bundle for ``riscv64`` stands
beside the portable one (``c``), vectorised by the same compiler from the same flags; ratios below
1 mean that ``riscv64`` needs less.  Needed are the packages that the target names and a C compiler
for the plugin; QEMU 5 to 8.
"""

import argparse
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import aotc
from aotc.errors import AotcError
from aotc.ir.bundle import emulators
from aotc.runtime.compile_bundle import find_compiler, read_manifest
from aotc.target import get_target
from benchmarks import models

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "tests" / "qemu"
FLAGS = "-O3 -march=rv64gcv"
MODELS = ("digits", "bert_tiny", "squeezenet1_1", "mobilenet_v2", "bsrn")
DLEN = 128
UNBOUNDED = 64  # extent of a dimension that has no largest one
# what marks a function as a micro-kernel of products, and the rows of those
PRODUCTS, ROWS = ("_contraction_", "_dot_"), ("contraction", "dot")


@dataclass(frozen=True)
class Cost:
    """Counts of one function, or of several added up; ``tests/qemu/rvcost.c`` defines them."""

    function: str
    scalar: int = 0
    vset: int = 0
    vector: int = 0
    micro_ops: int = 0
    multiply_adds: int = 0
    elements: int = 0
    loaded: int = 0
    stored: int = 0
    spills: int = 0

    def score(self, vlen, dlen=DLEN):
        return self.scalar + self.vset + self.micro_ops * vlen / dlen + self.elements

    @property
    def overhead(self):
        """Vector micro-ops over those of the multiply-adds; 0.0 where there are none."""
        ops = self.micro_ops + self.elements
        return ops / self.multiply_adds if self.multiply_adds else 0.0


def total(costs, name="total"):
    """The Cost of several functions together."""
    costs = tuple(costs)
    counts = [f.name for f in fields(Cost) if f.name != "function"]
    return Cost(name, **{c: sum(getattr(x, c) for x in costs) for c in counts})


def obstacle():
    """Why nothing can be counted on this machine; "" if it can."""
    cross = get_target("riscv64").cross
    lacking = [] if any(map(shutil.which, cross.cc)) else [cross.cc[0]]
    lacking += [t for t in (cross.emulator[0], "make") if not shutil.which(t)]
    if lacking:
        return f"not installed: {', '.join(lacking)} (Debian: {', '.join(cross.packages)})"
    about = subprocess.run([cross.emulator[0], "--version"], capture_output=True, text=True).stdout
    major = re.search(r"version (\d+)\.", about)
    if major is None or not 5 <= int(major[1]) <= 8:
        return f"the plugin is for QEMU 5 to 8, this is {about.splitlines()[:1]}"
    return ""


def build_plugin(folder):
    """Path of the emulator's plugin, compiled for this machine into ``folder``."""
    plugin = Path(folder) / "librvcost.so"
    _run([*find_compiler(), "-std=c11", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC",
          str(SOURCES / "rvcost.c"), "-o", str(plugin)])
    return plugin


def build_program(bundle):
    """Path of a program for RISC-V that runs a bundle of any CPU target once."""
    bundle = Path(bundle)
    name, cross = read_manifest(bundle)["name"], get_target("riscv64").cross
    compiler = [next(filter(shutil.which, cross.cc)), *cross.cflags]
    _run(["make", "-s", "-j2", "CC=" + " ".join(compiler), f"CFLAGS={FLAGS}", f"lib{name}.a"],
         bundle)
    main, program = bundle / "run_once.c", bundle / "run_once"
    main.write_text(f'#define AOTC_NAME(x) {name}_##x\n#define AOTC_HEADER "{name}.h"\n'
                    + (SOURCES / "run_once.c").read_text())
    _run([*compiler, "-std=c11", "-O2", *cross.ldflags, str(main), f"lib{name}.a", "-lm",
          "-pthread", "-o", str(program)], bundle)
    return program


def count(program, plugin, vlen, symbols=None):
    """Costs by function of one call of the model of ``build_program``, the largest score first.

    ``symbols``: the extents of dynamic dimensions, in order; the largest there are if None,
    ``UNBOUNDED`` where there is none.  AotcError if the program fails."""
    manifest = read_manifest(program.parent)
    weights = program.parent / f"{manifest['name']}_weights.bin"
    if symbols is None:
        symbols = [s["hi"] or max(s["lo"], UNBOUNDED) for s in manifest["symbols"]]
    with tempfile.TemporaryDirectory(prefix="aotc-riscv-") as scratch:
        out = Path(scratch) / "counts.json"
        command = emulators(asdict(get_target("riscv64").cross))[vlen]
        _run([command[0], *command[1:], "-plugin",
              f"{plugin},out={out},begin=cost_begin,end=cost_end", str(program), str(weights),
              *map(str, symbols)])
        costs = [Cost(**json.loads(line)) for line in out.read_text().splitlines()]
    # one name may stand for several static functions
    names = dict.fromkeys(c.function for c in costs)
    merged = [total((c for c in costs if c.function == n), n) for n in names]
    return sorted(merged, key=lambda c: (-c.score(vlen), c.function))


def _run(command, folder=None):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise AotcError(f"{command[0]}: exit status {done.returncode}: {done.stderr[-2000:]}")


def measure(path, folder, plugin, vlens, targets=("riscv64", "c")):
    """({(target, vlen): Costs by function}, names of the functions that call micro-kernels of
    products) of a model for ``targets``; the names are those of ``riscv64``."""
    found, callers = {}, set()
    for target in targets:
        bundle = Path(folder) / f"{Path(path).stem}_{target}"
        aotc.compile(path, bundle, target=target, name="model")
        program = build_program(bundle)
        found.update({(target, v): count(program, plugin, v) for v in vlens})
        callers |= {k["c"] for k in read_manifest(bundle)["kernels"] if target == "riscv64"
                    and any(row.startswith(ROWS) for row in k["rows"])}
        shutil.rmtree(bundle)
    return found, callers


def model_path(name, folder):
    """The file of a model: the path itself, digits trained here, or one of ``models``."""
    if name.endswith(".onnx"):
        return Path(name)
    if name != "digits":
        return models.case(name, folder).path
    spec = importlib.util.spec_from_file_location("digits_train",
                                                  ROOT / "examples" / "digits" / "train.py")
    train = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(train)
    train.write_model(Path(folder) / "digits.onnx")
    return Path(folder) / "digits.onnx"


def summary(name, vlen, dlen, found, callers):
    """One row of the table as a dict: totals of both bundles, their ratio, and vector micro-ops
    for each of the multiply-adds: of the micro-kernels of products alone, and of everything in the
    kernels that call them (epilogues, packing, whatever is fused)."""
    ours, portable = (total(found[t, vlen]) for t in ("riscv64", "c"))
    kernels, whole = product_costs(found["riscv64", vlen], callers)
    return {"model": name, "vlen": vlen, "dlen": dlen, "score": ours.score(vlen, dlen),
            "portable": portable.score(vlen, dlen),
            "ratio": ours.score(vlen, dlen) / portable.score(vlen, dlen),
            "scalar": ours.scalar + ours.vset, "micro_ops": ours.micro_ops,
            "elements": ours.elements, "bytes": ours.loaded + ours.stored,
            "portable_bytes": portable.loaded + portable.stored,
            "contraction": kernels.overhead, "with_callers": whole.overhead,
            "contraction_spills": kernels.spills,
            "spills": ours.spills, "portable_spills": portable.spills}


def product_costs(costs, callers):
    """(the Cost of the micro-kernels of products, the same with the kernels that call them)."""
    kernels = [c for c in costs if any(p in c.function for p in PRODUCTS)]
    around = [c for c in costs if c.function in callers]
    return total(kernels), total(kernels + around)


HEAD = (f"{'model':14}{'VLEN':>5}{'score':>10}{'portable':>10}{'ratio':>7}{'scalar':>9}"
        f"{'uops':>9}{'elements':>9}{'MB':>9}{'contract.':>10}{'callers':>8}{'spills':>8}")


def row_text(r):
    """A row of ``summary``; counts in millions, ``contract.`` and ``callers``: micro-ops for each
    of the multiply-adds, without and with the kernels around the micro-kernels."""
    return (f"{r['model']:14}{r['vlen']:5}{r['score'] / 1e6:10.3f}{r['portable'] / 1e6:10.3f}"
            f"{r['ratio']:7.3f}{r['scalar'] / 1e6:9.3f}{r['micro_ops'] / 1e6:9.3f}"
            f"{r['elements'] / 1e6:9.3f}{r['bytes'] / 1e6:9.2f}{r['contraction']:10.3f}"
            f"{r['with_callers']:8.3f}{r['spills']:8}")


def function_lines(costs, vlen, dlen):
    """The table of one bundle's functions."""
    names = [f.name for f in fields(Cost)][1:]
    yield f"  {'function':44}{'score':>12}" + "".join(f"{n[:11]:>12}" for n in names)
    for c in (*costs, total(costs)):
        yield (f"  {c.function[:44]:44}{c.score(vlen, dlen):12.0f}"
               + "".join(f"{getattr(c, n):12}" for n in names))


def _report(name, args, plugin, scratch):
    """Measure and print one model; its rows."""
    path = model_path(name, args.folder or scratch)
    found, callers = measure(path, scratch, plugin, args.vlens)
    rows = []
    for vlen in args.vlens:
        rows.append(summary(Path(name).stem, vlen, args.dlen, found, callers))
        print(row_text(rows[-1]), flush=True)
        for target in ("riscv64", "c") if args.functions else ():
            print(f"  {target} at VLEN {vlen}:")
            print("\n".join(function_lines(found[target, vlen], vlen, args.dlen)))
        rows[-1]["functions"] = {t: [asdict(c) for c in found[t, vlen]]
                                 for t in ("riscv64", "c")}
    return rows


def main(argv=None):
    """Count; the exit code is 1 if a model failed or a tool is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS, help=f"default: {', '.join(MODELS)}")
    parser.add_argument("--vlen", default="128,256,512", help="bits of a vector register")
    parser.add_argument("--dlen", type=int, default=DLEN, help="bits of the datapath")
    parser.add_argument("--functions", action="store_true", help="a table per function too")
    parser.add_argument("--json", help="file for all counts")
    parser.add_argument("--models", dest="folder", help="folder to keep the .onnx files in")
    args = parser.parse_args(argv)
    args.vlens = [int(v) for v in args.vlen.split(",")]
    if obstacle():
        print(obstacle(), file=sys.stderr)
        return 1
    print(f"counts in millions; score = scalar + micro-ops x VLEN/{args.dlen} + elements\n{HEAD}")
    rows, failed = [], []
    with tempfile.TemporaryDirectory(prefix="aotc-riscv-") as scratch:
        plugin = build_plugin(scratch)
        for name in args.models:
            try:
                rows += _report(name, args, plugin, scratch)
            except (AotcError, KeyError) as err:
                failed.append(name)
                print(f"{name:14}failed: {err}", file=sys.stderr)
    if args.json:
        Path(args.json).write_text(json.dumps({"rows": rows, "failed": failed}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
