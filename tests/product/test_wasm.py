"""Bundles for WebAssembly: their ES modules under node, against the evaluator."""

import json
import re
import shutil
import subprocess

import numpy as np
import onnx
import pytest
from product_models import MODELS
from small_models import dense, embedding

import aotc
from aotc.errors import AotcError, UnsupportedError
from aotc.runtime.compile_bundle import read_manifest
from aotc.runtime.emulate import tools
from aotc.runtime.loading import load
from aotc.tools.verify import verify

CLANG = next((c for c in ("clang-19", "clang") if shutil.which(c)), "clang")
MISSING = [t for t in (CLANG, "wasm-ld-19", "node") if not shutil.which(t)]
needs_tools = pytest.mark.skipif(bool(MISSING), reason=(
    f"not installed: {', '.join(MISSING)} (Debian: clang-19 lld-19 wasi-libc "
    "libclang-rt-19-dev-wasm32 nodejs)"))
# calls: [[{input: [numbers]}, {dimension: extent}], ..]; prints a result or the error of each
CALLS = """
import { readFile } from "node:fs/promises";
import * as module from "./NAME.mjs";
const model = await module.load();
const types = { f32: Float32Array, i64: BigInt64Array, i32: Int32Array, u8: Uint8Array };
const results = [];
for (const [feeds, dims] of JSON.parse(await readFile(process.argv[2]))) {
  const given = Object.fromEntries(Object.entries(feeds).map(([name, values]) => {
    const type = types[module.inputs.find((t) => t.name === name)?.dtype ?? "f32"];
    return [name, type.from(values, type === BigInt64Array ? BigInt : undefined)];
  }));
  try {
    const out = model.run(given, dims);
    results.push(Object.fromEntries(Object.entries(out).map(
      ([k, v]) => [k, Array.from(v, Number)])));
  } catch (error) {
    results.push(`${error.name}: ${error.message}`);
  }
}
console.log(JSON.stringify(results));
"""


def build(folder):
    name = read_manifest(folder)["name"]
    done = subprocess.run(["make", "-s", f"{name}.wasm", f"CC={CLANG} --target=wasm32-wasi",
                           "CFLAGS=-O1 -Wall -Wextra -Werror"], cwd=folder,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / f"{name}.wasm"


def run(folder, calls):
    """What the module makes of calls: dicts of lists, or texts of errors."""
    name = read_manifest(folder)["name"]
    (folder / "calls.mjs").write_text(CALLS.replace("NAME", name))
    (folder / "calls.json").write_text(json.dumps(calls))
    done = subprocess.run(["node", "calls.mjs", "calls.json"], cwd=folder, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def feeds_of(folder, dims, rng):
    out = {}
    for t in read_manifest(folder)["inputs"]:
        shape = [n if isinstance(n, int) else dims[n["symbol"]] for n in t["shape"]]
        out[t["onnx"]] = (rng.integers(0, 5, shape) if t["dtype"] == "i64"
                          else rng.standard_normal(shape).astype(np.float32))
    return out


@needs_tools
@pytest.mark.parametrize("name", [
    "dense", *(pytest.param(n, marks=pytest.mark.product) for n in MODELS if n != "dense")])
def test_modules_compute_what_the_model_does(bundle_copy, bundle, name):
    """At several extents in turn: the module lays its memory out anew."""
    folder, rng = bundle_copy(name, "wasm32", None), np.random.default_rng(0)
    build(folder)
    manifest = read_manifest(folder)
    here = load(bundle(name, "c"))
    cases = []
    for lo in (0, 3, 1):
        dims = {s["name"]: min(s["lo"] + lo, s["hi"] or 9) for s in manifest["symbols"]}
        cases.append((feeds_of(folder, dims, rng), dims))
    got = run(folder, [[{k: v.ravel().tolist() for k, v in f.items()}, d] for f, d in cases])
    for (feeds, _), found in zip(cases, got):
        want = here.run(feeds)
        assert list(found) == list(want)
        for k, array in want.items():
            np.testing.assert_allclose(found[k], array.ravel(), rtol=1e-4, atol=1e-5)


@needs_tools
def test_wrong_arguments_are_told(bundle_copy):
    folder = bundle_copy("embedding", "wasm32", None)
    build(folder)
    names = [t["onnx"] for t in read_manifest(folder)["inputs"]]
    dims = {s["name"]: s["lo"] for s in read_manifest(folder)["symbols"]}
    feeds = {k: v.ravel().tolist() for k, v in
             feeds_of(folder, dims, np.random.default_rng(0)).items()}
    table = {n: [10 ** 6] * len(feeds[n]) for n in names}
    found = run(folder, [[{"no such": []}, dims], [{}, dims], [{names[0]: [1] * 999}, dims],
                         [feeds, {"none": 1}], [feeds, dict.fromkeys(dims, 10 ** 9)],
                         [table, dims], [feeds, dims]])
    wanted = ["TypeError.*no input no such", "TypeError.*got nothing",
              "TypeError.*got .*Array of 999 elements", "TypeError.*no dimension none",
              "Error.*outside its range", "Error.*outside its table.*1000000"]
    for text, want in zip(found, wanted):
        assert isinstance(text, str) and re.search(want, text), (text, want)
    assert isinstance(found[-1], dict)  # a fault spoils no later call


@needs_tools
def test_a_module_asks_for_nothing(bundle_copy):
    """No imports: no WASI, no memory of the caller's."""
    library = build(bundle_copy("dense", "wasm32", None))
    text = subprocess.run(["node", "-e", f"""
        const m = new WebAssembly.Module(require("fs").readFileSync({json.dumps(str(library))}));
        console.log(JSON.stringify([WebAssembly.Module.imports(m),
          WebAssembly.Module.exports(m).map((e) => e.name)]))"""], capture_output=True, text=True,
                          check=True).stdout
    imports, exports = json.loads(text)
    assert imports == [] and {"memory", "aotc_run"} <= set(exports)
    assert not [e for e in exports if e.startswith("dense_")]


@needs_tools
@pytest.mark.product
def test_verify_runs_under_node(tmp_path):
    onnx.save(dense(), tmp_path / "dense.onnx")
    results = verify(tmp_path / "dense.onnx", target="wasm32", report=lambda line: None)
    assert results and all(m.ok for _, m in results)


def test_what_the_system_lacks_is_told_before_files_are_written(tmp_path):
    with pytest.raises(UnsupportedError, match="wasm32 has no files.*embed"):
        aotc.compile(dense(), tmp_path / "b", target="wasm32", weights="file")
    with pytest.raises(UnsupportedError, match="4 workers: wasm32 .*leave out :4"):
        aotc.compile(dense(), tmp_path / "b", target="wasm32", arena="64M:4")
    assert not (tmp_path / "b").exists()
    bundle = aotc.compile(embedding(), tmp_path / "b", target="wasm32")
    assert read_manifest(bundle.path)["weights"] == "embed"
    with pytest.raises(AotcError, match="compiled for wasm32"):
        load(bundle.path)


def test_the_tools_are_named_where_they_are_missing(bundle, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(AotcError, match="wasi-libc"):
        tools(read_manifest(bundle("dense", "wasm32", None)))
