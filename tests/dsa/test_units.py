"""The units of a core: products of its matrix engine and stages of its vectors, and the faults that
a Plan may have in them, which interpreter and simulator tell by name."""

import os
import re
from dataclasses import replace

import numpy as np
import pytest
from changed_kernels import relowered
from core_traces import expected_trace, read_trace
from edits import with_tables
from harness import INFO, differences
from te_programs import Maker, ax, conv2d, matmul, random_feeds, relu, softmax

from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.errors import AotcError, ScheduleError
from aotc.ir.contents import with_buffers
from aotc.ir.expr import Axis, Cast, Const, Sym
from aotc.ir.statements import Copy, For, Section, Store, Wait, bodies, walk_body, with_bodies
from aotc.ir.tile_statements import RowTable, Tile
from aotc.oracle.check_plan import plan_faults
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.runtime.loading import load
from aotc.sched import decide, lower
from aotc.sched.accelerator.clock.cycles import timeline
from aotc.sched.accelerator.kernels.copy_choice import choose_copies
from aotc.sched.cost.row_cost import unit_pays
from aotc.sched.text_choices.choose_writing import choose_writing
from aotc.target import get_target

TARGET = get_target("dsa:stcp920")
UNIT = TARGET.units[0].name
NEAR = 2e-5
HALVES = 1e-3


def weights(m, name, *shape, dtype=np.float32):
    return m.const(name, np.random.default_rng(7).standard_normal(shape).astype(dtype))


def products():
    """Ragged rows, columns and sums; both operands computed; columns that have to be packed; a
    convolution with padding and steps, and what follows sums."""
    m = Maker("products")
    for n, (rows, terms, columns) in enumerate([(33, 70, 50), (17, 3, 19), (16, 32, 16)]):
        m.input(f"x{n}", rows, terms)
        matmul(m, f"y{n}", f"x{n}", weights(m, f"w{n}", terms, columns))
    m.input("q", 20, 24), m.input("k", 37, 24), m.input("v", 37, 21)
    i, j, k = ax("i", 20), ax("j", 37), ax("k", 24)
    m.step("qk", (i, j), m.ref("q", i, k) * m.ref("k", j, k), (k,), "sum")
    matmul(m, "a", softmax(m, "p", "qk"), "v")
    m.input("image", 1, 6, 9, 11)
    conv2d(m, "c", "image", weights(m, "wc", 18, 6, 3, 3), 2, 1)
    m.pointwise("r", "c", lambda e, axes: relu(e + m.ref("bias", axes[1])) if m.const(
        "bias", np.linspace(-1, 1, 18, dtype=np.float32)) else e)
    return m.done("y0", "y1", "y2", "a", "r")


def halves():
    """Rows, columns or both that are stored as f16."""
    m = Maker("halves")
    m.input("x", 19, 40, dtype="f16"), m.input("z", 19, 40)
    weights(m, "w", 40, 23, dtype=np.float16)
    i, j, k = ax("i", 19), ax("j", 23), ax("k", 40)
    columns = Cast("f32", m.ref("w", k, j))
    m.step("both", (i, j), Cast("f32", m.ref("x", i, k)) * columns, (k,), "sum")
    m.step("columns", (i, j), m.ref("z", i, k) * columns, (k,), "sum")
    m.pointwise("stored", "both", lambda e, axes: Cast("f16", e))
    return m.done("both", "columns", "stored")


def planned(program, special=()):
    s = decide(program, TARGET)
    feeds = random_feeds(program, np.random.default_rng(), special=special)
    return s, lower(program, s, TARGET), feeds, evaluate(program, feeds, {})


def built(plan, s, folder):
    write_bundle(render_bundle(plan, s, INFO), folder)
    return load(folder)


def tiles(plan):
    return [t for k in plan.kernels for t in walk_body(k.body) if isinstance(t, Tile)]


