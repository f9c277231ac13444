"""What nvcc makes of generated kernels: no spills, registers for as many blocks as are planned,
loops of products that multiply, accesses of 16 bytes.  The limits are what rows reach today, on the
GPU that needs most: whoever mends a row tightens its own."""

import re
import subprocess
import sys

import pytest
from contraction_cases import long_case, stored_types
from dot_cases import long_dot
from grouped_cases import long_grouped
from harness import INFO, Case, merged
from sass import compile_kernels, parse_sass, why_no_sass
from source_tree import ROOT
from te_programs import Maker, ax

from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.ir.expr import Cast, Const, Unary
from aotc.ir.numbers.grouped import Grouping
from aotc.sched import lower
from aotc.sched.text_choices.choose_writing import choose_writing
from aotc.target import TARGETS

GPUS = {t.name: t for t in TARGETS.values() if t.emitter == "simt" and t.name != "cuda"}
needs_sass = pytest.mark.skipif(bool(why_no_sass()), reason=why_no_sass())

# Instructions of a product's hot loop for each that multiplies: what is wanted, and the limits of
# rows that are not there yet, by the type that operands lie in memory as; those of f32 in rows of
# halves go by way of registers.  Of weights in groups, by the bits of a code: what makes numbers of
# those is among them, and products of a group that join the others.
WANTED = {"FFMA": 1.2, "HMMA": 5.0, "IMMA": 5.0}
INSTRUCTIONS = {
    ("contraction_f32_64x64__simt", "f32"): 1.27, ("contraction_f32_32x64__simt", "f32"): 1.3,
    ("contraction_f32_32x64x16__simt", "f32"): 1.4, ("contraction_f32_32x32__simt", "f32"): 1.47,
    ("contraction_f32_32x32x16__simt", "f32"): 1.75, ("contraction_f32_1x32__simt", "f32"): 3.5,
    **{(f"contraction_f32_{mr}x8__simt", "f32"): limit for mr, limit in ((1, 2.7), (4, 2.6),
                                                                         (8, 2.9))},
    ("contraction_tf32_16x128__mma", "f32"): 17.2, ("contraction_tf32_32x64__mma", "f32"): 15.6,
    ("contraction_tf32_64x64__mma", "f32"): 10.1, ("contraction_tf32_128x64__mma", "f32"): 7.9,
    ("contraction_f16_16x128__mma", "f16"): 10.3, ("contraction_f16_32x32__mma", "f16"): 12.6,
    ("contraction_f16_32x64__mma", "f16"): 8.5,
    **{(f"dot_{name}s8_{tile}__mma", dtype): limit
       for name, dtype in (("u8", "u8"), ("s8", "i8"))
       for tile, limit in (("16x128", 10.8), ("32x64", 8.35), ("64x64", 6.3))},
    **{(f"dot_grouped_{t}_{tile}__mma", bits): limit for t, more in (("f16", 0), ("bf16", 2))
       for tile, limit in (("32x64", 13.1 + more), ("64x64", 12.2 + more),
                           ("64x128", 8.15 + more / 2), ("128x128", 7.9 + more / 2))
       for bits in (4, 8)},
    **{(f"contraction_{t}_{tile}__mma", "f32"): limit for t in ("f16", "bf16")
       for tile, limit in (("16x128", 21.6), ("32x32", 19.2), ("32x64", 14.2), ("64x64", 8.3),
                           ("64x128", 10.5), ("128x128", 6.9))}}
GROUPINGS = [Grouping(4, 32, 3, True), Grouping(4, 128, 3), Grouping(8, 32, 3)]
# Bytes that a thread spills at 128 registers, so that two blocks fit: f32 on its way to rows of
# halves takes 16 of them.  Whether one block that spills nothing is faster was not measured.
SPILLED = {(f"contraction_{t}_128x128__mma", "f32"): 20 for t in ("f16", "bf16")}
# Of a map's loads and stores outside shared memory, the share that is of 16 bytes.
WIDE = {"f32": 1.0, "f16": 1.0, "bf16": 1.0}


def compiled(cases, target, folder):
    """[(kernel of the Plan, Compiled, blocks of a multiprocessor that its text plans for)] of these
    cases, each of which is one kernel."""
    program, schedule = merged(cases, target)
    schedule = choose_writing(program, schedule, target)
    plan = lower(program, schedule, target)
    write_bundle(render_bundle(plan, schedule, INFO), folder)
    text = "".join(f.read_text() for f in sorted(folder.glob("*_kernels_*.cu")))
    blocks = {name: int(n) for n, name in re.findall(
        r"__launch_bounds__\(\d+, (\d+)\)\s+\w*?(k\d{3}_\w*?)_device\(", text)}
    made = compile_kernels(folder, target.cflags)
    names = [k.function or k.name for k in plan.kernels]
    assert set(names) == set(made) == set(blocks)
    return [(k, made[name], blocks[name]) for k, name in zip(plan.kernels, names)]


