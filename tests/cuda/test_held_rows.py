"""Norms and other folds of rows that threads hold in registers: each element is read once, whatever
length rows have; rows that no registers hold are read as often as they are needed."""

import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from cusim_build import needs_cxx
from harness import INFO, Built, Case, build_cases, differences, merged
from mutants import plant_mutants, unnoticed
from sass import compile_kernels, why_no_sass
from te_programs import Maker, ax, random_feeds

import aotc
from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.errors import ScheduleError
from aotc.ir.dtypes import from_bf16, to_bf16
from aotc.ir.expr import Cast, Const, Sym, Unary, maximum
from aotc.ir.kernel.plan_stages import HeldRows, Nest
from aotc.ir.kernel.row_statements import HeldRow
from aotc.ir.statements import walk_body
from aotc.oracle.check_plan import plan_faults
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.sched import decide, lower
from aotc.sched.text_choices.choose_writing import choose_writing
from aotc.target import TARGETS, get_target

TARGET = get_target("cuda:sm_90")


def number(e):
    return e if e.dtype == "f32" else Cast("f32", e)


def norm(rows, columns, of="f32", to="f32", keep=False):
    """y = (x - mean) / deviation * g + b of every row; keep: both numbers of rows are results."""
    m, i, j, r = Maker("norm"), ax("i", rows), ax("j", columns), ax("r", columns)
    m.input("x", rows, columns, dtype=of)
    m.input("g", columns)
    m.input("b", columns)

    def centred(axis):
        return number(m.ref("x", i, axis)) - m.ref("mean", i)
    m.step("total", (i,), number(m.ref("x", i, r)), (r,), "sum")
    m.step("mean", (i,), m.ref("total", i) * 0.01)
    m.step("square", (i,), centred(r) * centred(r), (r,), "sum")
    m.step("scale", (i,), Const(1.0, "f32") / Unary("sqrt", m.ref("square", i) * 0.01 + 1e-3))
    y = centred(j) * m.ref("scale", i) * m.ref("g", j) + m.ref("b", j)
    m.step("y", (i, j), y if to == "f32" else Cast(to, y))
    return m.done("y", *(("mean", "scale") if keep else ()))


def softmax(rows, columns, of="f32"):
    m, i, j, r = Maker("softmax"), ax("i", rows), ax("j", columns), ax("r", columns)
    m.input("x", rows, columns, dtype=of)
    m.step("most", (i,), number(m.ref("x", i, r)), (r,), "max")
    m.step("e", (i, j), Unary("exp", number(m.ref("x", i, j)) - m.ref("most", i)))
    m.step("total", (i,), m.ref("e", i, r), (r,), "sum")
    y = m.ref("e", i, j) / m.ref("total", i)
    m.step("y", (i, j), y if of == "f32" else Cast(of, y))
    return m.done("y")


def added(rows, columns):
    """The sum of two tensors, a result too, and its rows less their greatest element, by heads."""
    m, axes, r = Maker("added"), (ax("h", 3), ax("i", rows), ax("j", columns)), ax("r", columns)
    m.input("a", 3, rows, columns)
    m.input("c", 3, rows, columns)
    m.step("s", axes, m.ref("a", *axes) + m.ref("c", *axes))
    m.step("most", axes[:2], m.ref("s", *axes[:2], r), (r,), "max")
    m.step("y", axes, maximum(m.ref("s", *axes) - m.ref("most", *axes[:2]), Const(-9.0, "f32")))
    return m.done("s", "y")


def parts(rows, columns):
    """Rows of sums of three parts and of a row of numbers, less their means."""
    m, i, j, r, p = Maker("parts"), ax("i", rows), ax("j", columns), ax("r", columns), ax("p", 3)
    m.input("x", 3, rows, columns)
    m.input("b", columns)
    m.step("t", (i, j), m.ref("x", p, i, j), (p,), "sum")
    m.step("s", (i, j), m.ref("t", i, j) + m.ref("b", j))
    m.step("mean", (i,), m.ref("s", i, r) * (1 / columns), (r,), "sum")
    m.step("y", (i, j), m.ref("s", i, j) - m.ref("mean", i))
    return m.done("y")


ANY = Sym("n", 1, 900)
PROGRAMS = {
    "norm": norm(70, 1024), "short": norm(5, 96), "ragged": norm(13, 333), "odd": norm(9, 331),
    "halves": norm(40, 768, "f16", "f16"), "odd halves": norm(7, 769, "f16"),
    "long": norm(3, 6000), "kept": norm(6, 260, keep=True),
    "many rows": norm(700, 128), "rows of a call": norm(Sym("m", 1, 90), 256),
    "length of a call": norm(6, ANY), "softmax": softmax(33, 1000),
    "softmax of halves": softmax(16, 512, "f16"), "softmax, one row": softmax(1, 4096),
    "softmax, length of a call": softmax(4, Sym("k", 1, 600)), "added": added(10, 768),
    "added, ragged": added(5, 77), "sums of parts": parts(12, 256)}


