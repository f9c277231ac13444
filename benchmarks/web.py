"""A wasm32 bundle beside onnxruntime-web: one process of node, one thread, systems taking turns.

    npm install --prefix FOLDER onnxruntime-web
    python -m benchmarks.web FOLDER model.onnx ..

Prints medians, their ratio, the largest difference of an output and bytes of both .wasm files.  f32
inputs of known shapes; needs clang with wasi-libc and node (docs/platforms.md).
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import aotc
from aotc.runtime.compile_bundle import build, read_manifest

ROUNDS, SKIPPED = 300, 50  # calls of each; the first ones, while the engine still compiles
PROGRAM = """
import { createRequire } from "node:module";
import { readFile, stat } from "node:fs/promises";
const { ort: home, model, module, wasm, rounds, skipped } = JSON.parse(process.argv[2]);
const ort = createRequire(home + "/x.js")("onnxruntime-web");
ort.env.wasm.numThreads = 1;
const own = await (await import(module)).load({ wasm: await readFile(wasm) });
const { inputs, outputs } = await import(module);
const session = await ort.InferenceSession.create(model, { executionProviders: ["wasm"] });
const feeds = {}, tensors = {};
for (const t of inputs) {
  const shape = t.shape.map(Number), count = shape.reduce((a, b) => a * b, 1);
  feeds[t.name] = Float32Array.from({ length: count }, (_, i) => ((i * 37) % 101 - 50) / 40);
  tensors[t.name] = new ort.Tensor("float32", feeds[t.name], shape);
}
const times = [[], []];
let mine, theirs;
for (let r = 0; r < rounds; r++) {
  let start = performance.now();
  mine = own.run(feeds);
  times[0].push(performance.now() - start);
  start = performance.now();
  theirs = await session.run(tensors);
  times[1].push(performance.now() - start);
}
const median = (list) => list.slice(skipped).sort((a, b) => a - b)[(rounds - skipped) >> 1];
let worst = 0;
for (const t of outputs) {
  const want = theirs[t.name].data;
  mine[t.name].forEach((x, i) => { worst = Math.max(worst, Math.abs(x - want[i])); });
}
const peer = home + "/node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded.wasm";
console.log(JSON.stringify({ aotc: median(times[0]), ort: median(times[1]), worst,
  bytes: [(await stat(wasm)).size, (await stat(peer)).size] }));
"""


def measure(model: str, ort: str, folder: Path, rounds: int) -> dict[str, object]:
    """Medians in ms, the largest difference and bytes of both modules, of one model."""
    bundle = aotc.compile(model, folder / "bundle", target="wasm32").path
    name = read_manifest(bundle)["name"]
    (folder / "program.mjs").write_text(PROGRAM)
    told = {"ort": str(Path(ort).resolve()), "model": str(Path(model).resolve()),
            "module": str(bundle / f"{name}.mjs"), "wasm": str(build(bundle)), "rounds": rounds,
            "skipped": min(SKIPPED, rounds // 3)}
    done = subprocess.run(["node", str(folder / "program.mjs"), json.dumps(told)], check=True,
                          capture_output=True, text=True)
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ort", help="folder that npm has installed onnxruntime-web in")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    args = parser.parse_args()
    for model in args.models:
        with tempfile.TemporaryDirectory() as folder:
            r = measure(model, args.ort, Path(folder), args.rounds)
        print(f"{Path(model).stem}: aotc {r['aotc']:.3f} ms, onnxruntime-web {r['ort']:.3f} ms, "
              f"{float(r['aotc']) / float(r['ort']):.2f} of its time; differ by {r['worst']:.3g}; "
              f"{r['bytes'][0]} of {r['bytes'][1]} bytes")


if __name__ == "__main__":
    main()
