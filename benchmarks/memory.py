"""Memory and start-up of running models, ours and the peers', each in a process of its own.

    python -m benchmarks.memory [MODEL ...] [--compare onnxruntime,openvino,ncnn]
                                [--json memory.json] [--models FOLDER]

Per system: the process's peak resident memory over that of an idle interpreter that holds the
inputs; milliseconds from opening the library (peers: the model file) to the end of the first
inference, and of the fastest later one.  For aotc also the size of the weights file and of the
arena, and the peak beyond both (the library, its stack and the outputs; below zero where tables
are hardly touched).  The bundle's C functions are called directly: the Python runtime takes no
part.  One thread; nothing is asserted.
"""

import argparse
import ctypes
import importlib.util
import json
import mmap
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from aotc.errors import AotcError
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.runtime.compile_bundle import build, read_manifest
from aotc.runtime.feeds import symbol_values
from aotc.runtime.tensor_info import tensor_infos
from aotc.tools.peers import PEERS, open_peer
from benchmarks import models

RUNS = 5  # after the first
STRUCT = 1 << 14  # bytes, more than any of the bundle's structs has
MB = 1e6


def resident(field):
    """Bytes: "VmRSS" that are resident now, "VmHWM" the most there have been."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise AotcError(f"memory: /proc/self/status has no {field}")


def open_bundle(folder, manifest, path, feeds):
    """(run, arena bytes) of a built bundle through its C functions, for one thread."""
    name, (inputs, outputs) = manifest["name"], tensor_infos(manifest)
    library = ctypes.CDLL(path)

    def checked(function, *args):
        status = getattr(library, f"{name}_{function}")(*args)
        if status:
            raise AotcError(f"memory: {name}_{function}: status {status}")

    arrays = [feeds[i.name] for i in inputs]
    known = symbol_values(name, inputs, arrays)
    values = [known[s["name"]] for s in manifest["symbols"]]
    syms = (ctypes.c_int64 * max(1, len(values)))(*values)
    shape = (ctypes.c_int64 * 8)()
    out = []
    for i, info in enumerate(outputs):
        checked("output_shape", i, syms, shape)
        out.append(np.empty(tuple(shape)[:len(info.shape)], info.dtype))
    weights, context = (ctypes.create_string_buffer(STRUCT) for _ in range(2))
    checked("weights_open", weights, os.fsencode(Path(folder) / f"{name}_weights.bin"))
    size_of = getattr(library, f"{name}_arena_size_of")
    size_of.restype = ctypes.c_size_t
    size = size_of(syms, 1)
    arena = mmap.mmap(-1, max(1, size))
    checked("init", context, weights, ctypes.c_void_p(ctypes.addressof(
        ctypes.c_char.from_buffer(arena))), ctypes.c_size_t(size), None)
    ins = (ctypes.c_void_p * max(1, len(arrays)))(*[a.ctypes.data for a in arrays])
    outs = (ctypes.c_void_p * len(out))(*[a.ctypes.data for a in out])

    def run(held=(arrays, arena)):  # the pointers' memory lives as long as the function
        checked("run_buffers", context, syms, ins, outs)
        return dict(zip((i.name for i in outputs), out))
    return run, size


def child(system, path, inputs):
    """What one system takes, as a dict; in a process that has done nothing else."""
    with np.load(inputs) as data:
        feeds = {n: np.ascontiguousarray(data[n]) for n in data.files}
    idle, found = resident("VmRSS"), {}
    if system == "aotc":
        manifest, library = read_manifest(path), str(build(path))  # found, built and up to date
        start = time.perf_counter()
        run, found["arena"] = open_bundle(path, manifest, library, feeds)
    else:
        __import__(system)  # its memory counts, the time does not
        start = time.perf_counter()
        run = partial(open_peer(system, path, 1, feeds), feeds)
    run()
    times = [time.perf_counter() - start]
    for _ in range(RUNS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return {**found, "peak": resident("VmHWM") - idle, "first_ms": times[0] * 1e3,
            "warm_ms": min(times[1:]) * 1e3}


def measured(system, path, inputs):
    """``child`` in a new process on one CPU; {"fault"} if it fails."""
    cpu = min(os.sched_getaffinity(0))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", "--child", system, str(path), str(inputs)],
        capture_output=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, {cpu}),
        cwd=Path(__file__).resolve().parents[1])
    if done.returncode:
        return {"fault": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def measure_model(case, peers, target, scratch):
    """{system: what it takes} of one model; aotc's has the size of its weights file too."""
    inputs, folder = Path(scratch) / "inputs.npz", Path(scratch) / f"{case.name}.bundle"
    np.savez(inputs, **case.feeds)
    build(run_pipeline(Options(case.path, folder, target, case.name)).path)
    row = {"aotc": measured("aotc", folder, inputs)}
    if "fault" in row["aotc"]:
        raise AotcError(row["aotc"]["fault"])
    row["aotc"]["weights"] = (folder / f"{case.name}_weights.bin").stat().st_size
    for p in peers:
        row[p] = measured(p, case.path, inputs)
    return row


def table_row(name, row, peers):
    """One line of the table, in MB of 10^6 bytes and milliseconds."""
    own = row["aotc"]
    rest = own["peak"] - own["weights"] - own["arena"]
    cells = [name, *(f"{b / MB:.1f}" for b in (own["peak"], own["weights"], own["arena"], rest)),
             f"{own['first_ms']:.1f}", f"{own['first_ms'] / own['warm_ms']:.2f}"]
    for p in peers:
        cells += ["-"] * 3 if "fault" in row[p] else [
            f"{row[p]['peak'] / MB:.1f}", f"{own['peak'] / row[p]['peak']:.2f}",
            "-" if p == "ncnn" else f"{row[p]['first_ms']:.0f}"]  # it would count the conversion
    return "| " + " | ".join(cells) + " |"


def main(argv=None):
    """Measure; the exit code is 1 if a model failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="names; all there are without any")
    parser.add_argument("--target", default="native")
    parser.add_argument("--compare", help="peers, comma-separated; those installed if left out")
    parser.add_argument("--json", default="memory.json", help="file for the results")
    parser.add_argument("--models", dest="folder", help="folder to keep the .onnx files in")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.child:
        print(json.dumps(child(*args.child)))
        return 0
    peers = args.compare.split(",") if args.compare else [
        p for p in PEERS if importlib.util.find_spec(p)]
    heads = ["model", "aotc MB", "weights", "arena", "rest", "first ms", "/ warm"]
    heads += [h for p in peers for h in (f"{p} MB", "ratio", "first ms")]
    print("| " + " | ".join(heads) + " |\n|---" + "|--:" * (len(heads) - 1) + "|")
    results, failed = {}, []
    with tempfile.TemporaryDirectory(prefix="aotc-memory-") as scratch:
        for name in args.models or models.names():
            try:
                case = models.case(name, args.folder or scratch)
                results[name] = measure_model(case, peers, args.target, scratch)
            except (AotcError, KeyError) as err:
                failed.append(name)
                print(f"{name} failed: {err}", file=sys.stderr)
                continue
            print(table_row(name, results[name], peers), flush=True)
    Path(args.json).write_text(json.dumps({"results": results, "failed": failed}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
