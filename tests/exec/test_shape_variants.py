"""Kernels of their own for ranges of extents: chosen at every call, right at every border, with
weights and equal kernels stored once."""

import shutil
import subprocess
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from onnx import TensorProto, helper
from small_models import embedding, make_model

import aotc
from aotc.errors import ScheduleError
from aotc.ir.plans import Plans
from aotc.ir.schedule import Schedule, Variant
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.pipeline import run_pipeline
from aotc.runtime.emulate import emulated_models
from aotc.runtime.status import IndexFault
from aotc.samples import border_extents, random_inputs
from aotc.sched.shape_variants import boxes, left_over
from aotc.sched.within import within
from aotc.target import TARGETS, native
from aotc.tools.peers import open_reference
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
               {"batch": [(1, 2), (3, 6)], "seq": [(1, 4), (5, 9)]})}
CALLS = {"attention": [{"seq": n} for n in (1, 4, 5, 17, 32, 33, 34, 299, 300)],
         "images": [{"n": n} for n in (1, 2, 3, 9, 10, 40)],
         "lookup": [{"batch": b, "seq": s} for b in (1, 2, 3, 6) for s in (1, 4, 5, 9)]}


@cache
def _work(name, target, stop="plan", plain=False):
    model, dims, ranges = MODELS[name]
    return run_pipeline(Options(model, target=target, dims=dims, name=name, stop_after=stop,
                                variants=None if plain else ranges))


@pytest.fixture(scope="module", params=MODELS)
def built(request, tmp_path_factory):
    """(name, model that counts its kernels, reference: feeds -> outputs)."""
    folder, name = tmp_path_factory.mktemp("shapes"), request.param
    model, dims, ranges = MODELS[name]
    made = aotc.compile(model, folder / "b", target=native().name, name=name, dims=dims,
                        variants=ranges, profile=True)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return name, made, made.load(), open_reference(folder / "m.onnx")[1]


def _feeds(name, syms, seed=0):
    return random_inputs(_work(name, native().name).program, syms, seed)


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
    header = (made.path / f"{name}.h").read_text()
    assert "ARENA_BYTES_MAX" in header
    size = loaded._library.function("arena_size")
    sizes = [size(*syms.values(), 1) for syms in CALLS[name]]
    assert all(sizes) and min(sizes) < max(sizes)
    slab = made.manifest["slab_bytes_per_worker"]
    assert max(sizes) <= made.manifest["arena_bytes_max"] + slab + 4096  # and the counters


@pytest.mark.parametrize("name, target", [
    ("attention", native().name), ("attention", "riscv64"), ("attention", "cuda"),
    ("lookup", native().name), ("lookup", "c"), ("images", native().name)])
def test_the_interpreter_agrees_at_the_ends_of_every_range(name, target):
    work = _work(name, target)
    program, served = work.program, boxes(work.program, work.schedule)
    assert len(served) == len(work.plans.rows) == max(2, len(served))
    whole = {b: program.shape(b) for b in program.inputs}
    for row, box in zip(work.plans.rows, served):
        own = within(program, box)
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
    """A variant with the decisions of the base: one weights image, and its kernels are those of
    the base where its range changes none of their statements."""
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
    assert items == other + len(own) and len(own) <= first["kernels"] // 4
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
    ([{"seq": (1, 40)}, {"seq": (2, 20)}], ["variants[1]: seq 2..20 serves no call"]),
    ([{"seq": (1, 40)}, {"seq": (41, 300)}], ["the schedule around them serves no call"])])
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
    program = _work("lookup", "c").program
    for whens, left in (
            ([{"seq": (1, 4)}], {"batch": (1, 6), "seq": (5, 9)}),
            ([{"seq": (1, 4)}, {"seq": (5, 9)}], None),
            ([{"seq": (5, 9)}, {"batch": (1, 3), "seq": (1, 4)}],
             {"batch": (4, 6), "seq": (1, 4)}),
            ([{"seq": (3, 4)}], {"batch": (1, 6), "seq": (1, 9)})):
        assert left_over(program, whens) == left


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


def test_calls_from_cpp(tmp_path):
    model, dims, ranges = MODELS["attention"]
    made = aotc.compile(model, tmp_path / "b", target=native().name, name="attention", dims=dims,
                        variants=ranges)
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


@pytest.mark.parametrize("target", ["riscv64", "cuda"])
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
