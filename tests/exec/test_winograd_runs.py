"""Winograd forms as running C: every form, ragged sizes, paddings, epilogues, against the direct
convolution (the evaluator on the Program as it was) and against ONNX Runtime."""

from dataclasses import replace

import numpy as np
import pytest
from edits import loops, with_tables
from harness import DISTINCT, Case, build_cases, compile_program
from onnx import TensorProto, helper
from small_models import make_model
from te_programs import Maker, conv2d, padded, random_feeds, relu

import aotc
from aotc.ir.expr import Axis, Const, Sym
from aotc.ir.schedule import Schedule
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.passes.rewrites import apply_rewrites
from aotc.sched import check_schedule, complete, decide, lower
from aotc.sched.model.stages import group_stages

TRANSFORMS = [t for t in DISTINCT if t.rows("transform")]


def layer(height, width, ic=5, oc=6, pad=1, kernel=3, batch=1, epilogue="relu"):
    """conv "c" with bias and ``epilogue``: relu, residual (another input added first) or none."""
    rng = np.random.default_rng([height, width, ic, oc])
    m = Maker()
    m.input("x", batch, ic, height, width)
    conv2d(m, "c", "x", m.const("w", rng.standard_normal((oc, ic, kernel, kernel)).astype(
        np.float32)), 1, pad)
    m.const("bias", rng.standard_normal(oc).astype(np.float32))
    shape = m.buffers["c"].shape
    if epilogue == "residual":
        m.input("r", *shape)
    m.pointwise("y", "c", lambda e, i: {
        "relu": lambda: relu(e + m.ref("bias", i[1])),
        "residual": lambda: relu(e + m.ref("bias", i[1]) + m.ref("r", *i)),
        "none": lambda: e * Const(1.5, "f32")}[epilogue]())
    return m.done("y")


def cube(size=6, depth=5, ic=4, oc=7):
    """3x3x3 conv "c"."""
    m = Maker()
    m.input("x", 1, ic, depth, size, size)
    m.const("w", np.random.default_rng(1).standard_normal((oc, ic, 3, 3, 3)).astype(np.float32))
    n, q, c = Axis("n", Const(1)), Axis("oc", Const(oc)), Axis("ic", Const(ic))
    o = [Axis(f"o{a}", Const(s)) for a, s in zip("dhw", (depth, size, size))]
    k = [Axis(f"k{a}", Const(3)) for a in "dhw"]
    index = (n, c, *(x + y - 1 for x, y in zip(o, k)))
    body = padded(m, "x", index, {2: depth, 3: size, 4: size}) * m.ref("w", q, c, *k)
    m.step("c", (n, q, *o), body, (c, *k), "sum")
    return m.done("c")


def forced(program, form, target, **fields):
    """(rewritten Program, its Schedule) in one form; fields: of the group that holds it."""
    s = decide(program, target, winograd=(("winograd", "c", form),))
    new = apply_rewrites(program, s.rewrites)
    groups = tuple(replace(g, **fields) if "c_m" in g.computes else g for g in s.groups)
    return new, replace(s, groups=groups)


def twin(program, schedule):
    """The Schedule with the transforms on the plain nest."""
    groups = tuple(with_tables(
        g, ukernel={n: "loops" if "transform" in u else u for n, u in g.rows.items()},
        loops={n: x for n, x in loops(g).items() if "transform" not in g.rows[n]})
        for g in schedule.groups)
    return replace(schedule, groups=groups)


def square(m):
    return {"oh": m, "ow": m}