def long():
    """Sums that scratch does not hold: of a product, and of a convolution with padding."""
    m = Maker("long")
    m.input("x", 17, 1201), m.input("image", 1, 130, 5, 4)
    matmul(m, "y", "x", weights(m, "w", 1201, 19))
    conv2d(m, "c", "image", weights(m, "wc", 17, 130, 3, 3), 1, 1)
    m.pointwise("r", "c", lambda e, axes: relu(e + 0.5))
    return m.done("y", "r")


@pytest.mark.parametrize("make", [products, halves, long])
def test_products_run_on_the_matrix_engine(make, tmp_path, monkeypatch):
    """In the interpreter, and in the simulator, which does what the model of time says."""
    s, plan, feeds, want = planned(make())
    near = HALVES if make is halves else NEAR
    assert len(tiles(plan)) == {products: 6, halves: 2, long: 2}[make]
    assert any(g.splits for g in s.groups) == (make is long)
    assert all(t.micro.unit == "matrix" and not t.micro.template for t in tiles(plan))
    assert make is not halves or {(t.micro.dtypes.a, t.micro.dtypes.b) for t in tiles(plan)} == {
        ("f16", "f16"), ("f32", "f16")}
    bundle = built(plan, s, tmp_path / "b")
    monkeypatch.setenv("AOTC_DSA_TRACE", os.fspath(tmp_path / "trace"))
    assert not differences(bundle.run(feeds), want, near)
    found = read_trace(tmp_path / "trace")
    assert found == expected_trace(plan, TARGET) and "matrix" in {x[3] for x in found}
    odd = random_feeds(make(), np.random.default_rng(), special=(np.nan, np.inf, -np.inf))
    want = evaluate(make(), odd, {})
    assert not differences(bundle.run(odd), want, 1e-2)
    assert not differences(run_plan(plan, odd), want, 1e-2)


@pytest.mark.parametrize("width", [64, 20])
def test_columns_of_a_head_are_copied_without_those_of_others(width):
    """Boxes that begin at several axes' tiles: proved to be inside, or else all columns are."""
    m, heads, rows = Maker("heads"), 3, 37
    m.input("p", heads, rows, rows), m.input("v", rows, heads * width)
    h, i, j, k = (Axis(a, Const(n)) for a, n in zip("hijk", (heads, rows, width, rows)))
    m.step("y", (h, i, j), m.ref("p", h, i, k) * m.ref("v", k, h * width + j), (k,), "sum")
    program = m.done("y")
    s = decide(program, TARGET)
    for tile in ({}, {"j": 16}):  # of 20 columns, the last ones are fewer
        g, = s.groups
        cut = choose_copies(program, TARGET, (replace(g, tile=g.tile | tile, copies={}),), {})
        plan = lower(program, replace(s, groups=cut), TARGET)
        assert not plan_faults(plan) and {t.micro.unit for t in tiles(plan)} == {"matrix"}
        sizes = {x.name: x.elements for x in plan.kernels[0].scratch}
        narrow = width == 64 or not tile and "j" not in g.tile
        assert (sizes["v_near"] < rows * heads * width) == narrow
        feeds = random_feeds(program, np.random.default_rng(), {})
        assert not differences(run_plan(plan, feeds), evaluate(program, feeds, {}), NEAR)


def test_slices_of_sums_fit_for_every_number_of_rows():
    """Chosen for typical rows, cut further where more would not lie in scratch."""
    m, batch, rows = Maker("free"), Sym("batch", 1, 2), Sym("rows", 4, 8)
    m.input("x", batch, rows, 2048)
    weights(m, "w", 2048, 40)
    b, i, j, k = Axis("b", batch), Axis("i", rows), Axis("j", Const(40)), Axis("k", Const(2048))
    m.step("y", (b, i, j), m.ref("x", b, i, k) * m.ref("w", k, j), (k,), "sum")
    program, syms = m.done("y"), {"batch": 2, "rows": 7}
    s = decide(program, TARGET)
    plan = lower(program, s, TARGET)
    assert any(g.splits for g in s.groups) and {t.micro.unit for t in tiles(plan)} == {"matrix"}
    feeds = random_feeds(program, np.random.default_rng(), syms)
    assert not differences(run_plan(plan, feeds, syms), evaluate(program, feeds, syms), NEAR)


