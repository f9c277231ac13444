"""The generated kernels as text: small golden files, names that clash with C, warnings."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fetched import prefetches, value
from kernel_programs import dense, pool, rows
from te_programs import Maker, ax, matmul, relu

from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.variants import EMITTERS
from aotc.ir.expr import Const, Var, Where, compare, maximum, minimum
from aotc.ir.statements import Range
from aotc.sched import decide, lower
from aotc.sched.lowering.lower_contract import drop_single_axes
from aotc.target import get_target

GOLDEN = Path(__file__).parent / "golden"


CASES = {"dense_c": (dense, "c"), "rows_x86_64_v3": (rows, "x86-64-v3"), "pool_c": (pool, "c"),
         "rows_cuda": (rows, "cuda:sm_90"), "dense_cuda": (dense, "cuda:sm_90"),
         "rows_riscv64": (rows, "riscv64"), "dense_riscv64": (dense, "riscv64")}


def two_layers():
    """relu(x w0) w1 b: two products in one kernel, one row of the hidden tensor at a time"""
    m = Maker("layers")
    m.input("x", 64, 16)
    for n, (height, width) in enumerate(((16, 32), (32, 16))):
        m.const(f"w{n}", np.ones((height, width), np.float32))
    matmul(m, "h0", "x", "w0")
    m.pointwise("h", "h0", lambda e, _: relu(e))
    matmul(m, "y", "h", "w1")
    return m.done("y")


def planned(program, target):
    schedule = decide(program, get_target(target))
    return lower(program, schedule, get_target(target)), schedule


def text_of(program, target):
    plan = lower(program, decide(program, target), target)
    files = EMITTERS[target.emitter](plan, target)
    return "\n".join(files[n] for n in sorted(files) if n.endswith((".c", ".cu")))


def test_a_lowered_kernel_prints_its_stages():
    """Work items, scratch and names, then every stage before it is statements."""
    plan, _ = planned(two_layers(), "x86-64-v3")
    kernel, = plan.kernels
    assert str(kernel.lowered).splitlines() == [
        "k000_y: y f32[64, 16]", "  for ~tile in 0..2 parallel", "    scratch h: 1024 f32 at 0",
        "    i_lo = ~tile * 32",
        "    contract contraction_f32_6x16__avx2: rows i in i_lo..i_lo + 32, columns j in 0..32",
        "      acc = sum over k in 0..16 of a * b", "      a: rows x[i * 16] by 1",
        "      b: panel w0[j // 16 * 256] by 16", "      h[i * 32 + j - i_lo * 32] = max(acc, 0.0)",
        "    contract contraction_f32_6x16__avx2: rows i in i_lo..i_lo + 32, columns j in 0..16",
        "      acc = sum over k in 0..32 of a * b", "      a: rows h[i * 32 - i_lo * 32] by 1",
        "      b: panel w1[0] by 16", "      y[i * 16 + j] = acc"]
    shared, _ = planned(rows(), "cuda:sm_90")
    lines = str(shared.kernels[0].lowered).splitlines()
    assert lines[1].endswith(" parallel, 256 threads each") and lines.count("    barrier") == 3
    assert ("    nest reduction__simt over i0 in i0_lo..min(i0_lo + 10, n), 32 lanes along r"
            in lines)


@pytest.mark.parametrize("name", CASES)
def test_golden(name, update_golden):
    make, target = CASES[name]
    text = text_of(make(), get_target(target))
    path = GOLDEN / f"{name}.c.txt"
    if update_golden:
        path.write_text(text)
    assert path.exists(), f"no {path}: run pytest tests/emit --update-golden and review it"
    assert text == path.read_text(), "changed on purpose? pytest tests/emit --update-golden"


def test_the_same_text_twice():
    for make, target in CASES.values():
        assert text_of(make(), get_target(target)) == text_of(make(), get_target(target))


def test_lines_stay_readable():
    for make, target in CASES.values():
        for line in text_of(make(), get_target(target)).splitlines():
            assert "\t" not in line and line == line.rstrip()


def test_an_axis_of_one_value_is_that_value():
    """So that what only it tells apart (a gate read as [0, i] and as [b, i]) is computed once."""
    for channels, loops in ((2, True), (1, False)):
        assert ("int64_t c = " in text_of(pool(channels), get_target("c"))) == loops


def pointwise():
    """A 1x1 convolution of one image, channels last, in tiles of rows"""
    m = Maker("pointwise")
    m.input("x", 1, 28, 28, 16)
    m.const("w", np.ones((16, 1, 1, 24), np.float32))
    n, oh, ow, oc = ax("n", 1), ax("oh", 28), ax("ow", 28), ax("oc", 24)
    kh, kw, ic = ax("kh", 1), ax("kw", 1), ax("ic", 16)
    m.step("y", (n, oh, ow, oc), m.ref("x", n, oh + kh, ow + kw, ic) * m.ref("w", ic, kh, kw, oc),
           (kh, kw, ic), "sum")
    return m.done("y")


def test_rows_of_one_image_and_one_tap_need_no_table_of_pointers():
    program, target = pointwise(), get_target("c")
    schedule = decide(program, target)
    group = schedule.groups[0]
    cut = replace(schedule, groups=(replace(group, tile={"oh": 7}, parallel=("oh",)),))
    plan = lower(program, cut, target)
    contract = next(s for s in plan.kernels[0].lowered.stages if hasattr(s, "taps"))
    assert [r.axis.extent.value for r in contract.m] == [784] and not contract.taps
    text = "\n".join(EMITTERS[target.emitter](plan, target).values())
    assert "kw" not in re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    # an axis of extent 1 whose range may be empty says whether there are rows at all
    perhaps = Range(ax("n", 1), Const(0), minimum(Var("tile", "i64"), Const(1)))
    assert drop_single_axes(replace(contract, m=(perhaps, *contract.m))).m == (perhaps, *contract.m)


def test_comments_name_where_a_kernel_comes_from():
    text = text_of(dense(), get_target("c"))
    assert "from node_xw, node_y" in text
    assert "y f32[7, 6]" in text


def biased(guarded):
    """x w + b, where b has a value for some columns only"""
    m = Maker("biased")
    m.input("x", 7, 5)
    m.const("w", np.ones((5, 6), np.float32))
    m.const("b", np.ones(3 if guarded else 6, np.float32))
    i, j, k = ax("row", 7), ax("col", 6), ax("k", 5)
    m.step("xw", (i, j), m.ref("x", i, k) * m.ref("w", k, j), (k,), "sum")
    y = m.ref("xw", i, j) + m.ref("b", j)
    m.step("y", (i, j), Where(compare("lt", j, 3), y, Const(0, "f32")) if guarded else y)
    return m.done("y")


def test_sums_start_from_a_bias_that_every_column_has():
    target = get_target("riscv64")
    assert re.search(r" t_b( \+ n0)?, acc_tile\)", " ".join(text_of(biased(False), target).split()))
    assert "NULL, acc_tile)" in " ".join(text_of(biased(True), target).split())


def test_sums_in_registers_have_a_function_beside_other_stages():
    """Bounds of tiles and pointers are its parameters; a single stage needs none."""
    text = text_of(two_layers(), get_target("x86-64-v3"))
    parts = text.split("AOTC_APART void ")[1:]
    assert [p.split("(")[0] for p in parts] == ["layers_k000_y_stage0", "layers_k000_y_stage1"]
    assert "float (*const s_h)[32]" in parts[0] and "int64_t " in parts[0].split("\n{")[0]
    calls = text[text.index("void layers_k000_y(void"):]
    assert calls.index("layers_k000_y_stage0(") < calls.index("layers_k000_y_stage1(")
    assert "sum" not in calls and max(map(len, text.splitlines())) <= 100
    assert "AOTC_APART" not in text_of(dense(), get_target("x86-64-v3"))
    assert "AOTC_APART" not in text_of(two_layers(), get_target("riscv64"))


def residual(k, columns):
    """x w + r: a sum over k, then a tensor of the result's shape"""
    m = Maker("residual")
    m.input("x", 40, k)
    m.input("r", 40, columns)
    m.const("w", np.ones((k, columns), np.float32))
    matmul(m, "xw", "x", "w")
    i, j = ax("row", 40), ax("col", columns)
    m.step("y", (i, j), m.ref("xw", i, j) + m.ref("r", i, j))
    return m.done("y")


