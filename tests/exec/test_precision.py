"""``precision="bf16"``: conversions bit by bit on every kind of vector, the same bits on every CPU,
models against the f32 ones, and that nothing changes for those who do not ask."""

import json
import shutil
from dataclasses import replace

import numpy as np
import onnx
import pytest
from attention_model import attention
from harness import DISTINCT, RUNNABLE, at_length, compile_program
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from quick_builds import LEVEL
from small_models import conv_stack, make_model, u_net
from te_programs import Maker, ax

import aotc
from aotc.errors import ScheduleError, UnsupportedError
from aotc.ir.dtypes import from_bf16, to_bf16
from aotc.ir.expr import Cast, Const, Where, walk
from aotc.ir.schedule import Schedule
from aotc.ir.statements import Store, walk_body
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.passes.rewrites import apply_schedule_rewrites
from aotc.pipeline import run_pipeline
from aotc.runtime.emulate import emulated_models
from aotc.sched import check_schedule, decide
from aotc.target import TARGETS
from aotc.target.micro_kernels import TILES
from aotc.tools.nodes import verify_nodes
from aotc.tools.verify import verify

F32 = TensorProto.FLOAT


@pytest.fixture(autouse=True)
def quick_builds(monkeypatch):
    monkeypatch.setenv("CFLAGS", LEVEL)


BITS = np.array([0, 1, 0x7fffff, 0x800000, 0x3f800000, 0x3f807fff, 0x3f808000, 0x3f808001,
                 0x3f818000, 0x7f7fffff, 0x7f7f7fff, 0x7f800000, 0x7f800001, 0x7fc12345,
                 0x42f6e979], np.uint32)
BITS = np.concatenate([BITS, BITS | np.uint32(0x80000000)])
# those with rows of their own for bf16
PAIRED = [t for t in RUNNABLE if any(u.a == "bf16" for u in t.rows("dot"))]
# and of them those that add in the order of the sum, which matrix tiles do not
ORDERED = [t for t in PAIRED if all(u.template != TILES for u in t.rows("dot"))]


def layers(rows=13, seed=0):
    """y f32[rows, 21] = relu(x w + b) v: x f32[rows, 24], with 40 columns in between; s is their
    softmax."""
    rng = np.random.default_rng(seed)
    tensors = {n: rng.standard_normal(s).astype(np.float32)
               for n, s in {"w": (24, 40), "b": (40,), "v": (40, 21)}.items()}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]),
             helper.make_node("Add", ["p", "b"], ["q"]), helper.make_node("Relu", ["q"], ["h"]),
             helper.make_node("MatMul", ["h", "v"], ["y"]),
             helper.make_node("Softmax", ["y"], ["s"])]
    return make_model(nodes, {"x": (F32, [rows, 24])},
                      {"y": (F32, [rows, 21]), "s": (F32, [rows, 21])}, tensors)


def _feeds(shape, seed=1):
    return {"x": np.random.default_rng(seed).standard_normal(shape).astype(np.float32)}


def _rounded(x):
    return from_bf16(to_bf16(x)).astype(np.float64)


def _expected(model, feeds):
    """What ``layers`` gives with operands rounded, in f64."""
    w = {t.name: np.frombuffer(t.raw_data, np.float32).reshape(t.dims)
         for t in model.graph.initializer}
    h = np.maximum(_rounded(feeds["x"]) @ _rounded(w["w"]) + w["b"], 0).astype(np.float32)
    return _rounded(h) @ _rounded(w["v"])


def _close(got, want, share):
    assert np.max(np.abs(got - want)) <= share * np.ptp(want)


# ---------------------------------------------------------------- conversions

def test_rounding_is_that_of_the_format():
    """To nearest, ties to even, quiet NaN; what is no normal number is zero."""
    x = BITS.view(np.float32)
    got = from_bf16(to_bf16(x))
    normal = np.isfinite(x) & (np.abs(x) >= 2.0**-126) & (np.abs(x) < 3.39e38)
    step = 2.0 ** (np.floor(np.log2(np.abs(x[normal].astype(np.float64)))) - 7)
    exact = np.rint(x[normal].astype(np.float64) / step) * step  # rint: ties to even
    assert np.array_equal(got[normal], exact.astype(np.float32))
    assert np.array_equal(np.isnan(got), np.isnan(x))
    tiny = np.abs(x) < 2.0**-126
    assert not got[tiny].any() and np.array_equal(np.signbit(got), np.signbit(x))
    assert to_bf16(np.float32(1)).shape == ()


