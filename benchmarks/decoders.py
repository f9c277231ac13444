"""Single tokens and prefills of decoders with their caches in place, beside ONNX Runtime.

    python -m benchmarks.decoders [llama] [gpt2] [--width 1024] [--layers 4] [--past 512] [--runs 9]

For every call: milliseconds (medians of runs in turns, one thread) and the time by ONNX Runtime's,
which is handed the past as an array of its own and makes a new one.  For single tokens also the
time by that of reading as many bytes as the weights and the filled part of the caches have, once,
with this machine's widest loads, in the same turns.  Nothing is asserted; pin it (taskset).
"""

import argparse
import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

import aotc
from aotc.target import get_target
from benchmarks import decoder_models
from benchmarks.dynamic import in_turns

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


def reader(folder, count):
    """A function that reads so many bytes once."""
    target, source = get_target("native"), folder / "read.c"
    source.write_text(READ)
    subprocess.run(["cc", "-O3", "-std=gnu11", *target.cflags, "-shared", "-fPIC",
                    str(source), "-o", str(folder / "read.so")], check=True)
    library = ctypes.CDLL(str(folder / "read.so"))
    library.read_once.argtypes, library.read_once.restype = [
        ctypes.c_void_p, ctypes.c_size_t], ctypes.c_float
    memory = np.ones(count // 4, np.float32)
    return lambda: library.read_once(memory.ctypes.data, memory.size)


def measure(name, args, folder):
    """Print a line for every call of one decoder."""
    sizes = sizes_of(name, args.width, args.layers)
    model = getattr(decoder_models, name)(sizes)
    aotc.compile(model, folder / "bundle", name=name, alias="auto", variants={"seq": [(1, 1)]},
                 dims={"batch": 1, "seq": (1, 256), "past": (0, ROOM), "capacity": (1, ROOM)})
    ours = aotc.load(folder / "bundle")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    peer = onnxruntime.InferenceSession(model.SerializeToString(), options)
    rng = np.random.default_rng(0)
    names = [i.name for i in ours.inputs]
    caches = {i.name: rng.standard_normal((1, i.shape[1], ROOM, i.shape[3])).astype(np.float32)
              for i in ours.inputs if i.alias >= 0}
    for past, seq in ((args.past, 1), *((0, n) for n in CALLS)):
        ids = rng.integers(0, VOCABULARY, (1, past + seq))
        feeds = decoder_models.call_feeds(names, ids, past, seq)
        before = {n: np.ascontiguousarray(c[:, :, :past]) for n, c in caches.items()}
        calls = [ours.bind(feeds | caches, {"past": past}),
                 lambda f=feeds | before: peer.run(None, f)]
        if seq == 1:
            held = sum(c[:, :, :past + 1].nbytes for c in caches.values())
            tables = 4 * sizes.width * (VOCABULARY + (ROOM if name == "gpt2" else 0))
            read = ours.manifest["weights_bytes"] - tables + held
            calls.append(reader(folder, read))
        mine, theirs, *once = in_turns(calls, args.runs)
        print(f"{name} past {past:4} new {seq:3}: {mine * 1e3:8.2f} ms  onnxruntime "
              f"{mine / theirs:5.2f}" + "".join(f"  reading once {mine / t:5.2f}" for t in once),
              flush=True)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="MODEL", help="of llama, gpt2")
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