@pytest.mark.parametrize("columns", [48, 37])
@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_what_an_epilogue_reads_is_fetched_before_the_sums(columns, target):
    """Rows of a residual lie apart: each cache line of a tile's columns, none beyond the last."""
    target = get_target(target)
    alone = replace(target, machine=replace(target.machine, workers=1))  # one work item
    program = residual(256, columns)
    text, plan = text_of(program, alone), lower(program, decide(program, alone), alone)
    nr = int(re.search(r"contraction_f32_\d+x(\d+)__", text)[1])
    fetched = [s.offset for s in prefetches(plan, "r")]
    for n0 in range(0, columns, nr):
        found = {value(e, {"n0": n0}, 0) for e in fetched}
        assert {value(e, {"n0": n0, "i": 1}, 0) for e in fetched} == {x + columns for x in found}
        first, last = n0, min(n0 + nr, columns) - 1
        assert first in found and max(found) <= columns - 1
        assert all(any(0 <= c - x < 16 for x in found) for c in range(first, last + 1))
        if columns % 16:  # lines may begin anywhere
            assert last in found
    assert text.index("AOTC_PREFETCH(&t_r[") < text.index("sum[i][j] = aotc_fma")


def test_short_sums_fetch_nothing():
    """Sixteen terms are over before a line is there; one lane and vectors of any length fetch
    nothing."""
    for k, target in ((16, "x86-64-v3"), (256, "riscv64"), (256, "c")):
        text = text_of(residual(k, 48), get_target(target))
        assert "AOTC_PREFETCH(t_" not in text


@pytest.mark.parametrize("target, apart", [("c", False), ("x86-64-v1", True), ("x86-64-v3", True),
                                           ("x86-64-v4", True), ("aarch64", True),
                                           ("riscv64", False)])