@pytest.mark.parametrize("target", [pytest.param(t, id=t.name, marks=at_length(t))
                                    for t in DISTINCT])
def test_conversions_are_those_of_numpy(target, tmp_path):
    """Through a tensor that is stored as bf16, side by side and turned around."""
    m = Maker()
    n = len(BITS)
    i, j = ax("i", 5), ax("j", n)
    m.input("x", 5, n)
    m.step("low", (i, j), Cast("bf16", m.ref("x", i, j)))
    m.step("turned", (j, i), m.ref("low", i, j))
    m.step("y", (i, j), Cast("f32", m.ref("low", i, j)))
    m.step("z", (i, j), Cast("f32", m.ref("turned", j, i)) + Const(0, "f32"))
    program = m.done("y", "z")
    schedule = replace(decide(program, target, "none"), precision="bf16")
    model = compile_program(program, schedule, target, tmp_path / "b")
    x = np.stack([np.roll(BITS, k) for k in range(5)]).view(np.float32)
    got = model.run({"x": x})
    want = from_bf16(to_bf16(x))
    assert np.array_equal(got["y"].view(np.uint32), want.view(np.uint32))
    assert np.array_equal(got["z"], want, equal_nan=True)


# ---------------------------------------------------------------- models

@pytest.mark.parametrize("targets", [
    (ORDERED[0], ORDERED[-1]), pytest.param(ORDERED[1:-1], marks=pytest.mark.product)])
def test_operands_are_rounded_and_sums_are_not(targets, tmp_path):
    """One product rounds its operands once; the same bits come from every instruction set."""
    model, feeds = layers(), _feeds((13, 24))
    want, seen = _expected(model, feeds), []
    for target in targets:
        aotc.compile(model, tmp_path / target.name, target=target.name, precision="bf16")
        got = aotc.load(tmp_path / target.name).run(feeds)
        _close(got["y"], want, 1e-6)
        seen.append(got["y"])
        manifest = json.loads((tmp_path / target.name / "manifest.json").read_text())
        assert manifest["precision"] == "bf16"
        rows = {r for k in manifest["kernels"] for r in k["rows"]}
        assert any(r.startswith("dot_bf16_") for r in rows)
    assert all(np.array_equal(seen[0], y) for y in seen[1:])


@pytest.mark.parametrize("make, shape, name", [
    (conv_stack, (1, 3, 24, 24), PAIRED[-1].name),
    pytest.param(u_net, (1, 3, 16, 16), PAIRED[-1].name, marks=pytest.mark.product),
    pytest.param(conv_stack, (1, 3, 24, 24), PAIRED[0].name, marks=pytest.mark.product),
    pytest.param(u_net, (1, 3, 16, 16), PAIRED[0].name, marks=pytest.mark.product)])
def test_convolutions_stay_close_to_f32(make, shape, name, tmp_path):
    model, feeds = make(channels=(16, 24)), _feeds(shape)
    outs = []
    for precision in ("f32", "bf16"):
        made = aotc.compile(model, tmp_path / precision, target=name, precision=precision,
                            winograd="off")
        outs.append(aotc.load(tmp_path / precision).run(feeds))
    rewrites = json.loads((tmp_path / "bf16" / "schedule.json").read_text())["rewrites"]
    assert any(r[0] == "narrow" for r in rewrites) and made.manifest["precision"] == "bf16"
    for n, exact in outs[0].items():
        _close(outs[1][n], exact, 3e-2)
        assert not np.array_equal(outs[1][n], exact)


@pytest.mark.parametrize("kernel, pad, precision, error", [
    (2, 0, "bf16", 1e-2), (4, 1, "f16", 1e-3), (2, 0, "int8w", 1e-2), (2, 0, "int4w", 2e-1),
    pytest.param(4, 1, "bf16", 1e-2, marks=pytest.mark.product),
    pytest.param(2, 0, "f16", 1e-3, marks=pytest.mark.product)])
