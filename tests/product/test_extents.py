"""Extents as users have them: 0, without a bound, broadcast against each other, told apart."""

import itertools
import re
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper, parser

import aotc
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.pipeline import run_pipeline
from aotc.runtime.status import ShapeError
from aotc.samples import extents
from aotc.tools.bench import folder_inputs


def model(text):
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\ng {text}')


def executor(m):
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(m.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])

    def run(feeds):
        try:
            return session.run(None, feeds)
        except Exception:  # what it raises has kinds of its own
            return None
    return run


def feeds_of(m, extents, rng):
    """Random inputs; an extent without a name is called after its place."""
    feeds = {}
    for info in m.graph.input:
        kind = info.type.tensor_type
        shape = [d.dim_value if d.HasField("dim_value") else extents[d.dim_param]
                 for d in kind.shape.dim]
        feeds[info.name] = rng.random(shape) > 0.5 if kind.elem_type == 9 else (
            rng.standard_normal(shape).astype(np.float32))
    return feeds


BROADCASTS = {
    "rows": ("(float[n, 3] a, float[m, 3] b) => (float[?] y) { y = Add (a, b) }", "nm"),
    "lanes": ("(float[n] a, float[m] b) => (float[?] y) { t = Sub (a, b) y = Exp (t) }", "nm"),
    "chain": ("""(float[n, 3] a, float[m, 3] b, float[k, 1] c) => (float[?] y) {
        t = Mul (a, b) u = Mul (t, c) v = Add (u, a) y = Max (v, b, c) }""", "nmk"),
    "choice": ("""(float[n, 3] a, float[m, 3] b, bool[k, 1] c) => (float[?] y) {
        y = Where (c, a, b) }""", "nmk"),
    "batches": ("""(float[n, 1, 3, 5] a, float[m, k, 5, 2] b) => (float[?] y) {
        y = MatMul (a, b) }""", "nmk"),
    "expand": ("""(float[n, 3] a, float[m, 3] b) => (float[?] y) {
        s = Shape (b) y = Expand (a, s) }""", "nm"),
    "sum": ("""(float[p, 3] a, float[s, 3] b, float[t, 3] c) => (float[?] y) {
        k = Concat <axis = 0> (a, b) y = Add (k, c) }""", "pst"),
    "fixed": ("(float[n, 3] a, float[4, 3] b) => (float[?] y) { y = Add (a, b) }", "n"),
    "einsum": ("""(float[n, 3] a, float[m, 3] b) => (float[?] y) {
        y = Einsum <equation = "ij,ij->i"> (a, b) }""", "nm"),
    "attention": ("""(float[b, s, 8] q, float[b, t, 8] k, float[c, 1, u] mask) => (float[?] y) {
        kt = Transpose <perm = [0, 2, 1]> (k) a = MatMul (q, kt) z = Add (a, mask)
        p = Softmax <axis = -1> (z) y = MatMul (p, k) }""", "bstcu"),
}


def test_samples_find_extents_that_broadcast():
    m = model(BROADCASTS["chain"][0])
    program = run_pipeline(Options(m, target="c", stop_after="inline")).program
    found = extents(program)
    assert {1, 25, 80} <= {e["n"] for e in found} and {"n": 1, "m": 80, "k": 80} in found


COMPILED = ("lanes", "chain", "attention")  # all others on the evaluator


@pytest.mark.parametrize("name", BROADCASTS)
def test_extents_broadcast_as_a_call_has_them(tmp_path, name):
    text, names = BROADCASTS[name]
    m, dims = model(text), dict.fromkeys(names, (0, 50))
    program = run_pipeline(Options(m, target="c", dims=dims, stop_after="inline")).program
    ways = [(lambda feeds: next(iter(evaluate(program, feeds).values())), aotc.FaultError)]
    if name in COMPILED:
        loaded = aotc.compile(m, tmp_path / "b", target="x86-64-v3", dims=dims).load()
        ways.append((lambda feeds: loaded.run(feeds)["y"], ShapeError))
    wanted, rng, agreed = executor(m), np.random.default_rng(0), 0
    calls = list(itertools.product((0, 1, 4, 37), repeat=len(names)))
    for k in rng.permutation(len(calls))[:80]:
        feeds = feeds_of(m, dict(zip(names, calls[k])), rng)
        want = wanted(feeds)
        for run, refusal in ways:
            if want is None:
                with pytest.raises(refusal, match=f"[{names}]=|=="):  # it names the dimensions
                    run(feeds)
                continue
            got = run(feeds)
            assert got.shape == want[0].shape
            np.testing.assert_allclose(got, want[0], rtol=1e-4, atol=1e-5)
            agreed += 1
    assert agreed > 1


