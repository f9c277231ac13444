"""Single tokens and prefills of decoders with their caches in place, beside peers.

    python -m benchmarks.decoders [llama] [gpt2] [--threads 1 2] [--width 1024] [--layers 4]
                                  [--past 512] [--runs 9]

For every call: milliseconds (medians of runs in turns) and the time by that of ONNX Runtime, whose
past and present are bound to arrays of its own that are there before the call, and of OpenVINO, as
far as installed, whose caches are states of the model.  For single tokens also the time by that of
reading as many bytes as the weights and the filled part of the caches have, once, with this
machine's widest loads and as many threads, in the same turns.  Below 1: faster.  Nothing is
asserted; pin it (taskset) to as many CPUs as it has threads.
"""

import argparse
import ctypes
import importlib.util
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import geometric_mean, median

import numpy as np

import aotc
from aotc.target import get_target
from benchmarks import decoder_models
from benchmarks.turns import REST

ROOM, VOCABULARY = 2048, 4000
CALLS = (1, 8, 33, 128, 256)  # tokens of a prefill
READ = """#include <stddef.h>
typedef float vector __attribute__((vector_size(64), aligned(4)));
float read_once(const float *p, size_t n)
{
    vector sums[8] = {{0}};
    for (size_t i = 0; i + 128 <= n; i += 128) {
        for (size_t k = 0; k < 8; k++) {
            sums[k] += *(const vector *)(const void *)(p + i + 16 * k);
        }
    }
    for (size_t k = 1; k < 8; k++) {
        sums[0] += sums[k];
    }
    return sums[0][0];
}
"""


