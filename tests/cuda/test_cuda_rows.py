"""Every row of the CUDA targets on the simulator, against the plain nest and the evaluator; groups
of several stages; threads of a block from the Schedule; indices outside their table."""

import re
from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import TOLERANCE
from group_cases import group_cases, mlp, schedule
from harness import INFO, ON_GPU, Case, build_cases, compile_program, every
from row_cases import CASES
from te_programs import Maker, ax, softmax

from aotc.emit.bundle.render import render_bundle
from aotc.errors import FaultError, ScheduleError, ToolchainError
from aotc.ir.category import PRODUCTS, Dtypes
from aotc.ir.expr import Cast, Const, Sym, check_index
from aotc.runtime.cuda_model import devices
from aotc.runtime.simulate import find_cxx
from aotc.sched import check_schedule, complete, decide, lower
from aotc.target import TARGETS, get_target

TARGET = get_target(f"cuda:{devices()[0][1]}" if ON_GPU else "cuda:sm_80")
ROWS = {u.name: u for u in TARGET.ukernels}
TILES = [n for n, u in ROWS.items() if u.category in PRODUCTS]
LONG = [n for n in TILES if ROWS[n].tile.nr > 32 and ROWS[n].a == "f32"]
SHORT = [n for n in TILES if n not in LONG]
# of rows that differ in their numbers only, those that the default suite runs: scalars and mma
FIRST = [next(n for n in SHORT if ROWS[n].a == t) for t in ("f32", "f16", "bf16", "tf32")]
FEW = [n for n in TILES if ROWS[n].staging is None]


@pytest.fixture(scope="module", autouse=True)
def _compiler():
    try:
        find_cxx()
    except ToolchainError as err:
        pytest.skip(str(err))


def _pairs(row):
    """(Case on the row, Case on the plain nest), with the tolerance of the row's operands."""
    dtype = getattr(row, "a", "f32")
    least = TOLERANCE.get(dtype, 0) if dtype != "f32" else 0
    for p in CASES[row.category](row, TARGET):
        yield replace(p.fast, tol=max(p.fast.tol, least)), p.slow


def _check(rows, folder, twins=0, share=1):
    """The number of cases, a share of each row's, all of them right; ``twins``: the plain nests of
    every so many as well."""
    pairs = [p for r in rows for p in list(_pairs(r))[::share]]
    built = build_cases([*(p[0] for p in pairs), *(p[1] for p in pairs[::twins or len(pairs)])],
                        TARGET, folder)
    for seed in (1, 2):
        built.check(seed)
    return len(pairs)


@pytest.mark.product
def test_rows_of_nests(tmp_path):
    rows = [u for u in TARGET.ukernels if u.category not in PRODUCTS]
    assert _check(rows, tmp_path / "nests", twins=6, share=2) > 60


@pytest.mark.parametrize("name", every(FIRST, 2))
def test_rows_of_contractions(name, tmp_path):
    # their plain nests differ in extents only
    first = name == FIRST[0]
    assert _check([ROWS[name]], tmp_path / "rows", 6 * first, share=4) > 10


@pytest.mark.product
@pytest.mark.parametrize("name", ["", *TILES])
def test_every_case_of_a_row(name, tmp_path):
    rows = [ROWS[name]] if name else [u for u in ROWS.values() if u.category not in PRODUCTS]
    assert _check(rows, tmp_path / "rows", twins=3) > (15 if name.startswith("dot") else 40)


@pytest.mark.parametrize("tiles, loops", [(1, 0), pytest.param(99, 1, marks=pytest.mark.product)])
def test_groups_of_several_stages(tmp_path, tiles, loops):
    """Barriers between stages, scratch in shared memory, operands of contractions in it."""
    cases = list(group_cases(TARGET, loops, tiles))
    for c in cases:
        assert check_schedule(c.program, complete(c.program, c.schedule, TARGET), TARGET) == []
    built = build_cases(cases, TARGET, tmp_path / "groups")
    for seed in range(2):
        built.check(seed)
    built.check(3, syms=lambda s, r: s.lo)


def _norm():
    p, connect, anchor = mlp(batch=9)
    return p, schedule(TARGET, p, connect, {"i": 4}, anchor)


def test_threads_of_a_block_come_from_the_schedule(tmp_path):
    p, s = _norm()
    cases = []
    for threads in (256, 320, 1024):
        g, = s.groups
        cases.append(Case(f"{threads}", p, replace(s, groups=(replace(g, threads=threads),))))
    built = build_cases(cases, TARGET, tmp_path / "threads")
    built.check(1)
    text = "".join(f.read_text() for f in (tmp_path / "threads").glob("*_kernels_*.cu"))
    for threads in (256, 320, 1024):
        assert re.search(rf"__launch_bounds__\({threads}, \d+\)", text)
        assert f"dim3({threads})" in text


@pytest.mark.parametrize("threads", [-32, 16, 100, 2048])
def test_illegal_threads_are_refused(threads):
    p, s = _norm()
    whole = complete(p, s, TARGET)
    g, = whole.groups
    wrong = replace(whole, groups=(replace(g, threads=threads),))
    fault, = check_schedule(p, wrong, TARGET)
    assert f"threads {threads}; choose a multiple of 32 in " in fault and "..1024" in fault


def test_threads_mean_nothing_on_a_cpu():
    p, _ = _norm()
    target = get_target("c")
    s = decide(p, target)
    assert all(g.threads == 0 for g in s.groups)
    groups = (replace(s.groups[0], threads=64), *s.groups[1:])
    fault, = check_schedule(p, replace(s, groups=groups), target)
    assert "threads 64; a work item of c is one thread's, remove it" in fault