def test_softmax_norms_and_maps_run_on_vectors():
    m = Maker("rows")
    m.input("x", 40, 37)
    m.pointwise("y", softmax(m, "p", "x"), lambda e, axes: relu(e * e - 0.001))
    _, plan, feeds, want = planned(m.done("y"))
    loops = [s for k in plan.kernels for s in walk_body(k.body) if isinstance(s, For)]
    assert sum(s.kind == "lanes" for s in loops) >= 3
    assert not differences(run_plan(plan, feeds), want, NEAR)


def test_what_the_engine_would_pad_stays_on_vectors():
    row, tuning = TARGET.units[0], TARGET.tuning
    assert unit_pays(row, 16, 16, tuning) and unit_pays(row, 3, 40, tuning)
    assert not unit_pays(row, 1, 1000, tuning)
    m = Maker("row")
    m.input("x", 1, 40)
    matmul(m, "y", "x", weights(m, "w", 40, 64))
    _, plan, feeds, want = planned(m.done("y"))
    assert not tiles(plan) and not differences(run_plan(plan, feeds), want, NEAR)


def test_its_time_is_that_of_full_tiles():
    _, plan, _, _ = planned(products())
    machine, unit = TARGET.machine, TARGET.machine.units[0]
    spans = [s for s in timeline(plan, machine, {}).spans if s.what == unit.name]
    step = 2 * unit.rows * unit.columns / unit.flops
    assert spans and all((s.end - s.start) / step == pytest.approx(round(
        (s.end - s.start) / step)) for s in spans)


# ---------------------------------------------------------------- faults

def small():
    m = Maker("small")
    m.input("x", 20, 30)
    matmul(m, "y", "x", weights(m, "w", 30, 40))
    return m.done("y")


def changed(plan, change):
    """The Plan with every statement that ``change`` gives others for, () for none."""
    def visit(s):
        s = with_bodies(s, {n: body(b) for n, b in bodies(s)})
        new = change(s)
        return (s,) if new is None else new if isinstance(new, tuple) else (new,)

    def body(b):
        return tuple(x for s in b for x in visit(s))
    kernel, = plan.kernels
    return replace(plan, kernels=(replace(kernel, body=body(kernel.body)),))


def of(kind, **fields):
    def change(s):
        return replace(s, **{f: new(getattr(s, f)) for f, new in fields.items()}) if isinstance(
            s, kind) else None
    return change


def far(buffer):
    return lambda s: with_buffers(s, {f"{buffer}_near": buffer}) if isinstance(
        s, Section) else None


PLANTED = {
    "rows in DDR": (far("x"), "x is in the outermost memory"),
    "columns in DDR": (far("w"), "w is in the outermost memory"),
    "a step more": (of(Tile, kc=lambda e: e + 1), ""),
    "a step less": (of(Tile, kc=lambda e: e - 1), ""),
    "columns apart": (of(Tile, b=lambda b: replace(b, step=b.step + 1)), ""),
    "rows apart": (of(Tile, a=lambda a: replace(a, step=a.step + 1)), ""),
    "from the next element": (of(RowTable, offset=lambda e: e + 1), ""),
    "fewer columns": (of(Tile, b=lambda b: replace(b, left=b.left - 1)), ""),
}


@pytest.fixture(scope="module")
def product():
    return planned(small())


@pytest.mark.parametrize("what", PLANTED)
def test_planted_faults_are_told(what, product):
    _, plan, feeds, want = product
    change, text = PLANTED[what]
    try:
        told = "; ".join(differences(run_plan(changed(plan, change), feeds), want, NEAR))
    except AotcError as err:
        told = str(err)
        assert re.match(r"kernel k000\w*, tile contraction_f32_16x16__matrix", told)
    assert told and text in told