# name -> (program, outputs per tile, group fields)
LAYERS = {
    **{f"F{m} {h}x{w}": (layer(h, w), square(m), {}) for m, sizes in (
        (2, ((7, 9), (4, 3))), (4, ((8, 12), (7, 9), (13, 6))), (6, ((8, 12), (4, 3))))
       for h, w in sizes},
    **{f"pad {p}": (layer(9, 10, pad=p), square(4), {}) for p in (0, 2)},
    "5x5": (layer(9, 11, pad=2, kernel=5), square(2), {}),
    "5x5 larger": (layer(10, 11, pad=1, kernel=5), square(4), {}),
    "one axis": (layer(9, 11), {"ow": 4}, {}), "mixed": (layer(9, 11), {"oh": 2, "ow": 6}, {}),
    "many channels": (layer(14, 14, 70, 140), square(4), {}),
    "residual": (layer(10, 9, 20, 33, epilogue="residual"), square(4), {}),
    "no epilogue": (layer(10, 9, 20, 16, epilogue="none"), square(2), {}),
    "row tiles": (layer(15, 9), square(4), {"tile": {"oh": 8}, "parallel": ("oh",)}),
    "tiles across blocks": (layer(15, 9), square(4), {"tile": {"oh": 3, "ow": 5},
                                                      "parallel": ("oh", "ow")}),
    "column tiles": (layer(8, 8, 9, 140), square(2), {"tile": {"oh": 4, "oc": 64},
                                                      "parallel": ("oh", "oc")}),
    "volume": (cube(), square(4), {}), "volume, depth too": (cube(), {"od": 2} | square(2), {}),
    "batch": (layer(6, 7, batch=Sym("b", 1, 6)), square(4), {}),
}


# one of each kind: all run in the longer suite, on the widest target of this machine
FEW = ("F2 7x9", "F4 13x6", "F6 8x12", "pad 0", "residual", "tiles across blocks", "volume",
       "batch")
TWINS = ("F4 7x9", "F4 13x6", "residual", "volume")


def _cases(target, names):
    for name in names:
        program, tile, fields = LAYERS[name]
        new, s = forced(program, tile, target, **fields)
        if any("panels of" in f for f in check_schedule(new, s, target)):
            continue  # tiles cut for other targets' panels
        bare, s = replace(new, rewrites=()), replace(s, rewrites=())
        yield name, program, Case(name, bare, s, tol=2e-5)
        if name not in TWINS:
            continue
        yield name, program, Case(f"{name} loops", bare, twin(bare, s), tol=2e-5)


@pytest.mark.parametrize("target, names", [
    *(pytest.param(t, FEW, id=t.name, marks=() if t is TRANSFORMS[-1]
                   else pytest.mark.product) for t in TRANSFORMS),
    pytest.param(TRANSFORMS[-1], tuple(LAYERS), id="all", marks=pytest.mark.product)])
def test_every_form_runs(target, names, tmp_path):
    made = list(_cases(target, names))
    assert {c.name for _, _, c in made} >= {"residual", "residual loops", "batch"}
    built = build_cases([c for _, _, c in made], target, tmp_path / "winograd")
    for seed in range(2):
        s = built.sample(seed)
        for (name, program, case), f, g, w, syms in zip(made, s.feeds, s.got, s.want, s.syms):
            direct = evaluate(program, f, syms)
            for out in program.outputs:
                top = np.abs(direct[out]).max()
                assert np.abs(g[out] - direct[out]).max() <= 2e-5 * top, (name, case.name)
                assert np.abs(g[out] - w[out]).max() <= 2e-5 * top, (name, case.name)


@pytest.mark.parametrize("name", ["F4 7x9", "residual", "row tiles", "tiles across blocks",
                                  "volume", "batch"])
def test_interpreter_agrees(name):
    program, tile, fields = LAYERS[name]
    new, s = forced(program, tile, TRANSFORMS[0], **fields)
    assert check_schedule(new, s, TRANSFORMS[0]) == []
    syms = {x.name: 3 for x in program.syms}
    feeds = random_feeds(program, np.random.default_rng(5), syms)
    want = evaluate(program, feeds, syms or None)
    for backwards in (False, True):
        got = interpret(new, s, feeds, syms or None, backwards=backwards)
        for out, a in want.items():
            assert np.abs(got[out] - a).max() <= 2e-5 * np.abs(a).max()


