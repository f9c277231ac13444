"""Kernels of their own for ranges of extents: chosen at every call, right at every border, with
weights and equal kernels stored once."""

import json
import shutil
import subprocess
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from onnx import TensorProto, helper
from small_models import dense, embedding, make_model, running_sum

import aotc
from aotc.cli import main
from aotc.emit.bundle.variants import variants
from aotc.emit.c.kernel_text import kernel_functions
from aotc.emit.text.dialect import Dialect
from aotc.errors import ScheduleError, UnsupportedError
from aotc.ir.contents import expressions, symbols
from aotc.ir.expr import as_expr
from aotc.ir.plans import Plans
from aotc.ir.schedule import Schedule, Variant
from aotc.options import Options
from aotc.oracle.eval_expr import index_value
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.pipeline import run_pipeline
from aotc.runtime.emulate import emulated_models
from aotc.runtime.status import IndexFault
from aotc.samples import border_extents, random_inputs, record_samples, run_work
from aotc.sched.narrowed_program import restrict_to_box
from aotc.sched.shape_variants import boxes, served_extents
from aotc.target import TARGETS, native_target
from aotc.tools.peers import open_reference
from aotc.tools.show import variant_rows
from aotc.tools.verify import compare

F32 = TensorProto.FLOAT


def _attention():
    """One head over x f32[seq, 24], and a product behind it."""
    rng = np.random.default_rng(1)
    stored = {n: rng.standard_normal((24, 24)).astype(np.float32) / 5 for n in "qkvo"}
    stored["scale"] = np.float32(0.2)
    node = helper.make_node
    nodes = [*(node("MatMul", ["x", n], [f"x{n}"]) for n in "qkv"),
             node("Transpose", ["xk"], ["kt"], perm=[1, 0]),
             node("MatMul", ["xq", "kt"], ["s"]), node("Mul", ["s", "scale"], ["t"]),
             node("Softmax", ["t"], ["p"]), node("MatMul", ["p", "xv"], ["a"]),
             node("MatMul", ["a", "o"], ["b"]), node("Add", ["b", "x"], ["y"])]
    return make_model(nodes, {"x": (F32, ["seq", 24])}, {"y": (F32, ["seq", 24])}, stored)


def _images():
    """Two convolutions and a classifier over x f32[n, 3, 10, 10]."""
    rng = np.random.default_rng(2)
    shapes = {"w0": (9, 3, 3, 3), "w1": (16, 9, 3, 3), "w2": (16, 10)}
    stored = {n: rng.standard_normal(s).astype(np.float32) / 4 for n, s in shapes.items()}
    node = helper.make_node
    nodes = [node("Conv", ["x", "w0"], ["c"], pads=[1] * 4), node("Relu", ["c"], ["r"]),
             node("Conv", ["r", "w1"], ["d"], strides=[2, 2]), node("Relu", ["d"], ["e"]),
             node("GlobalAveragePool", ["e"], ["g"]), node("Flatten", ["g"], ["f"]),
             node("MatMul", ["f", "w2"], ["y"])]
    return make_model(nodes, {"x": (F32, ["n", 3, 10, 10])}, {"y": (F32, ["n", 10])}, stored)


# model, ranges of its dimensions, those that get kernels of their own
MODELS = {
    "attention": (_attention(), {"seq": (1, 300)}, {"seq": [(1, 4), (5, 32), (33, 300)]}),
    "images": (_images(), {"n": (1, 40)}, {"n": [(1, 1), (2, 9)]}),
    "lookup": (embedding(), {"batch": (1, 6), "seq": (1, 9)},
               {"batch": [(1, 2), (3, 6)], "seq": [(1, 4), (5, 9)]}),
    "rounds": (running_sum(), {"t": (1, 30)}, {"t": [(1, 1), (2, 4)]})}
CALLS = {"attention": [{"seq": n} for n in (1, 4, 5, 17, 32, 33, 34, 299, 300)],
         "images": [{"n": n} for n in (1, 2, 3, 9, 10, 40)],
         "rounds": [{"t": t} for t in (1, 2, 4, 5, 30)],
         "lookup": [{"batch": b, "seq": s} for b in (1, 2, 3, 6) for s in (1, 4, 5, 9)]}


@cache
def _work(name, target, stop="plan", plain=False):
    model, dims, ranges = MODELS[name]
    return run_pipeline(Options(model, target=target, dims=dims, name=name, stop_after=stop,
                                variants=None if plain else ranges))