@pytest.fixture(scope="module")
def in_slices():
    """A product whose sums run in slices, the last one cut."""
    s = decide(small(), TARGET, written=False)
    s = choose_writing(small(), replace(s, groups=tuple(
        with_tables(g, split={"y": {"k": 8}}) for g in s.groups)), TARGET)
    feeds = random_feeds(small(), np.random.default_rng())
    return s, lower(small(), s, TARGET), feeds, evaluate(small(), feeds, {})


def test_slices_lack_no_statement(in_slices):
    """Whatever is taken out of a product in slices is told, and each wait by its name."""
    _, plan, feeds, want = in_slices
    assert not plan_faults(plan) and not differences(run_plan(plan, feeds), want, NEAR)
    parts = [x for x in walk_body(plan.kernels[0].body)
             if isinstance(x, (Copy, Wait, Store))]
    assert [type(x) for x in parts] == [Copy, Copy, Wait, *[Store] * 3, Copy, Wait]
    for x in dict.fromkeys(parts):
        def without(s, x=x):
            return () if s == x else None
        try:
            told = "; ".join(differences(run_plan(changed(plan, without), feeds), want, NEAR))
        except AotcError as err:
            told = str(err)
        assert told, x.lines()
        assert not isinstance(x, Wait) or "before the wait for" in told


def test_sums_of_ragged_tiles_are_proved_to_have_room():
    """Rows and columns both end with a tile that is cut, so that counts of register tiles are two
    rounded numbers."""
    m = Maker("ragged")
    m.input("x", 1, 24, 6, 14)
    conv2d(m, "y", "x", weights(m, "w", 40, 24, 1, 1), 1, 0)
    program = m.done("y")
    s = decide(program, TARGET, written=False)
    g, = s.groups
    by = dict(zip(("n", "oc", "oh"), (1, 32, 4)))
    s = choose_writing(program, replace(s, groups=(with_tables(
        g, tile=by, parallel=tuple(by), split={"y": {g.choices["y"].k: 8}}),)), TARGET)
    plan = lower(program, s, TARGET)
    assert not plan_faults(plan)
    kernel, = plan.kernels
    less = relowered(kernel, scratch=tuple(
        replace(x, elements=x.elements - 256) if "sums" in x.name else x for x in kernel.scratch))
    assert any("sums" in f for f in plan_faults(replace(plan, kernels=(less,))))


def test_a_product_that_loses_its_operands_has_no_slices():
    s = decide(small(), TARGET)
    g, = (with_tables(g, split={"y": {"k": 8}}, copies={}) for g in s.groups)
    near = replace(TARGET.machine.near, capacity=1 << 10)
    tiny = replace(TARGET, machine=replace(TARGET.machine, memories=tuple(
        near if x is TARGET.machine.near else x for x in TARGET.machine.memories)))
    g, = choose_copies(small(), tiny, (g,), s.layouts)
    assert g.rows == {"y": "loops"} and g.splits == {}