def test_transposed_convolutions_are_products_of_every_phase(kernel, pad, precision, error,
                                                             tmp_path):
    w = np.random.default_rng(1).standard_normal((20, 40, kernel, kernel)).astype(np.float32)
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], pads=[pad] * 4)
    model = make_model([node], {"x": (F32, [1, 20, 7, 5])}, {"y": (F32, [1, 40, 14, 10])},
                       {"w": w})
    feeds = _feeds((1, 20, 7, 5))
    made = aotc.compile(model, tmp_path / "b", target=PAIRED[-1].name, precision=precision)
    want = ReferenceEvaluator(model).run(None, feeds)[0]
    got = made.load().run(feeds)["y"]
    _close(got, want, error)
    assert not np.allclose(got, want, rtol=1e-6)
    rows = {r for k in made.manifest["kernels"] for r in k["rows"]}
    assert any(r.startswith("contraction_f32" if precision == "f16" else "dot_") for r in rows)


@pytest.mark.parametrize("size", [37, pytest.param(64, marks=pytest.mark.product)])
def test_attention_multiplies_bf16_around_a_softmax_in_f32(size, tmp_path):
    """Every product, of an odd number of terms too; the softmax has f32 on both sides."""
    model, feeds = attention(size), _feeds((size, 64))
    outs = []
    for precision in ("f32", "bf16"):
        made = aotc.compile(model, tmp_path / precision, target=PAIRED[-1].name,
                            precision=precision)
        outs.append(made.load(threads=2).run(feeds)["y"])
    _close(outs[1], outs[0], 2e-2)
    assert not np.array_equal(*outs)
    rewrites = json.loads((tmp_path / "bf16" / "schedule.json").read_text())["rewrites"]
    rows = {r for k in made.manifest["kernels"] for r in k["rows"]}
    slow = TARGETS[PAIRED[-1].name].tuning.narrow_rate <= 1
    assert len([r for r in rewrites if r[0] == "narrow"]) == (4 if slow else 6)
    assert slow or not any(r.startswith("contraction_f32") for r in rows)
    assert any(r.startswith("reduction_f32") for r in rows)


@pytest.mark.parametrize("name", ["aarch64", *(
    pytest.param(n, marks=pytest.mark.product) for n in ("aarch64-bf16", "riscv64"))])
def test_emulated_machines_round_alike(name, tmp_path):
    """A target without rows for bf16 stores the rounded numbers as f32; an instruction that rounds
    sums otherwise is as close."""
    cross = TARGETS[name].cross
    if not any(map(shutil.which, cross.cc)) or not shutil.which(cross.emulator[0]):
        pytest.skip(f"needs {', '.join(cross.packages)} (Debian)")
    model, feeds = layers(), _feeds((13, 24))
    aotc.compile(model, tmp_path / "b", target=name, precision="bf16")
    for run in emulated_models(tmp_path / "b").values():
        _close(run.run(feeds)["y"], _expected(model, feeds), 1e-6)


def test_interpreter_and_evaluator_follow_the_rewrite():
    model, feeds = layers(), _feeds((13, 24))
    work = run_pipeline(Options(model, target="x86-64-v4-bf16", precision="bf16",
                                stop_after="plan"))
    program = apply_schedule_rewrites(work.program, work.schedule)
    want = _expected(model, feeds)
    _close(evaluate(program, feeds)["y"], want, 1e-6)
    _close(interpret(program, work.schedule, feeds)["y"], want, 1e-6)


def test_first_layers_are_rounded():
    """Rows of an unfolded window lie side by side, whatever their number."""
    w = np.random.default_rng(0).standard_normal((32, 3, 7, 7)).astype(np.float32)
    model = make_model([helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 2], pads=[3] * 4)],
                       {"x": (F32, [1, 3, 32, 32])}, {"y": (F32, [1, 32, 16, 16])}, {"w": w})
    schedule = run_pipeline(Options(model, target="x86-64-v4-bf16", precision="bf16",
                                    stop_after="schedule")).schedule
    assert [(rule, c) for rule, c, _ in schedule.rewrites] == [("unfold", "y"), ("narrow", "y")]
    assert any(r.startswith("dot_bf16_") for g in schedule.groups for r in g.rows.values())