def test_what_is_not_finite_stays_so(tmp_path):
    """A NaN or an infinity reaches every output that reads it (as NaN: differences of infinities)
    and at most the tiles around it."""
    program = layer(12, 12, 16, 16)
    new, s = forced(program, square(4), TRANSFORMS[-1])
    model = compile_program(new, s, TRANSFORMS[-1], tmp_path / "b")
    x = np.random.default_rng(0).standard_normal((1, 16, 12, 12)).astype(np.float32)
    clean = model.run({"x": x})["y"].copy()
    far = np.ones((12, 12), bool)
    far[4:8, 4:8] = False
    for special in (np.nan, np.inf, -np.inf):
        x[0, 3, 5, 6] = special
        got = model.run({"x": x})["y"]
        assert not np.isfinite(got[0, :, 4:7, 5:8]).any() or special != special
        assert np.isnan(got[0, :, 4:7, 5:8]).all() or special == special
        assert np.array_equal(got[0][:, far], clean[0][:, far])


def test_schedules_replay_and_edits_are_checked(tmp_path):
    target = TRANSFORMS[-1]
    program = layer(16, 16, 16, 32)
    _, s = forced(program, square(4), target)
    text = s.to_json()
    again = complete(program, Schedule.from_json(text), target)
    assert again.to_json() == text and again.hash == s.hash
    assert str(lower(program, again, target)) == str(lower(program, s, target))
    assert s.hash != decide(program, target).hash

    def faults(rewrites):
        return check_schedule(program, replace(s, rewrites=rewrites), target)

    assert any("choose from 2, 4, 6" in f for f in faults((("winograd", "c", {"oh": 5}),)))
    assert any("choose from oh, ow" in f for f in faults((("winograd", "c", {"oc": 2}),)))
    assert any("no compute 'c_v'" in f for f in faults(()))
    g = next(g for g in s.groups if "c_v" in g.computes)
    wrong = with_tables(g, loops=loops(g) | {"c": {"lanes": "oh"}})
    found = check_schedule(program, replace(s, groups=tuple(
        wrong if x is g else x for x in s.groups)), target)
    assert any("stage c: lanes 'oh'; choose from n, oc" in f for f in found)


def test_transforms_are_one_kernel_with_the_epilogue_inside():
    new, s = forced(layer(28, 28, 64, 64, epilogue="residual"), square(4), TRANSFORMS[-1])
    g, = s.groups
    assert g.connect["c_v"] == g.connect["c_m"] == "L2" and g.outputs == ("y",)
    assert [x.name for x in group_stages(new, g)] == ["c_v", "c_m", "c"]
    kernel, = lower(new, s, TRANSFORMS[-1]).kernels
    assert set(kernel.reads) == {"x", "w_u_oh4_ow4", "bias", "r"}  # no matrix is read at run time


def model(rng):
    def w(*shape):
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    node = helper.make_node
    nodes = [node("Conv", ["x", "w0", "b0"], ["a"], pads=[1] * 4, name="first"),
             node("Relu", ["a"], ["r"], name="relu"),
             node("Conv", ["r", "w1", "b1"], ["c"], pads=[1] * 4, name="second"),
             node("Add", ["c", "r"], ["s"], name="residual"),
             node("Relu", ["s"], ["t"], name="out"),
             node("Conv", ["t", "w2"], ["y"], name="third")]
    tensors = {"w0": w(24, 24, 3, 3), "b0": w(24), "w1": w(24, 24, 3, 3), "b1": w(24),
               "w2": w(8, 24, 3, 3)}
    return make_model(nodes, {"x": (TensorProto.FLOAT, ["n", 24, 21, 19])},
                      {"y": (TensorProto.FLOAT, ["n", 8, 19, 17])}, tensors)


@pytest.mark.parametrize("form", ["auto", *(pytest.param(m, marks=pytest.mark.product)
                                           for m in (2, 4))])
def test_against_onnx_runtime(form, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(7)
    m = model(rng)
    bundle = aotc.compile(m, tmp_path / "b", dims={"n": (1, 4)}, winograd=form)
    x = rng.standard_normal((2, 24, 21, 19)).astype(np.float32)
    want, = ort.InferenceSession(m.SerializeToString(),
                                 providers=["CPUExecutionProvider"]).run(None, {"x": x})
    for threads in (1, 2):
        got = bundle.load(threads=threads).run({"x": x})["y"]
        assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()