def test_what_the_model_rules_out_is_not_decided_at_run_time():
    m = model("""(float[n, 3] a, float[m, 3] b) => (float[?] y) {
        c = Concat <axis = 1> (a, b) t = Add (a, b) u = ReduceSum <keepdims = 0> (c)
        y = Mul (t, u) }""")
    text = str(run_pipeline(Options(m, target="c", stop_after="program")).program)
    assert "!= 1" not in text and "y[i0, i1] = t[i0, i1] * u[]  : f32[n, 3]" in text
    # the product needs u of t rows: the joint extent of t and u is t
    m = model("""(float[s, t] a, float[u] mask, float[t, 4] v) => (float[?] y) {
        z = Add (a, mask) y = MatMul (z, v) }""")
    text = str(run_pipeline(Options(m, target="c", stop_after="program")).program)
    assert "where" not in text and "z[i0, i1] = a_2[i0, i1] + mask[i1 * i64(u != 1)]" in text


def decoder(heads=2, width=8):
    """One layer of attention over a cache; mask f32[batch, total] is added to the scores."""
    rng, full = np.random.default_rng(0), heads * width
    nodes, tensors = [], {"split": np.array([0, 0, heads, width]), "join": np.array([0, 0, full]),
                          "middle": np.array([1, 2])}

    def node(op, ins, out, **attributes):
        nodes.append(helper.make_node(op, ins, [out], **attributes))
        return out
    made = {}
    for c in "qkv":
        tensors[f"w{c}"] = rng.standard_normal((full, full)).astype(np.float32) / 4
        heads_of = node("Reshape", [node("MatMul", ["x", f"w{c}"], f"{c}m"), "split"], f"{c}r")
        made[c] = node("Transpose", [heads_of], c, perm=[0, 2, 1, 3])
    k = node("Concat", ["past_k", made["k"]], "present_k", axis=2)
    v = node("Concat", ["past_v", made["v"]], "present_v", axis=2)
    scores = node("MatMul", ["q", node("Transpose", [k], "kt", perm=[0, 1, 3, 2])], "scores")
    masked = node("Add", [scores, node("Unsqueeze", ["mask", "middle"], "m4")], "masked")
    out = node("MatMul", [node("Softmax", [masked], "p", axis=-1), v], "o")
    node("Reshape", [node("Transpose", [out], "ot", perm=[0, 2, 1, 3]), "join"], "y")
    f32 = onnx.TensorProto.FLOAT
    cache = ["batch", heads, "past", width]
    inputs = {"x": ["batch", "seq", full], "mask": ["batch", "total"], "past_k": cache,
              "past_v": cache}
    graph = helper.make_graph(
        nodes, "decoder", [helper.make_tensor_value_info(n, f32, s) for n, s in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in ("y", "present_k", "present_v")],
        [numpy_helper.from_array(a, n) for n, a in tensors.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_decoder_runs_from_an_empty_cache_to_any_length(tmp_path):
    m, rng = decoder(), np.random.default_rng(1)
    bundle = aotc.compile(m, tmp_path / "b", target="x86-64-v3")
    dims = {s["name"]: (s["lo"], s["hi"]) for s in bundle.manifest["symbols"]}
    assert dims == {"batch": (1, None), "seq": (1, None), "total": (1, None), "past": (0, None)}
    assert bundle.manifest["arena_bytes_max"] is None
    header = (bundle.path / f"{bundle.manifest['name']}.h").read_text()
    assert "ARENA_BYTES_MAX" not in header and "SEQ_MAX" not in header and "_SEQ_MIN 1" in header
    loaded, wanted = bundle.load(), executor(m)
    for batch, seq, past in ((1, 5, 0), (2, 1, 33), (1, 1, 2500)):
        for total in (1, past + seq):
            feeds = feeds_of(m, {"batch": batch, "seq": seq, "past": past, "total": total}, rng)
            for got, want in zip(loaded.run(feeds).values(), wanted(feeds), strict=True):
                assert got.shape == want.shape
                np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
    feeds = feeds_of(m, {"batch": 1, "seq": 2, "past": 3, "total": 9}, rng)
    with pytest.raises(ShapeError, match="total == past \\+ seq.*total=9.*past=3"):
        loaded.run(feeds)
    assert {n: a.shape for n, a in folder_inputs(loaded).items()}["past_k"][2] == 80


def test_a_dimension_without_a_range_has_no_bound(tmp_path):
    weights = numpy_helper.from_array(
        np.random.default_rng(0).standard_normal((4, 1, 10)).astype(np.float32), "w")
    m = model("(float[b, 1, samples] x, float[4, 1, 10] w) => (float[?] y) { "
              "c = Conv <strides = [5]> (x, w) y = Relu (c) }")
    del m.graph.input[1]
    m.graph.initializer.append(weights)
    loaded, wanted = aotc.compile(m, tmp_path / "b", target="c").load(), executor(m)
    for samples in (10, 2049, 300007):
        feeds = feeds_of(m, {"b": 1, "samples": samples}, np.random.default_rng(0))
        np.testing.assert_allclose(loaded.run(feeds)["y"], wanted(feeds)[0], rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="samples"):
        loaded.run({"x": np.zeros((1, 1, 9), np.float32)})
    with pytest.raises(ValueError, match="must be 10..64"):
        aotc.compile(m, tmp_path / "c", target="c", dims={"samples": (10, 64)}).load().run(feeds)


PROGRAM = r"""
#include "app.h"
#include <stdio.h>
#include <stdlib.h>
int main(void)
{
    app_weights w;
    app_context c;
    app_weights_embedded(&w);
    if (app_symbols()[0] != INT64_MAX) return 1;
    if (app_arena_size(INT64_C(1) << 59, INT64_C(1) << 61, 1) != 0) return 2;
    if (app_arena_size(INT64_MAX, 1, 1) != 0) return 3;
    const size_t bytes = app_arena_size(0, 3, 1);
    void *const arena = aligned_alloc(64, (bytes + 63) / 64 * 64);
    app_init(&c, &w, arena, bytes, NULL);
    const float two[6] = {1, 2, 3, 4, 5, 6};
    float y[6];
    if (app_run(&c, 0, 3, NULL, two, y) != AOTC_OK || y[5] != 6) return 4; /* nothing at null */
    if (app_run(&c, 1, 3, NULL, two, y) != AOTC_NULL_POINTER) return 5;
    free(arena);
    return 0;
}
"""


def test_c_takes_null_for_an_empty_tensor_and_refuses_what_would_overflow(tmp_path):
    m = model("""(float[past, 2] a, float[seq, 2] b) => (float[?] y) {
        k = Concat <axis = 0> (a, b) t = Softmax <axis = 0> (k) u = Div (t, t) y = Mul (k, u) }""")
    bundle = aotc.compile(m, tmp_path / "b", target="c", name="app", weights="embed")
    program = PROGRAM.replace("app_symbols()[0]", "app_info()->symbols[0].hi")
    (tmp_path / "main.c").write_text(program)
    sources = [str(p) for p in sorted(bundle.path.glob("*.c")) if not p.name.startswith("test_")]
    done = subprocess.run(
        ["gcc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined,address",
         "-fno-sanitize-recover=undefined", f"-I{bundle.path}", "main.c", *sources, "-lm",
         "-pthread", "-o", "main"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_axes_that_a_model_names_alike_can_be_told_apart(tmp_path):
    m = model("""(float[n, s] a, float[n, s] b) => (float[?] y) {
        t = Transpose <perm = [1, 0]> (b) y = MatMul (a, t) }""")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, 4)).astype(np.float32) for n in (3, 7))
    with pytest.raises(ValueError, match=r"--dim b:0=LO..HI"):
        aotc.compile(m, tmp_path / "b", target="c").load().run([a, b])
    for given in ((1, 9), 7):
        bundle = aotc.compile(m, tmp_path / "b", target="c", dims={"b:0": given})
        np.testing.assert_allclose(bundle.load().run([a, b])["y"], a @ b.T, rtol=1e-5, atol=1e-6)
    with pytest.raises(aotc.ModelError, match="no dimension 'b:2'"):
        aotc.compile(m, tmp_path / "b", target="c", dims={"b:2": 4})


def test_a_large_arena_is_said_with_the_dimension_to_bound(tmp_path, capsys):
    m = model("""(float[n, k] a, float[m, k] b) => (float[?] y) {
        t = Transpose <perm = [1, 0]> (b) s = MatMul (a, t) p = Softmax <axis = 0> (s)
        y = MatMul (p, b) }""")
    dims = {"n": (1, 4096), "m": (1, 1 << 20), "k": (1, 8)}
    aotc.compile(m, tmp_path / "b", target="c", dims=dims)
    said = capsys.readouterr().err
    assert re.search(r"need [\d.]+ GB of arena; bound dimension 'm' .*--dim m=", said)
    aotc.compile(m, tmp_path / "b", target="c", dims=dims | {"m": (1, 64)})
    assert "GB" not in capsys.readouterr().err