def test_what_is_joined_is_rounded_piece_by_piece():
    """A conversion behind a Concat does not make every element ask which piece it is of."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((38, 32)).astype(np.float32)
    model = make_model([helper.make_node("Sin", ["x"], ["s"]),
                        helper.make_node("Concat", ["x", "s"], ["c"], axis=1),
                        helper.make_node("MatMul", ["c", "w"], ["y"])],
                       {"x": (F32, [40, 19])}, {"y": (F32, [40, 32])}, {"w": w})
    plan = run_pipeline(Options(model, target="x86-64-v4-bf16", precision="bf16",
                                stop_after="plan")).plan
    stored = [p.value for k in plan.kernels for s in walk_body(k.body) if isinstance(s, Store)
              for p in s.puts if p.value.dtype == "bf16"]
    assert len(stored) > 1 and not any(isinstance(e, Where) for v in stored for e in walk(v))


def test_interpreter_packs_computed_columns():
    model, feeds = attention(33), _feeds((33, 64))
    work = run_pipeline(Options(model, target="x86-64-v4-bf16", precision="bf16",
                                stop_after="plan"))
    program = apply_schedule_rewrites(work.program, work.schedule)
    _close(interpret(program, work.schedule, feeds)["y"], evaluate(program, feeds)["y"], 2e-3)


def test_verify_reports_errors_against_f64_and_by_kernel(tmp_path):
    """Softmax is f32's own affair, a rounded tensor may be a step of bf16 off; double precision
    shows both errors."""
    path = tmp_path / "layers.onnx"
    onnx.save(layers(), path)
    lines, name = [], PAIRED[0].name
    results = verify(path, name, precision="bf16", report=lines.append)
    assert all(m.ok and m.limit > 1e-2 for _, m in results)
    told = {n: line.split() for line in lines for n in ("y", "s")
            if line.startswith(f"  {n}: against f64: bf16 ")}
    for words in told.values():
        low, exact = float(words[4]), float(words[-1])
        assert 1e-5 < low < 5e-2 and exact < 1e-6
    assert sorted(told) == ["s", "y"]
    nodes = verify_nodes(path, name, precision="bf16", connect="none", report=lines.append)
    assert all(n.ok for n in nodes) and len(nodes) > 4
    told = [line.split() for line in lines if "of its range from f64" in line]
    assert {words[0] for words in told} >= {"y:", "h:", "h_bf16:"}
    assert any(float(words[2]) > 1e-5 for words in told)
    assert all(float(words[-1]) < 1e-6 for words in told)


# ---------------------------------------------------------------- what is asked

def test_nothing_changes_for_who_does_not_ask(tmp_path):
    model = layers()
    made = [aotc.compile(model, tmp_path / n, name="m", **more) for n, more in (
        ("a", {}), ("b", {"precision": "f32"}))]
    files = [{p.name: p.read_bytes() for p in sorted((tmp_path / n).iterdir())} for n in "ab"]
    assert files[0] == files[1] and not any("bf16" in f or "pairs" in f for f in files[0])
    assert all("precision" not in m.manifest for m in made)
    assert "precision" not in json.loads(files[0]["schedule.json"])
    assert not made[0].manifest["target"].endswith("bf16")


def test_a_schedule_keeps_its_precision(tmp_path):
    """It is read back; another one asked for beside it is refused; rewrites need it."""
    model = layers()
    one = aotc.compile(model, tmp_path / "a", target="c", name="m", precision="bf16",
                       schedule_out=tmp_path / "s.json")
    schedule = Schedule.from_json((tmp_path / "s.json").read_text())
    assert schedule.precision == "bf16"
    two = aotc.compile(model, tmp_path / "b", target="c", name="m", schedule=tmp_path / "s.json")
    assert two.manifest["files"] == one.manifest["files"]
    with pytest.raises(ScheduleError, match="has its own, bf16"):
        aotc.compile(model, tmp_path / "c", target="c", schedule=schedule, precision="f32")
    program = run_pipeline(Options(model, target="c", stop_after="inline")).program
    faults = check_schedule(program, replace(schedule, precision="f32"), TARGETS["c"])
    assert any("choose from tf32, bf16" in f for f in faults)
    wrong = replace(schedule, rewrites=(("narrow", "nothing", {"dtype": "bf16",
                                                              "stored": "bf16"}),))
    assert any("choose from" in f for f in check_schedule(program, wrong, TARGETS["c"]))


def test_what_has_no_such_products_is_refused(tmp_path):
    for target, others in (("c", "f32, bf16, f16, int8w, int4w, auto"),
                           ("dsa:stcp920", "f32, f16, int8w, int4w")):
        with pytest.raises(UnsupportedError, match=f"precision tf32: target {target} has no "
                           f"products of such operands; choose from {others}$"):
            aotc.compile(layers(), tmp_path / "a", target=target, precision="tf32")
    with pytest.raises(aotc.AotcError, match="choose one of 'f32', 'tf32', 'bf16'"):
        aotc.compile(layers(), tmp_path / "a", target="c", precision="f8")
    assert not (tmp_path / "a").exists()
