"""Long f32 sums of positive numbers far from zero and of numbers that cancel: no worse than twice
ONNX Runtime's error against f64, whatever sums them."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from frontend_cases import helper, model_of
from harness import RUNNABLE
from te_programs import Maker, ax

import aotc
from aotc.emit.bundle.variants import EMITTERS
from aotc.ir.expr import Const, Sym, substitute
from aotc.ir.kernel.plan_stages import Contract, Nest
from aotc.ir.simplify import simplify
from aotc.ir.statements import Range
from aotc.sched import decide, lower
from aotc.sched.lowering.partial_sums import BLOCK_STEPS, STEPS, TERMS, split_into_parts
from aotc.target import TARGETS, get_target


def data(positive, *shape, seed=0):
    x = np.random.default_rng(seed).standard_normal(shape)
    return (np.maximum(x + 1, 0) if positive else x).astype(np.float32)


def normalised(x, axes):
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + 1e-5)


def convolved(x, w):
    """3x3, stride 2, padding 1."""
    size = x.shape[2]
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return sum(np.einsum("nchw,oc->nohw", x[:, :, p:p + size:2, q:q + size:2], w[:, :, p, q])
               for p in range(3) for q in range(3))


def long_sums(positive):
    """(model, feeds, {output: its value in f64})."""
    image, rows = data(positive, 1, 6, 200, 200), data(positive, 8, 9001)
    maps, columns = data(positive, 1, 300, 10, 10), data(positive, 6000, 20)
    weights, kernel = data(positive, 9001, 24, seed=1), data(positive, 20, 300, 3, 3, seed=2)
    wide, tall = data(positive, 40, 3000), data(positive, 3000, 700, seed=3)
    feeds = {"image": image, "rows": rows, "maps": maps, "columns": columns, "wide": wide,
             "weights": weights}
    consts = {"first": np.array([0]), "last": np.array([1]), "kernel": kernel, "tall": tall,
              "ones": np.ones(6, np.float32), "zeros": np.zeros(6, np.float32),
              "scale": np.ones(9001, np.float32), "held": weights}
    big = {n: a.astype(np.float64) for n, a in (feeds | consts).items()}
    node = helper.make_node
    parts = [
        (node("GlobalAveragePool", ["image"], ["pool"]), big["image"].mean((2, 3), keepdims=True)),
        (node("InstanceNormalization", ["image", "ones", "zeros"], ["norm"], epsilon=1e-5),
         normalised(big["image"], (2, 3))),
        (node("ReduceSum", ["columns", "first"], ["sum"]), big["columns"].sum(0, keepdims=True)),
        (node("ReduceL2", ["rows", "last"], ["l2"]),
         np.sqrt((big["rows"] ** 2).sum(1, keepdims=True))),
        (node("LayerNormalization", ["rows", "scale"], ["layer"]), normalised(big["rows"], (1,))),
        (node("MatMul", ["rows", "held"], ["product"]), big["rows"] @ big["held"]),
        (node("MatMul", ["rows", "weights"], ["packed"]), big["rows"] @ big["weights"]),
        (node("MatMul", ["wide", "tall"], ["sliced"]), big["wide"] @ big["tall"]),
        (node("Conv", ["maps", "kernel"], ["conv"], pads=[1] * 4, strides=[2, 2]),
         convolved(big["maps"], big["kernel"]))]
    want = {n.output[0]: w for n, w in parts}
    model = model_of([n for n, _ in parts], {n: ("f4", a.shape) for n, a in feeds.items()},
                     list(want), consts)
    return model, feeds, want


@pytest.mark.parametrize("target, positive", [
    pytest.param(t, p, id=f"{t.name}-{'positive' if p else 'cancelling'}",
                 marks=() if p == (t is RUNNABLE[0]) else pytest.mark.product)
    for t in (RUNNABLE[0], RUNNABLE[-1]) for p in (True, False)])
def test_no_worse_than_twice_onnxruntime(target, positive, tmp_path):
    model, feeds, want = long_sums(positive)
    session = onnxruntime.InferenceSession(model.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    ort = dict(zip(want, session.run(None, feeds)))
    got = aotc.compile(model, out=tmp_path / "b", target=target.name).load().run(feeds)

    def error(a, name):
        return np.sqrt(((a.astype(np.float64) - want[name]) ** 2).mean())
    for name, w in want.items():
        least = 2e-8 * np.abs(w).max()  # what rounding the result costs
        assert error(got[name], name) <= 2 * max(error(ort[name], name), least), name


def nest(*extents, **fields):
    """A Nest that sums over axes r0, r1, ... of these extents."""
    m = Maker()
    m.input("x", *extents)
    raxes = [ax(f"r{k}", e) for k, e in enumerate(extents)]
    m.step("y", (ax("i", 1),), m.ref("x", *raxes), raxes, "sum")
    program = m.done("y")
    kernel, = lower(program, decide(program, TARGETS["c"]), TARGETS["c"]).kernels
    found, = (s for s in kernel.lowered.stages if isinstance(s, Nest))
    reduce = tuple(Range(r, Const(0), r.extent) for r in raxes)
    return split_into_parts(replace(found, reduce=reduce, parts=0, **fields))


def terms_of(ranges, at=None):
    """{values of the loops' axes} of every run through loops, in order."""
    at = at or {}
    if not ranges:
        return [at]
    lo, hi = (simplify(substitute(e, at)).value for e in (ranges[0].lo, ranges[0].hi))
    return [x for v in range(lo, hi)
            for x in terms_of(ranges[1:], at | {ranges[0].axis: Const(v)})]


@pytest.mark.parametrize("extents, longest", [
    ((TERMS,), None), ((8, TERMS // 8), None), ((2 * TERMS,), TERMS), ((5 * TERMS,), TERMS),
    ((TERMS + 1,), 65), ((7, 7, 49), 49), ((30, TERMS - 1), TERMS - 1), ((3, 1021), 128),
    ((TERMS + 1, 3, 5), 120)])
def test_parts_have_every_term_once(extents, longest):
    n = nest(*extents)
    if longest is None:
        assert not n.parts
        return
    found, axes = [], {a.name: a for r in n.reduce for a in [r.axis]}
    for outer in terms_of(n.reduce[:n.parts]):
        part = terms_of(n.reduce[n.parts:], outer)
        assert 0 < len(part) <= longest <= TERMS
        found += [tuple(x[axes[f"r{k}"]].value for k in range(len(extents))) for x in part]
    assert sorted(found) == list(np.ndindex(*extents))


def test_a_sum_of_unknown_length_has_parts():
    assert nest(Sym("n", 1, 9000)).parts == 1 and not nest(Sym("n", 1, TERMS)).parts


def test_lanes_along_a_sum_make_parts_of_vectors():
    assert not nest(16 * TERMS, vector="r0", lanes=16).parts
    n = nest(32 * TERMS, vector="r0", lanes=16)
    assert n.parts == 1 and str(n.reduce[0]) == "r0_part in 0..2"


def test_products_say_their_parts():
    m = Maker()
    for name, k in (("short", STEPS), ("long", STEPS + 1)):
        m.input(f"x{name}", 8, k)
        m.const(f"w{name}", np.ones((k, 32), np.float32))
        i, j, r = ax("i", 8), ax("j", 32), ax("k", k)
        m.step(name, (i, j), m.ref(f"x{name}", i, r) * m.ref(f"w{name}", r, j), (r,), "sum")
    program = m.done("short", "long")
    for target in RUNNABLE:
        plan = lower(program, decide(program, target), target)
        parts = [s.micro.part for k in plan.kernels for s in k.lowered.stages
                 if isinstance(s, Contract)]
        assert parts == [0, STEPS], target.name
        assert "in parts of 512" in str(plan)


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90"])
def test_products_of_blocks_of_threads_have_totals_where_sums_are_very_long(target):
    m = Maker()
    i, j = ax("i", 64), ax("j", 64)
    for name, k in (("short", BLOCK_STEPS), ("long", BLOCK_STEPS + 1)):
        m.input(f"x{name}", 64, k)
        m.const(f"w{name}", np.ones((k, 64), np.float32))
        r = ax("k", k)
        m.step(name, (i, j), m.ref(f"x{name}", i, r) * m.ref(f"w{name}", r, j), (r,), "sum")
    program, target = m.done("short", "long"), get_target(target)
    plan = lower(program, decide(program, target, winograd=()), target)  # whole: no rewrites
    assert [s.micro.part for k in plan.kernels for s in k.lowered.stages] == [0, STEPS]
    text = "".join(EMITTERS[target.emitter](plan, target).values())
    assert text.count("float total[") == 1 and "+= acc[" in text


def test_very_long_sums_in_the_simulator(tmp_path):
    pytest.importorskip("aotc.runtime.simulate").find_cxx()
    x, w = data(True, 24, 5000), data(True, 5000, 40, seed=1)
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ("f4", x.shape)},
                     ["y"], {"w": w})
    got = aotc.compile(model, out=tmp_path / "b", target="cuda:sm_90").load(simulate=True).run(
        {"x": x})["y"]
    want = x.astype(np.float64) @ w
    assert np.abs(got - want).max() <= 2e-6 * np.abs(want).max()