def stages(plan):
    return [s for k in plan.kernels for s in k.lowered.stages]


def planned(program, target=TARGET):
    plan = lower(program, decide(program, target), target)
    assert plan_faults(plan) == []
    return plan


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_are_read_once(name):
    """All nests of a kernel are one stage, of which no element of a row is loaded twice; nothing
    is left in the block's memory, and the Plan means what the Program does."""
    program = PROGRAMS[name]
    plan = planned(program)
    assert stages(plan) and all(isinstance(s, HeldRows) for s in stages(plan)), stages(plan)
    assert all(not k.scratch for k in plan.kernels)
    rng = np.random.default_rng(3)
    syms = {s.name: s.hi - 2 for s in program.syms}
    feeds = random_feeds(program, rng, syms, ())
    want = evaluate(program, feeds, syms)
    got = run_plan(plan, feeds, syms)
    assert not differences(got, want, 4e-3)


@needs_cxx
def test_held_rows_are_right_at_every_size(tmp_path):
    """Against the evaluator, with numbers that are none among them: all dtypes, ragged sizes and
    extents that each call says."""
    built = build_cases(
        [Case(n, p, tol=4e-3 if "halves" in n else 2e-5)
         for n, p in PROGRAMS.items()] + [
            Case(f"{n}, special", PROGRAMS[n], tol=2e-5, special=(np.nan, np.inf, -np.inf))
            for n in ("ragged", "norm", "softmax", "added")], TARGET, tmp_path / "b")
    for seed in range(2):
        built.check(seed, syms=lambda s, r: int(r.integers(s.lo, s.hi + 1)))
    built.check(3, syms=lambda s, r: s.lo)
    built.check(4, syms=lambda s, r: s.hi)


@needs_cxx
def test_rows_of_bf16_are_right(tmp_path):
    program = norm(9, 520, "bf16", "bf16")
    built = build_cases([Case("bf16", program)], TARGET, tmp_path / "b")
    rng = np.random.default_rng()
    x, g, b = (rng.standard_normal(s).astype(np.float32) for s in ((9, 520), 520, 520))
    feeds = {"x": to_bf16(x), "g": g, "b": b}
    (got,) = built.run([feeds])
    want = from_bf16(evaluate(program, feeds)["y"])
    assert np.abs(from_bf16(got["y"]) - want).max() < 1e-2 * np.abs(want).max()


@pytest.mark.parametrize("rows, columns, of, size, width", [
    (4096, 1024, "f32", 32, 4), (64, 1024, "f32", 128, 4), (64, 768, "f16", 128, 8),
    (16, 8192, "f32", 256, 4), (64, 1023, "f32", 128, 1), (4096, 64, "f32", 32, 2)])
def test_threads_of_a_row_follow_from_its_length_and_how_many_there_are(rows, columns, of, size,
                                                                      width):
    (run,) = stages(planned(norm(rows, columns, of)))
    assert (run.size, run.width) == (size, width)
    assert len(run.loads) == 1


def test_rows_beyond_registers_are_read_where_they_lie():
    plan = planned(norm(64, 40000))
    assert not any(isinstance(s, HeldRows) for s in stages(plan))


def test_a_choice_is_kept_and_refused_where_it_cannot_be():
    program = norm(64, 1024)
    schedule = decide(program, TARGET)

    def saying(**said):
        return choose_writing(program, replace(schedule, groups=tuple(g.saying(
            lambda c: c.with_said({k: said.get(k) if k in said else None for k in c.text.said}))
            for g in schedule.groups)), TARGET)
    other = lower(program, saying(held_rows=0), TARGET)
    assert all(isinstance(s, Nest) for s in stages(other))
    assert any(isinstance(s, HeldRow) for k in lower(program, saying(), TARGET).kernels
               for s in walk_body(k.body))
    far, long = norm(64, 40000), decide(norm(64, 40000), TARGET)
    wrong = replace(long, groups=tuple(g.saying(
        lambda c: c.with_said({"held_rows": 1})) for g in long.groups))
    with pytest.raises(ScheduleError, match="held_rows 1; .* choose 0"):
        lower(far, wrong, TARGET)