def test_lanes_that_lie_apart_need_no_array(target, apart):
    """A pixel shuffle: the channels of a pixel are read four apart."""
    m = Maker("shuffle")
    m.input("x", 6, 5, 256)
    m.input("z", 12, 10, 64)
    i, j, c = ax("i", 12), ax("j", 10), ax("c", 64)
    m.step("y", (i, j, c), m.ref("x", i // 2, j // 2, c * 4 + i % 2 * 2 + j % 2)
           + m.ref("z", i, j, c))
    text = text_of(m.done("y"), get_target(target))
    assert bool(re.search(r"aotc_load_apart\(&?t_x\b", text)) == apart
    assert "for (int l = 0;" not in text


@pytest.mark.parametrize("rows, row, at", [(49, "7x64", True), (48, "6x64", False)])
def test_a_sum_needs_no_register_of_its_columns(rows, row, at):
    """28 sums, 4 vectors of columns and one of a row's element are more than 32 registers."""
    m = Maker("product")
    m.input("x", rows, 256)
    m.const("w", np.ones((256, 64), np.float32))
    matmul(m, "y", "x", "w")
    text = text_of(m.done("y"), get_target("x86-64-v4"))
    assert f"contraction_f32_{row}" in text
    assert ("aotc_fma_at(x, p0 + j * 16, sum[i][j])" in text) == at
    assert f"aotc_vf columns[{3 if at else 4}];" in text


# what says nothing: an offset of 0, a block around one store, an empty comment, empty lines, a name
# that is only cast to void (parameters may be), brackets around all of what is stored or asked, a
# status that is stored to be returned, a name that only renames another (numbers of points that 32
# bits count become 64 bits wide), a block that is all of a block, a sum that names itself twice, a
# statement of nothing, the type of a number said twice
IDLE = re.compile(r"[\w\])] \+ 0(?![\w.])|\(0 \+ |\bif \(\(\((?:[^()]|\([^()]*\))*\) & "
                  r"|status = [^;]*;\s*return status;|return status;\s*\}\s*return status;"
                  r"|\n( *)\{\n\1    \w*store\w*\([^\n]*\n\1\}"
                  r"|/\* *\*/|\n\n\n|[ \t]\n"
                  r"|\(void\)(?!(?:f|worker|ak|n|taps|next|ahead|syms|detail|ctx);)\w+;"
                  r"|const int(?:64_t)? \w+ = (?!(?:(?:at|left)\d+|row);)[A-Za-z_]\w*;"
                  r"|\{\n(?: *(?:/\*| \*)[^\n]*\n)*( *)\{\n(?:\2 [^\n]*\n)*\2\}\n *\}"
                  r"|\b(\w+) = \3 \+ |\n *;|\(int32_t\)\(\d+u?\)"
                  r"|store\w*\([^;]*, \((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\);")


@pytest.mark.parametrize("target", ["c", "x86-64-v3", "x86-64-v4", "riscv64", "cuda:sm_90"])
def test_generated_text_is_pleasant(target):
    for program in (dense(), rows(), pool(), two_layers(), residual(300, 48), pointwise()):
        text = text_of(program, get_target(target))
        assert max(map(len, text.splitlines())) <= 100
        assert not (found := IDLE.search(text)), text[found.start() - 200:found.end() + 200]
        for made in program.steps:  # the Program's line above what computes it
            assert f"{made.out}[" in text, made


@pytest.mark.parametrize("target", ["x86-64", "riscv64", "cuda:sm_90"])
def test_a_bundle_is_pleasant(target):
    plan, schedule = planned(dense(), target)
    bundle = render_bundle(plan, schedule, {"model_hash": "00" * 32, "graph": "dense"})
    for name, data in bundle.files.items():
        if name in ("dense.c", "dense.cu", "dense.h", "dense_internal.h"):
            text = bytes(data).decode()
            assert not (found := IDLE.search(text)), text[found.start() - 200:found.end() + 200]


@pytest.mark.parametrize("rows, columns", [(48, 64), (37, 100)])
@pytest.mark.parametrize("target", ["x86-64-v1", "x86-64-v3", "x86-64-v4", "aarch64"])
def test_a_product_is_a_page(target, rows, columns):
    """Its sums are an array, with one epilogue for whole and cut tiles that goes through no
    memory; rows that do not exist end it."""
    m = Maker("product")
    m.input("x", rows, 100)
    m.const("w", np.ones((100, columns), np.float32))
    m.const("b", np.ones(columns, np.float32))
    matmul(m, "p", "x", "w")
    i, j = ax("i", rows), ax("j", columns)
    m.step("y", (i, j), maximum(m.ref("p", i, j) + m.ref("b", j), Const(0.0, "f32")))
    text = text_of(m.done("y"), get_target(target))
    assert "acc_tile" not in text and "aotc_vf sum[" in text and len(text.splitlines()) < 110
    assert text.count("aotc_store(") == 1 and text.count("aotc_store_n(") == (columns % 64 > 0)
    assert ("break;" in text) == (rows % int(re.search(r"aotc_vf sum\[(\d+)\]", text)[1]) > 0)