def multiplier(row):
    """The instruction that a row's products are made of."""
    if not row.name.endswith("__mma"):
        return "FFMA"
    return "IMMA" if row.a in ("i8", "u8") else "HMMA"


def _long(row, target, stored):
    if row.in_codes:
        return long_grouped(row, target, stored)
    return long_dot(row, target) if row.category == "dot" else long_case(row, target, stored)


def map_of(dtype):
    """y = x * w + x of tensors [96, 4096] of a dtype, computed in f32."""
    m, i, j = Maker(), ax("i", 96), ax("j", 4096)
    for name in "xw":
        m.input(name, 96, 4096, dtype=dtype)
    x, w = (Cast("f32", m.ref(n, i, j)) if dtype != "f32" else m.ref(n, i, j) for n in "xw")
    m.step("y", (i, j), x * w + x if dtype == "f32" else Cast(dtype, x * w + x))
    return m.done("y")


@needs_sass
@pytest.mark.product
@pytest.mark.parametrize("name", GPUS)
def test_loops_of_products_multiply(name, tmp_path):
    target, wrong = GPUS[name], []
    rows = [(r, stored) for r in target.rows("contraction") for stored in stored_types(r)]
    rows += [(r, r.a) for r in target.rows("dot") if r.by_columns]
    rows += [(r, g) for r in target.rows("dot") if r.in_codes for g in GROUPINGS]
    made = compiled([_long(r, target, t) for r, t in rows], target, tmp_path / "b")
    for (row, stored), (kernel, code, blocks) in zip(rows, made):
        assert kernel.lowered.stages[0].row == row.name
        opcode, key = multiplier(row), (row.name, getattr(stored, "bits", stored))
        loop = code.code.hot_loop(opcode)
        assert loop is not None, f"{row.name}: no loop with {opcode}"
        length = len(loop.instructions) / loop.count(opcode)
        limit = INSTRUCTIONS.get(key, WANTED[opcode])
        told = {
            f"spills {code.spilled} bytes": code.spilled > SPILLED.get(key, 0),
            f"{code.registers} registers: {code.most_threads} threads, not {blocks} blocks of "
            f"{kernel.threads}": code.most_threads < blocks * kernel.threads,
            f"{length:.2f} instructions of the hot loop for each {opcode}, not {limit}":
                length > limit,
            "reads bytes one by one": loop.count("LDG.U8", "LDG.S8", "LDS.U8", "LDS.S8"),
            "copies less than 16 bytes": loop.count("LDGSTS") - loop.count("LDGSTS.128")}
        wrong += [f"{row.name} of {stored}: {text}" for text, is_so in told.items() if is_so]
    assert not wrong, "\n".join(wrong)


@needs_sass
@pytest.mark.parametrize("name", [n if n == "cuda:sm_80" else pytest.param(
    n, marks=pytest.mark.product) for n in GPUS])
def test_few_rows_by_codes_cost_no_more_than_one(name, tmp_path):
    """Instructions for each weight that is read, and no spills."""
    target, wrong = GPUS[name], []
    rows = [r for r in target.rows("dot") if r.grouped is not None and r.staging is None
            and (r.tile.mr == 1 or r.a != "f32")]
    cases = [(g, r) for g in GROUPINGS for r in rows]
    made = compiled([long_grouped(r, target, g) for g, r in cases], target, tmp_path / "b")
    one = 0.0
    for (g, row), (_, code, _) in zip(cases, made):
        loop = code.code.hot_loop(multiplier(row))
        if row.tile.mr == 1:  # 8 loads of 16 columns
            one = each = len(loop.instructions) / (16 * 64 / g.bits)
        else:
            each = len(loop.instructions) / (64 * loop.count("HMMA") / row.tile.mr)
        if code.spilled or each > 1.1 * one:
            wrong.append(f"{row.name}, {g}: {each:.2f}, of one row {one:.2f}; spills "
                         f"{code.spilled}")
    assert one and not wrong, "\n".join(wrong)


@needs_sass
@pytest.mark.product
@pytest.mark.parametrize("name", GPUS)
def test_maps_read_and_write_16_bytes(name, tmp_path):
    made = compiled([Case(t, map_of(t)) for t in WIDE], GPUS[name], tmp_path / "b")
    for dtype, (kernel, code, blocks) in zip(WIDE, made):
        assert not code.spilled and code.most_threads >= blocks * kernel.threads
        for opcode in ("LDG", "STG"):
            wide, all_ = code.code.count(f"{opcode}.128"), code.code.count(opcode)
            assert all_ and wide / all_ >= WIDE[dtype], f"{dtype}: {wide} of {all_} {opcode}"