def test_boxes_of_digits_have_room_for_what_is_copied():
    """Half a head's columns lie in one head, of which all are copied; rows that are counted
    otherwise are as many as the tile has, where bounds of ends alone say one more."""
    m = Maker("digits")
    m.input("x", 5, 9, 64), m.input("z", 9, 12)
    i, n = ax("i", 9), ax("n", 320)
    m.step("y", (i, n), m.ref("x", n // 64, i, n % 64) + 1.0)
    r, c = ax("r", 8), ax("c", 12)
    m.step("t", (r, c), m.ref("z", (r * 8 + 4) // 9, c) * 2.0)
    program = m.done("y", "t")
    s = decide(program, TARGET)
    by = {"y": {"n": 32}, "t": {"r": 3}}
    s = replace(s, groups=tuple(replace(g, tile=by[g.anchor], parallel=tuple(by[g.anchor]))
                                for g in s.groups))
    plan = lower(program, s, TARGET)
    assert not plan_faults(plan)
    feeds = random_feeds(program, np.random.default_rng())
    assert not differences(run_plan(plan, feeds), evaluate(program, feeds, {}), NEAR)


@pytest.mark.product
def test_a_slice_before_its_wait_is_refused_by_the_simulator(in_slices, tmp_path):
    s, plan, feeds, _ = in_slices
    first = next(x for x in walk_body(plan.kernels[0].body) if isinstance(x, Wait))
    wrong = built(changed(plan, lambda s: () if s == first else None), s, tmp_path / "b")
    with pytest.raises(AotcError, match="multiplies byte 0 of x_near, before the wait for its DMA"):
        wrong.run(feeds)


@pytest.mark.product
def test_sums_over_joined_heads_have_no_slices():
    """Slices of k are no boxes where heads are k // 64: a Schedule that has them is told so, and
    the deciders, who would cut such long sums, do not (Conformer crashed)."""
    m, heads, rows, width = Maker("joined"), 48, 40, 64
    m.input("x", heads, rows, width)
    weights(m, "w", heads * width, 48)
    i, j, k = ax("i", rows), ax("j", 48), ax("k", heads * width)
    m.step("y", (i, j), m.ref("x", k // width, i, k % width) * m.ref("w", k, j), (k,), "sum")
    program = m.done("y")
    s = decide(program, TARGET)
    assert not any(g.splits for g in s.groups)
    plan = lower(program, s, TARGET)
    feeds = random_feeds(program, np.random.default_rng(), {})
    assert not differences(run_plan(plan, feeds), evaluate(program, feeds, {}), NEAR)
    loops = {"y": {"lanes": "j", "k": "k", "a": "rows", "b": "direct"}}
    cut = tuple(with_tables(g, ukernel={"y": UNIT}, loops=loops, split={"y": {"k": 64}}, copies={},
                        tile={"j": 16}, parallel=("j",), run={}, pipeline=0) for g in s.groups)
    with pytest.raises(ScheduleError, match="of which an operand's indices take quotients"):
        lower(program, replace(s, groups=cut), TARGET)


@pytest.mark.parametrize("split, text", [
    ({"k": 0}, "choose k and a positive number of steps"),
    ({"i": 4}, "choose k and a positive number of steps")])
def test_a_split_that_is_none_is_a_fault(split, text):
    s = decide(small(), TARGET)
    wrong = replace(s, groups=tuple(with_tables(g, split={"y": split}) for g in s.groups))
    with pytest.raises(ScheduleError, match=text):
        lower(small(), wrong, TARGET)


@pytest.mark.product
def test_an_operand_in_ddr_is_refused_by_the_simulator(product, tmp_path):
    s, plan, feeds, _ = product
    wrong = built(changed(plan, far("w")), s, tmp_path / "b")
    with pytest.raises(AotcError, match="multiplies byte .* of LB, which has 65536"):
        wrong.run(feeds)


def test_plans_are_asked_where_operands_are(product):
    _, plan, _, _ = product
    kernel, = plan.kernels
    assert not plan_faults(plan)
    contract, = kernel.lowered.stages
    wrong = replace(contract, a=replace(contract.a, buffer="x"))
    faults = plan_faults(replace(plan, kernels=(relowered(kernel, stages=(wrong,)),)))
    assert any("A is x, which is not in LB" in f for f in faults)


@pytest.mark.parametrize("loops, text", [
    ({"a": "panel"}, "a 'panel'; choose rows or packed"),
    ({"b": "panel"}, "b 'panel'; choose direct or packed")])
def test_a_schedule_says_how_operands_are_read(loops, text):
    s = decide(small(), TARGET)
    g, = s.groups
    assert g.rows["y"] == UNIT
    wrong = with_tables(g, loops={"y": {**g.choices["y"].said, **loops}})
    with pytest.raises(ScheduleError, match=text):
        lower(small(), replace(s, groups=(wrong,)), TARGET)