def permuted(n):
    """Rows less their sums beside an element of another row, which no team may write over."""
    m, i, j, r = Maker("permuted"), ax("i", n), ax("j", n), ax("r", n)
    m.input("x", n, n)
    m.step("t", (i, j), m.ref("x", i, j) * 2.0)
    m.step("s", (i,), m.ref("t", r, i) * 0.1 + m.ref("x", i, r), (r,), "sum")
    m.step("y", (i, j), m.ref("x", i, j) - m.ref("s", i))
    m.step("z", (i, j), m.ref("y", i, j) + 1.0)
    return m.done("z")


@pytest.mark.parametrize("name", [n for n, t in TARGETS.items() if t.emitter == "simt"])
def test_no_more_blocks_are_planned_than_a_worker_holds(name):
    target = TARGETS[name]
    tuning = target.tuning
    for program in (norm(2, 40), norm(40, 64), norm(4096, 96), softmax(3, 4096)):
        for k in planned(program, target).kernels:
            held = k.lowered.block.held
            assert 1 <= held <= tuning.worker_blocks
            assert held * k.threads <= tuning.worker_threads


@needs_cxx
def test_no_barrier_of_held_rows_can_be_left_out(tmp_path):
    cases = [Case("softmax", softmax(3, 2048), tol=2e-5), Case("rows", norm(9, 300), tol=2e-5),
             Case("permuted", permuted(64), tol=2e-5)]
    program, schedule = merged(cases, TARGET)
    schedule = choose_writing(program, schedule, TARGET)
    plan = lower(program, schedule, TARGET)
    write_bundle(render_bundle(plan, schedule, INFO), tmp_path / "b")
    mutants = plant_mutants(tmp_path / "b")
    assert len(mutants) >= 4
    model = aotc.load(tmp_path / "b", simulate=True)
    built = Built(tuple(cases), TARGET, program, schedule, model, tmp_path / "b")
    sample = built.sample(1)

    def right():
        got = built.run(sample.feeds)
        return not [x for c, g, w in zip(cases, got, sample.want)
                    for x in differences(g, w, c.tol)]
    assert right()
    missed = unnoticed(model, mutants, right)
    assert not missed, "\n".join(missed)


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc: install the CUDA toolkit")
@pytest.mark.parametrize("name", ["cuda:sm_86", "cuda:sm_90"])
def test_nvcc_warns_of_nothing(name, tmp_path):
    """Of one row of a warp, of teams without one, and where rows are results, too."""
    target = get_target(name)
    cases = [Case("few", norm(2, 40)), Case("many", norm(4096, 96)), Case("one", softmax(1, 64)),
             Case("idle", norm(7, 33, keep=True)), Case("call", norm(6, ANY))]
    program, schedule = merged(cases, target)
    schedule = choose_writing(program, schedule, target)
    write_bundle(render_bundle(lower(program, schedule, target), schedule, INFO), tmp_path)
    for source in tmp_path.glob("*_kernels_*.cu"):
        done = subprocess.run(
            ["nvcc", "-std=c++17", "-O3", "-Werror", "all-warnings", *target.cflags, "-c", "-o",
             str(tmp_path / "x.o"), str(source)], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.skipif(bool(why_no_sass()), reason=why_no_sass())
@pytest.mark.parametrize("architecture", [pytest.param("sm_80", marks=pytest.mark.product),
                                          "sm_90"])
def test_code_loads_a_row_once_by_16_bytes(architecture, tmp_path):
    """Loads of a thread, counted in the code, which has no loops: packs of a row, once, and those
    of the two rows of f32 numbers beside it, for each pack that is stored."""
    target = get_target(f"cuda:{architecture}")
    for n, (program, loads, size) in enumerate((
            (norm(4096, 1024), 1 + 2, 4), (softmax(4096, 1024), 1, 4),
            (softmax(4096, 1024, "f16"), 1, 2), (norm(64, 1024, "f16", "f16"), 1 + 4, 2))):
        schedule = decide(program, target)
        plan = lower(program, schedule, target)
        write_bundle(render_bundle(plan, schedule, INFO), tmp_path / str(n))
        (code,) = compile_kernels(tmp_path / str(n), target.cflags).values()
        count = code.code.count
        assert not code.spilled and not code.code.hot_loop("LDG")
        stores = count("STG.128")
        assert stores * 16 * 32 in [1024 * size // warps for warps in (1, 2, 4, 8)]
        assert (count("STG"), count("LDG"), count("LDG.128")) == (
            stores, loads * stores, loads * stores)
        (kernel,) = plan.kernels
        assert code.most_threads >= kernel.threads * kernel.lowered.block.held