@needs_sass
@pytest.mark.parametrize("result", ["f16", "f32"])
def test_stores_of_a_plain_product_are_of_16_bytes(result, tmp_path):
    m, i, j, k = Maker(), ax("i", 1024), ax("j", 1024), ax("k", 256)
    m.input("x", 1024, 256, dtype="f16")
    m.input("w", 256, 1024, dtype="f16")
    m.step("p", (i, j), Cast("f32", m.ref("x", i, k)) * Cast("f32", m.ref("w", k, j)), (k,), "sum")
    m.step("y", (i, j), m.ref("p", i, j) if result == "f32" else Cast(result, m.ref("p", i, j)))
    program = m.done("y")
    ((kernel, code, _),) = compiled([Case("plain", program)], GPUS["cuda:sm_80"], tmp_path / "b")
    (c,) = kernel.lowered.stages
    assert c.row.endswith("__mma") and not code.spilled
    assert code.code.count("STG") == code.code.count("STG.128") > 0
    sums = c.micro.mr * c.micro.nr // kernel.threads
    assert code.code.count("STG") == sums * (2 if result == "f16" else 4) // 16


def norm(rows, width):
    """y = (x - its mean) * (1 / its deviation) * s + b along rows of x f32[rows, width]."""
    m, i, j, r = Maker(), ax("i", rows), ax("j", width), ax("r", width)
    for name, shape in (("x", (rows, width)), ("s", (width,)), ("b", (width,))):
        m.input(name, *shape)
    m.step("total", (i,), m.ref("x", i, r), (r,), "sum")
    m.step("mean", (i,), m.ref("total", i) * (1 / width))
    far = m.ref("x", i, r) - m.ref("mean", i)
    m.step("squares", (i,), far * far, (r,), "sum")
    variance = m.ref("squares", i) * (1 / width) + 1e-5
    m.step("rstd", (i,), Const(1.0, "f32") / Unary("sqrt", variance))
    m.step("y", (i, j), (m.ref("x", i, j) - m.ref("mean", i)) * m.ref("rstd", i) * m.ref("s", j)
           + m.ref("b", j))
    return m.done("y")


@needs_sass
def test_norms_read_and_write_16_bytes_and_say_what_turns_once(tmp_path):
    """Each of a row's packs is in a thread's registers, read once, beside those of the two rows of
    numbers: 192 packs of 128 threads, and 256 of a warp's."""
    cases = [Case("short", norm(128, 768)), Case("rows", norm(4096, 1024))]
    made = compiled(cases, GPUS["cuda:sm_90"], tmp_path / "b")
    for (_, code, _), loads, registers in zip(made, (6, 24), (40, 80)):
        assert not code.spilled and code.registers <= registers
        assert code.code.count("LDG.128") == code.code.count("LDG") <= loads
        assert code.code.count("STG.128") == code.code.count("STG") > 0


SASS = """
		Function : _Z12k000_y_devicePKf
	.headerflags	@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;            /* 0x00000a00ff017b82 */
                                                                     /* 0x000e220000000800 */
        /*0010*/                   LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ; /* 0x0 */
        /*0020*/              @!P0 FFMA R0, R4, R5, R0 ;             /* 0x0 */
        /*0030*/                   FFMA R0, R6, R7, R0 ;             /* 0x0 */
        /*0040*/              @!UP0 ISETP.GE.AND P0, PT, R0, R7, PT ; /* 0x0 */
        /*0050*/              @!P0 BRA 0x20 ;                        /* 0x0 */
        /*0060*/                   FFMA R0, R6, R7, R0 ;             /* 0x0 */
        /*0070*/               @P1 BRA 0x10 ;                        /* 0x0 */
        /*0080*/                   STG.E [R2.64], R0 ;               /* 0x0 */
        /*0090*/                   EXIT ;                            /* 0x0 */
        /*00a0*/                   BRA 0xa0;                         /* 0x0 */
"""


def test_loops_are_found_in_what_cuobjdump_writes():
    (code,) = parse_sass(SASS).values()
    assert len(code.instructions) == 11 and code.count("FFMA") == 3
    assert (code.count("LDG", "STG"), code.count("LDG.128"), code.count("STG.128")) == (2, 1, 0)
    inner, outer = code.loops()
    assert [i.name for i in inner.instructions] == ["FFMA", "FFMA", "ISETP", "BRA"]
    assert outer.count("FFMA") == 3 and code.hot_loop("FFMA") == inner
    assert code.hot_loop("LDG") == outer and code.hot_loop("STG") is None


@pytest.mark.product
def test_a_bundle_is_the_same_bytes_in_another_process(tmp_path):
    code = ("import sys; sys.path[:0] = sys.argv[2:]\n"
            "import aotc\n"
            "from cuda_models import mixture\n"
            "aotc.compile(mixture(), sys.argv[1], target='cuda:sm_80', name='m')\n")
    found = []
    for seed in ("1", "2"):
        subprocess.run([sys.executable, "-c", code, str(tmp_path / seed), str(ROOT),
                        str(ROOT / "tests" / "helpers"), str(ROOT / "tests" / "cuda")],
                       check=True, env={"PYTHONHASHSEED": seed}, timeout=300)
        found.append({f.name: f.read_bytes() for f in (tmp_path / seed).iterdir()})
    assert found[0] == found[1] and found[0]