def sizes_of(name, width, layers):
    """Sizes of a decoder with heads of 64."""
    heads = width // 64
    shared, inner = (max(heads // 4, 1), width * 11 // 4) if name == "llama" else (
        heads, width * 4)
    return decoder_models.Sizes(VOCABULARY, width, layers, heads, shared, inner, ROOM)


def reader(folder, count, threads):
    """A function that reads so many bytes once, a part with each thread."""
    target, source = get_target("native"), folder / "read.c"
    source.write_text(READ)
    subprocess.run(["cc", "-O3", "-std=gnu11", *target.cflags, "-shared", "-fPIC",
                    str(source), "-o", str(folder / "read.so")], check=True)
    library = ctypes.CDLL(str(folder / "read.so"))
    library.read_once.argtypes, library.read_once.restype = [
        ctypes.c_void_p, ctypes.c_size_t], ctypes.c_float
    parts = np.array_split(np.ones(count // 4, np.float32), threads)

    def read(part):
        library.read_once(part.ctypes.data, part.size)
    if threads == 1:
        return lambda: read(parts[0])
    pool = ThreadPoolExecutor(threads)
    return lambda: list(pool.map(read, parts))


def runtime(model, threads):
    """``bound(feeds)`` of ONNX Runtime: a function that runs on arrays of its own."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)

    def bound(feeds):
        held = {n: onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(a))
                for n, a in feeds.items()}
        binding = session.io_binding()
        for name, value in held.items():
            binding.bind_ortvalue_input(name, value)
        names = [o.name for o in session.get_outputs()]
        for name, a in zip(names, session.run(None, feeds)):
            held[name] = onnxruntime.OrtValue.ortvalue_from_numpy(a)
            binding.bind_ortvalue_output(name, held[name])

        def call(_held=held):
            session.run_with_iobinding(binding)
        return call
    return bound


def stateful(model, threads, folder):
    """``grown(feeds of a call over so many tokens)`` of OpenVINO, whose caches are states: a
    function that starts at ``past`` tokens again and makes the call; its own seconds."""
    import openvino
    from openvino._offline_transformations import apply_make_stateful_transformation
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    core = openvino.Core()
    net = core.read_model(path)
    pairs = {i.get_any_name(): i.get_any_name().replace("past_key_values", "present")
             for i in net.inputs if "past_key_values" in i.get_any_name()}
    net.reshape({i: [1, *list(i.partial_shape)[1:]] for i in net.inputs})
    apply_make_stateful_transformation(net, pairs)
    compiled = core.compile_model(net, "CPU", {
        "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"})
    request = compiled.create_infer_request()

    def grown(before, feeds):
        own = {i.get_any_name() for i in compiled.inputs}
        first, then = ({n: a for n, a in f.items() if n in own} for f in (before, feeds))

        def call():
            request.reset_state()
            if before:
                request.infer(first, share_inputs=True)
            start = time.perf_counter()
            request.infer(then, share_inputs=True)
            return time.perf_counter() - start
        return call
    return grown


def in_turns(calls, runs):
    """Median seconds of every function, called in turns; of one that gives seconds those."""
    times = [[] for _ in calls]
    for n in range(runs + 1):
        for row, call in zip(times, calls):
            time.sleep(REST)
            start = time.perf_counter()
            took = call()
            took = took if isinstance(took, float) else time.perf_counter() - start
            if n:  # the first call touches memory
                row.append(took)
    return [median(row) for row in times]


def prepared(name, args, folder):
    """(sizes, model) of a decoder whose bundle is in the folder then."""
    sizes = sizes_of(name, args.width, args.layers)
    model = getattr(decoder_models, name)(sizes)
    start = time.perf_counter()
    made = aotc.compile(
        model, folder / "bundle", name=name, alias="auto", variants={"seq": [(1, 1)]},
        dims={"batch": 1, "seq": (1, 256), "past": (0, ROOM), "capacity": (1, ROOM)})
    aotc.load(folder / "bundle")
    print(f"{name}: compiled in {sum(made.seconds.values()):.1f} s, with building "
          f"{time.perf_counter() - start:.1f} s", flush=True)
    return sizes, model


def peers_of(model, threads, folder):
    """{peer: how it is called} of those that are installed."""
    found = {"onnxruntime": lambda: runtime(model, threads),
             "openvino": lambda: stateful(model, threads, folder)}
    return {n: make() for n, make in found.items() if importlib.util.find_spec(n)}


def measure(name, args, folder):
    """Print a line for every call of one decoder, for every number of threads."""
    sizes, model = prepared(name, args, folder)
    for threads in args.threads:
        print(f" {threads} thread{'s' if threads > 1 else ''}", flush=True)
        measure_calls(name, args, folder, sizes, aotc.load(folder / "bundle", threads=threads),
                      peers_of(model, threads, folder), threads)


def measure_calls(name, args, folder, sizes, ours, peers, threads):
    """Print the lines of so many threads, and each peer's geometric mean."""
    rng, ratios = np.random.default_rng(0), {n: [] for n in peers}
    names = [i.name for i in ours.inputs]
    caches = {i.name: rng.standard_normal((1, i.shape[1], ROOM, i.shape[3])).astype(np.float32)
              for i in ours.inputs if i.alias >= 0}
    for past, seq in ((args.past, 1), *((0, n) for n in CALLS)):
        ids = rng.integers(0, VOCABULARY, (1, past + seq))
        feeds = decoder_models.call_feeds(names, ids, past, seq)
        before = {n: np.ascontiguousarray(c[:, :, :past]) for n, c in caches.items()}
        calls = {"aotc": ours.bind(feeds | caches, {"past": past})}
        if "onnxruntime" in peers:
            calls["onnxruntime"] = peers["onnxruntime"](feeds | before)
        if "openvino" in peers:
            calls["openvino"] = peers["openvino"](
                decoder_models.call_feeds(names, ids, 0, past) if past else {}, feeds)
        if seq == 1:
            held = sum(c[:, :, :past + 1].nbytes for c in caches.values())
            tables = 4 * sizes.width * (VOCABULARY + (ROOM if name == "gpt2" else 0))
            calls["reading once"] = reader(
                folder, ours.manifest["weights_bytes"] - tables + held, threads)
        mine, *others = in_turns(list(calls.values()), args.runs)
        found = dict(zip(list(calls)[1:], (mine / t for t in others)))
        for peer, row in ratios.items():
            row.append(found[peer])
        print(f"  past {past:4} new {seq:3}: {mine * 1e3:8.2f} ms  " + "  ".join(
            f"{n} {r:5.2f}" for n, r in found.items()), flush=True)
    for peer, row in ratios.items():
        print(f"  {peer}: geometric mean {geometric_mean(row):.3f}, worst {max(row):.3f}")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="MODEL", help="of llama, gpt2")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], metavar="N")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--past", type=int, default=512, help="of the single token")
    parser.add_argument("--runs", type=int, default=9, help="per system and call")
    args = parser.parse_args(argv)
    for name in args.names or ("llama", "gpt2"):
        with tempfile.TemporaryDirectory(prefix="aotc-decoders-") as scratch:
            measure(name, args, Path(scratch))


if __name__ == "__main__":
    main()