@pytest.fixture(scope="module", params=[
    pytest.param(n, marks=pytest.mark.product) if n in ("rounds", "images") else n
    for n in MODELS])
def built(request, tmp_path_factory):
    """(name, model that counts its kernels, reference: feeds -> outputs)."""
    folder, name = tmp_path_factory.mktemp("shapes"), request.param
    model, dims, ranges = MODELS[name]
    made = aotc.compile(model, folder / "b", target=native_target().name, name=name, dims=dims,
                        variants=ranges, profile=True)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return name, made, made.load(), open_reference(folder / "m.onnx")[1]


def _feeds(name, syms, seed=0):
    return random_inputs(_work(name, native_target().name).program, syms, seed)


def test_every_border_is_right_and_its_own_kernels_run(built):
    name, made, loaded, reference = built
    rows = made.manifest["variants"][0]["when"]
    for number, syms in enumerate(CALLS[name]):
        feeds = _feeds(name, syms, number)
        got, want = loaded.run(feeds), reference(feeds)
        assert all(compare(n, got[n], want[n]).ok for n in want), syms
        ran = next(i for i, r in enumerate(rows) if all(
            lo <= syms[n] <= hi for n, (lo, hi) in r["extents"].items()))
        counts, at = [c.calls for c in loaded.profile(reset=True)], 0
        for i, row in enumerate(rows):
            here = counts[at:at + row["kernels"]]
            assert all(here) if i == ran else not any(here), (syms, i, here)
            at += row["kernels"]
        if name == "lookup":
            feeds["ids"][-1, -1] = 30
            with pytest.raises(IndexFault, match="lookup"):
                loaded.run(feeds)
            loaded.profile(reset=True)