def test_scratch_that_does_not_fit_is_refused():
    m = Maker()
    m.input("x", 64, 4096)
    i, j = ax("i", 64), ax("j", 4096)
    m.step("t", (i, j), m.ref("x", i, j) * m.ref("x", i, j))
    m.step("y", (i,), m.ref("t", i, j), (j,), "sum")
    p = m.done("y")
    target = get_target("cuda:sm_80")
    s = complete(p, schedule(target, p, {"t": "shared"}, {"i": 32}, "y"), target)
    with pytest.raises(ScheduleError, match="bytes of shared memory .*cuda:sm_80 has 166912"):
        lower(p, s, target)
    g, = s.groups
    lower(p, replace(s, groups=(replace(g, tile={"i": 2}),)), target)


@pytest.mark.parametrize("most", [40, 512])
def test_scratch_of_rows_fits_whatever_the_dimensions_are(most):
    """Shared memory is no cache: bounds of the extents count, not their typical values."""
    m, n = Maker(), Sym("s", 1, most)
    m.input("x", Sym("b", 1, 2), 8, n, n)
    softmax(m, "y", "x")
    p = m.done("y")
    for target in TARGETS.values():
        if target.emitter == "simt":
            s = decide(p, target)
            kernel, = lower(p, s, target).kernels
            assert kernel.slab_bytes == 0  # registers hold the rows
            s = replace(s, groups=tuple(g.saying(lambda c: c.with_said({"held_rows": 0}))
                                        for g in s.groups))
            kernel, = lower(p, s, target).kernels
            assert 0 < kernel.slab_bytes <= 48 << 10


def test_an_index_outside_its_table_is_found_by_check(tmp_path):
    m = Maker()
    i, j = ax("i", 5), ax("j", 3)
    m.input("x", 7, 3)
    m.input("at", 5, dtype="i64")
    m.step("z", (i, j), m.ref("x", check_index(m.ref("at", i), Const(7)), j))
    p = m.done("z")
    model = compile_program(p, decide(p, TARGET), TARGET, tmp_path / "take")
    x = np.arange(21, dtype=np.float32).reshape(7, 3)
    good = np.array([6, 0, 3, 3, 1])
    np.testing.assert_array_equal(model.run({"x": x, "at": good})["z"], x[good])
    with pytest.raises(FaultError, match="index"):
        model.run({"x": x, "at": np.array([0, 1, 7, 2, 3])})
    np.testing.assert_array_equal(model.run({"x": x, "at": good})["z"], x[good])  # cleared


def test_rows_that_lose_digits_are_not_chosen():
    row = ROWS["contraction_f16_64x64__mma"]
    for p, _ in list(_pairs(ROWS["contraction_f32_64x64__simt"]))[:12]:
        assert row.name not in {u for g in decide(p.program, TARGET).groups
                                for u in g.rows.values()}


def halves(exact, rows=700):
    """y = f32(x) @ w: x f16[rows, 256], w f32[256, 640], of f16 numbers if ``exact``."""
    m, i, j, k = Maker(), ax("i", rows), ax("j", 640), ax("k", 256)
    w = np.random.default_rng(2).standard_normal((256, 640)).astype(np.float32)
    m.input("x", rows, 256, dtype="f16")
    m.const("w", w.astype(np.float16).astype(np.float32) if exact else w)
    m.step("wide", (i, k), Cast("f32", m.ref("x", i, k)))
    m.step("y", (i, j), m.ref("wide", i, k) * m.ref("w", k, j), (k,), "sum")
    return m.done("y")


def chosen_rows(program, target):
    """Names of the rows of products that a target decides for."""
    return {u for g in decide(program, target).groups for u in g.rows.values()
            if target.row(u).category == "contraction"}


def test_rows_of_f16_are_chosen_where_they_round_nothing():
    for name in ("cuda", "cuda:sm_80", "cuda:sm_90"):
        target = get_target(name)
        (row,) = chosen_rows(halves(True), target)
        assert target.row(row).products == (Dtypes("f16", "f16", "f32"),)
        assert target.row(*chosen_rows(halves(False), target)).a == "f32"
    cpu = get_target("c")
    assert cpu.row(*chosen_rows(halves(True), cpu)).a == "f32"  # it has no such row


def test_f16_numbers_on_tensor_cores_are_exact_to_the_sum(tmp_path):
    """Ragged rows, operands through f16 and back: nothing but the sums' order differs."""
    case = Case("halves", halves(True, 333), tol=2e-6)
    assert "mma" in "".join(chosen_rows(case.program, TARGET))
    build_cases([case], TARGET, tmp_path / "halves").check(4)


def test_short_sums_get_rows_with_few_steps_at_a_time():
    """A row with teams multiplies 64 steps at a time, most of which would be padding."""
    for terms, steps in ((16, 16), (24, 16), (64, 64), (1024, 64)):
        p = Maker()
        i, j, k = ax("i", 500), ax("j", 32), ax("k", terms)
        p.input("x", 500, terms)
        p.const("w", np.ones((terms, 32), np.float32))
        p.step("y", (i, j), p.ref("x", i, k) * p.ref("w", k, j), (k,), "sum")
        (row,) = chosen_rows(p.done("y"), TARGET)
        assert TARGET.row(row).steps == steps, terms


def test_bundles_are_the_same_bytes_and_differ_in_flags_only():
    p, _ = _norm()
    texts = {}
    for name in ("cuda:sm_80", "cuda:sm_90"):
        t = TARGETS[name]
        s = decide(p, t)
        files = render_bundle(lower(p, s, t), s, INFO).files
        assert files == render_bundle(lower(p, s, t), s, INFO).files
        texts[name] = files
    assert b"code=sm_90" in texts["cuda:sm_90"]["Makefile"]
    assert b"code=sm_80" in texts["cuda:sm_80"]["Makefile"]