def test_arena_is_that_of_the_variant(built):
    """What a call needs is what a model for its range alone would need."""
    name, made, loaded, _ = built
    assert "ARENA_BYTES_MAX" in (made.path / f"{name}.h").read_text()
    size = loaded._library.function("arena_size")
    plans = _work(name, native_target().name).plans
    counters = 32 * len(made.manifest["kernels"])
    for syms in CALLS[name]:
        row = next(r for r in plans.alternatives if r.condition.holds(syms))
        want = sum(-(-index_value(s, syms) // 64) * 64 for s in row.plan.slots) + index_value(
            as_expr(row.plan.slab_bytes), syms)
        assert size(*syms.values(), 1) == max(64, want + -(-counters // 64) * 64), syms
        most = made.manifest["arena_bytes_max"] + made.manifest["slab_bytes_per_worker"]
        assert size(*syms.values(), 1) <= most  # the counters of a profile, too
        assert want <= made.manifest["arena_bytes_max"] + made.manifest["slab_bytes_per_worker"]


@pytest.mark.parametrize("name, target", [
    ("attention", native_target().name), ("lookup", "c"),
    *(pytest.param(*case, marks=pytest.mark.product) for case in (
        ("attention", "riscv64"), ("attention", "cuda"), ("lookup", native_target().name),
        ("images", native_target().name)))])
def test_the_interpreter_agrees_at_the_ends_of_every_range(name, target):
    work = _work(name, target)
    program, served = work.program, boxes(work.program, work.schedule)
    assert len(served) == len(work.plans.alternatives) == max(2, len(served))
    whole = {b: program.shape(b) for b in program.inputs}
    for row, box in zip(work.plans.alternatives, served):
        own = restrict_to_box(program, box)
        assert own.inputs == program.inputs and list(whole) == list(own.inputs)
        for syms in border_extents(program, [box, {}], 6):
            if any(syms[n] < lo or syms[n] > hi for n, (lo, hi) in box.items()):
                continue
            assert row.condition.holds(syms)
            feeds = random_inputs(program, syms)
            want = evaluate(program, feeds, syms)
            for got in (evaluate(own, feeds, syms), run_plan(row.plan, feeds, syms)):
                for n, w in want.items():
                    np.testing.assert_allclose(got[n], w, rtol=2e-4, atol=1e-4, err_msg=f"{syms}")


def test_equal_variants_share_weights_and_functions(tmp_path):
    """A variant with the decisions of the base: one weights image, and its kernels are the
    base's."""
    name, target = "attention", "x86-64-v3"
    model, dims, _ = MODELS[name]
    options = {"target": target, "name": name, "dims": dims}
    work = run_pipeline(Options(model, stop_after="schedule", connect="none", **options))
    schedule = replace(work.schedule, variants=(Variant({"seq": (1, 64)}, work.schedule, "same"),))
    options["schedule"] = work.schedule
    alone = aotc.compile(model, tmp_path / "a", **options)
    options["schedule"] = schedule
    both = aotc.compile(model, tmp_path / "b", **options)
    assert both.manifest["weights_bytes"] == alone.manifest["weights_bytes"]
    first, rest = both.manifest["variants"][0]["when"]
    assert first["why"] == "same" and first["extents"] == {"seq": [1, 64]}
    names = [k["c"] for k in both.manifest["kernels"]]
    assert len(names) == first["kernels"] + rest["kernels"] == 2 * len(alone.manifest["kernels"])
    own = [n for n in set(names) if n.startswith(f"{name}_s0_")]
    items, other = (sum(p.read_text().count("for (int64_t tile = begin;") for p in made.path.glob(
        "*_kernels_*.c")) for made in (both, alone))
    assert items == other and not own
    options["schedule"] = both.path / "schedule.json"
    again = aotc.compile(model, tmp_path / "c", **options)
    assert again.manifest == both.manifest
    for path in sorted(both.path.iterdir()):
        assert path.read_bytes() == (again.path / path.name).read_bytes(), path.name


def _hand_written(*whens):
    work = _work("attention", "c", plain=True)
    return replace(work.schedule, variants=tuple(Variant(w, Schedule("c", ())) for w in whens))


@pytest.mark.parametrize("whens, texts", [
    ([{"rows": (1, 4)}], ["no dimension 'rows'", "seq 1..300"]),
    ([{"seq": (9, 4)}], ["seq 9..4 is empty", "seq 1..300"]),
    ([{"seq": (0, 4)}], ["seq 0..4 is not inside seq 1..300"]),
    ([{"seq": (200, 400)}], ["seq 200..400 is not inside seq 1..300"]),
    ([{"seq": (200, None)}], ["seq 200.. is not inside"]),
    ([{}], ["names no dimension", "seq 1..300"]),
    ([{"seq": (1, 40)}, {"seq": (2, 20)}], ["variants[1].when: seq 2..20 holds no call"]),
    ([{"seq": (1, 20)}, {"seq": (21, 40)}, {"seq": (9, 30)}], ["variants[2].when: seq 9..30"]),
    ([{"seq": (1, 40)}, {"seq": (41, 300)}], ["no call for the schedule around them"])])
def test_a_wrong_when_is_refused(whens, texts, tmp_path):
    model, dims, _ = MODELS["attention"]
    with pytest.raises(ScheduleError) as told:
        aotc.compile(model, tmp_path / "b", target="c", dims=dims, schedule=_hand_written(*whens))
    assert all(t in str(told.value) for t in texts), told.value
    assert not (tmp_path / "b").exists()


def test_faults_of_a_variant_name_it():
    schedule = _hand_written({"seq": (1, 4)})
    work = _work("attention", "c", plain=True)
    broken = replace(schedule.variants[0], schedule=replace(work.schedule.base, groups=(
        replace(work.schedule.groups[0], tile={"nowhere": 3}), *work.schedule.groups[1:])))
    with pytest.raises(ScheduleError, match="variant seq 1..4: group .*nowhere"):
        run_pipeline(Options(MODELS["attention"][0], target="c", dims={"seq": (1, 300)},
                             stop_after="plan", schedule=replace(schedule, variants=(broken,))))


def test_calls_that_are_left():
    """Exact, whatever order the boxes have, also where they are a grid or open at their end."""
    program = _work("lookup", "c").program
    few, all_ = (1, 4), (1, 6)
    for whens, left in (
            ([{"seq": few}], {"batch": all_, "seq": (5, 9)}),
            ([{"seq": few}, {"seq": (5, 9)}], None),
            ([{"seq": (5, 9)}, {"batch": (1, 3), "seq": few}], {"batch": (4, 6), "seq": few}),
            ([{"batch": b, "seq": s} for b in ((1, 2), (3, 6)) for s in (few, (5, 9))], None),
            ([{"batch": b, "seq": s} for b in ((1, 2), (3, 6)) for s in (few, (6, 9))],
             {"batch": all_, "seq": (5, 5)}),
            ([{"seq": (3, 4)}], {"batch": all_, "seq": (1, 9)})):
        assert served_extents(program, whens).get(len(whens)) == left
    first, second, rest = served_extents(program, [{"seq": (3, 4)}, {"seq": (1, 6)}]).values()
    assert {first["seq"], second["seq"], rest["seq"]} == {(3, 4), (1, 6), (7, 9)}
    open_ = _work("attention", "c", plain=True).program
    open_ = restrict_to_box(open_, {"seq": (1, None)})
    found = served_extents(open_, [{"seq": (5, None)}, {"seq": (1, 9)}])
    assert found == {0: {"seq": (5, None)}, 1: {"seq": (1, 4)}}


def test_recorded_runs_are_at_both_ends_of_every_range():
    work = _work("attention", "c")
    served = boxes(work.program, work.schedule)
    ran = [s.syms["seq"] for s in record_samples(work.program, boxes=served)]
    assert {1, 4, 5, 32, 33} <= set(ran) and max(ran) > 100 and len(ran) == len(set(ran))
    limit = run_work(work.program, {"seq": 33}) * 2.0
    few = [s.syms["seq"] for s in record_samples(work.program, limit, served)]
    assert {4, 5} <= set(few) and max(few) < max(ran) and len(few) < len(ran)


def test_commands(tmp_path, capsys):
    """What the command line says of variants, and that it judges all of them."""
    path, wanted = tmp_path / "m.onnx", ["--dim", "n=1..20", "--variants", "n=1,2..3"]
    path.write_bytes(dense("n").SerializeToString())

    def said(*command):
        assert main([command[0], str(path), *command[1:], "--target", "c", *wanted]) == 0
        return capsys.readouterr().out

    text = said("show", "variants")
    for part in ("c, n 1: 1 kernels", "c, n 2..3: 1 kernels", "c, all others, n 4..20: 1 kernels"):
        assert part in text
    assert [r["when"] for r in json.loads(said("show", "variants", "--json"))] == [
        "n 1", "n 2..3", "all others, n 4..20"]
    assert "when n 2..3:" in said("show", "schedule")
    (tmp_path / "s.json").write_text(said("show", "schedule", "--json"))
    read = Schedule.from_json((tmp_path / "s.json").read_text())
    assert [v.when for v in read.variants] == [{"n": (1, 1)}, {"n": (2, 3)}]
    for view in ("kernels", "layouts"):
        assert "variant n 1\n" in said("show", view) and "all other calls\n" in said("show", view)
    assert "when n 1:" in said("show", "plan") and json.loads(said("show", "plan", "--json"))
    text = said("verify")
    assert "y: ok" in text and "7 runs" in text  # 10, 1, 13, 20 and borders 2, 3, 4
    assert "all within their bounds" in said("verify", "--per-node")
    with pytest.raises(UnsupportedError, match="tune each of them"):
        aotc.tune(path, budget=1, dims={"n": (1, 20)}, variants={"n": [(1, 1)]})
    with pytest.raises(ScheduleError, match="give one of both"):
        aotc.compile(path, tmp_path / "b", schedule=read, variants={"n": [(1, 1)]})
    for wrong in ("n", "n=", "n=1..2..3", "=1", "n=x"):
        with pytest.raises(SystemExit):
            main(["show", str(path), "schedule", "--variants", wrong])


@pytest.mark.product
def test_sets_of_kernels_for_cpus_have_their_own_variants(tmp_path):
    """The cross product: every instruction set chooses by extents."""
    model, dims, ranges = MODELS["attention"]
    work = run_pipeline(Options(model, target="x86-64", dims=dims, name="attention",
                                stop_after="plan", variants=ranges))
    sets = list(work.plans.sets())
    assert len(sets) > 1 and len({s[0].condition.features for s in sets}) == len(sets)
    for rows in sets:
        assert [r.condition.when for r in rows] == [{"seq": (1, 4)}, {"seq": (5, 32)}, {}]
        assert len(rows[-1].schedule.variants) == 2
    text = str(work.plans)
    assert "when CPU avx2, fma; seq 1..4:" in text or "avx2" in text


def test_a_function_of_several_variants_is_right_for_all():
    """It knows the ranges of all of them, not only those of the first."""
    work = run_pipeline(Options(MODELS["attention"][0], target="c", dims={"seq": (1, 300)},
                                connect="none", stop_after="schedule"))
    whens = {"seq": (1, 8)}, {"seq": (9, 64)}
    schedule = replace(work.schedule, variants=tuple(Variant(w, work.schedule) for w in whens))
    plans = run_pipeline(Options(MODELS["attention"][0], target="c", dims={"seq": (1, 300)},
                                 schedule=schedule, stop_after="plan")).plans
    variant, = variants("m", plans)
    assert [r["own_weights_bytes"] for r in variant_rows(plans)] == [0, 0, 0]
    whole = sum(a.nbytes for _, a in plans.main.plan.weights)
    alone, = variant_rows(Plans.of(plans.main.plan, work.schedule))
    assert alone["own_weights_bytes"] == whole > 0
    shared = set.intersection(*({k.name for k in p.kernels} for p in variant.plans))
    assert len(shared) > len(work.schedule.groups) / 2
    target = TARGETS["c"]
    made = kernel_functions(variant.plans, "m", Dialect(target.folder, target.lanes,
                                                       target.vectors))
    found = {s for t in made if t.kernel.name in shared for e in expressions(t.kernel)
             for s in symbols(e)}
    assert {(s.lo, s.hi) for s in found} == {(1, 300)}


def test_one_plan_is_said_as_before():
    work = _work("attention", "c", plain=True)
    assert str(work.plans) == str(work.plan)
    assert Plans.of(work.plan, work.schedule).seen(work.plan) == work.plan


_CALLS_FROM_CPP = """
#include "attention.hpp"
#include <cstdio>
#include <vector>
int main(int, char **arguments)
{
    attention::model m;
    if (m.open(arguments[1]) != AOTC_OK)
        return 2;
    attention::session s(m);
    for (const int64_t n : {300, 4, 5, 32, 33, 1}) {
        std::vector<float> x(static_cast<std::size_t>(n) * 24), y(x.size());
        for (std::size_t i = 0; i < x.size(); i++)
            x[i] = static_cast<float>(i % 17) / 8.0f - 1.0f;
        const aotc_status status = s.run(n, x, y);
        if (status != AOTC_OK)
            return 1;
        std::fwrite(y.data(), sizeof(float), y.size(), stdout);
    }
    return 0;
}
"""


@pytest.mark.product
def test_calls_from_cpp(tmp_path):
    model, dims, ranges = MODELS["attention"]
    made = aotc.compile(model, tmp_path / "b", target=native_target().name, name="attention",
                        dims=dims, variants=ranges)
    loaded = made.load()
    (tmp_path / "main.cpp").write_text(_CALLS_FROM_CPP)
    subprocess.run(["make", "-s", "static"], cwd=made.path, check=True)
    subprocess.run(["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{made.path}",
                    "main.cpp", str(made.path / "libattention.a"), "-lm", "-pthread", "-o", "main"],
                   cwd=tmp_path, check=True)
    done = subprocess.run([str(tmp_path / "main"), str(made.path / "attention_weights.bin")],
                          capture_output=True, check=True, timeout=60)
    got, at = np.frombuffer(done.stdout, np.float32), 0
    for n in (300, 4, 5, 32, 33, 1):
        x = (np.arange(n * 24) % 17 / 8 - 1).astype(np.float32).reshape(n, 24)
        want = loaded.run({"x": x})["y"]
        assert np.array_equal(got[at:at + want.size].reshape(want.shape), want), n
        at += want.size
    assert at == got.size


@pytest.mark.parametrize("target", ["riscv64", pytest.param("cuda", marks=pytest.mark.product)])
def test_other_machines(target, tmp_path):
    """Under the emulator and in the simulator."""
    model, dims, ranges = MODELS["attention"]
    made = aotc.compile(model, tmp_path / "b", target=target, name="attention", dims=dims,
                        variants=ranges)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    reference = open_reference(tmp_path / "m.onnx")[1]
    if target == "cuda":
        loaded = made.load(simulate=True)
    else:
        cross = TARGETS[target].cross
        if not any(map(shutil.which, cross.cc)) or not shutil.which(cross.emulator[0]):
            pytest.skip(f"not installed: a compiler or an emulator for {target}")
        loaded = emulated_models(made.path)[128]
    for syms in ({"seq": 4}, {"seq": 5}, {"seq": 33}):
        feeds = _feeds("attention", syms)
        got, want = loaded.run(feeds), reference(feeds)
        assert compare("y", got["y"], want["y"]).ok, syms
