"""Neighbours that one thread of a block reads and stores at once: by accesses of up to 16 bytes,
where elements lie side by side at multiples of as many; other tensors of callers are refused."""

import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import onnx
import pytest
from cusim_build import needs_cxx
from harness import INFO, Case, build_cases
from te_programs import Maker, ax, zero

import aotc
from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.errors import InterpreterError
from aotc.ir.block_statements import Neighbours
from aotc.ir.expr import Cast, Sym, Where, compare
from aotc.ir.kernel.plan_stages import HeldRows, Nest
from aotc.ir.statements import bodies, walk_body, with_bodies
from aotc.oracle.run_plan import run_plan
from aotc.runtime.shared_library import Library
from aotc.runtime.status import RunError
from aotc.sched import decide, lower
from aotc.target import get_target

TARGET = get_target("cuda:sm_90")
WIDEST = {"f32": 4, "f16": 8, "u8": 16, "f64": 2}
MODEL = """<ir_version: 9, opset_import: ["": 18]> g (float[{0}] x, float[{0}] z) => (float[{0}] y)
    {{ a = Add(x, z)
       y = Tanh(a) }}"""


def mapped(name, *shape, of="f32", to="f32", twice=False):
    """y = a function of x and of one row of numbers beside it."""
    m = Maker(name)
    m.input("x", *shape, dtype=of)
    axes = [ax(f"i{d}", n) for d, n in enumerate(shape)]
    value = m.ref("x", *axes)
    value = value if of == "f32" else Cast("f32", value)
    value = value * 0.5 + (1.0 if not twice else value)
    m.step("y", axes, value if to == "f32" else Cast(to, value))
    return m.done("y")


def masked(columns):
    """y = x where a byte says so, else a number; z where it does not."""
    m, i, j = Maker("masked"), ax("i", 40), ax("j", columns)
    m.input("x", 40, columns)
    m.input("z", 40, columns)
    m.input("b", columns, dtype="bool")
    m.step("y", (i, j), Where(m.ref("b", j), m.ref("x", i, j), m.ref("z", i, j)))
    return m.done("y")


def shifted(columns):
    """y[i, j] = x[i, j + 1], or the last: no multiple of anything."""
    m, i, j = Maker("shifted"), ax("i", 40), ax("j", columns)
    m.input("x", 40, columns + 1)
    m.step("y", (i, j), m.ref("x", i, j + 1) + m.ref("x", i, j))
    return m.done("y")


def guarded(columns):
    """y[i, j] = x[4 i + j], or 0 behind its end: a load that is made for some neighbours only."""
    m, i, j = Maker("guarded"), ax("i", 40), ax("j", columns)
    m.input("x", 100)
    at = i * 4 + j
    m.step("y", (i, j), Where(compare("lt", at, 100), m.ref("x", at), zero()))
    return m.done("y")


def folded(columns, of="f32", fold="sum"):
    """Rows of x folded, and what is left of each element."""
    m, i, j, r = Maker("folded"), ax("i", 24), ax("j", columns), ax("r", columns)
    m.input("x", 24, columns, dtype=of)

    def at(axis):
        found = m.ref("x", i, axis)
        return found if of == "f32" else Cast("f32", found)
    m.step("s", (i,), at(r), (r,), fold)
    m.step("y", (i, j), at(j) - m.ref("s", i) * 0.01)
    return m.done("y")


PROGRAMS = {
    "rows": mapped("rows", 64, 1000), "ragged": mapped("ragged", 7, 333),
    "few": mapped("few", 3, 5), "even": mapped("even", 40, 1, 126),
    "halves": mapped("halves", 64, 1000, of="f16", to="f16"),
    "wider": mapped("wider", 64, 999, of="f16", to="f32"),
    "bytes": mapped("bytes", 64, 1000, of="u8", to="u8"),
    "bytes to floats": mapped("to floats", 64, 1000, of="u8"),
    "doubles": mapped("doubles", 64, 1000, of="f64", to="f64"),
    "any length": mapped("length", Sym("n", 1, 3000)),
    "any rows": mapped("any rows", Sym("n", 1, 40), 32), "masked": masked(1000),
    "shifted": shifted(64), "guarded": guarded(64),
    "sums": folded(1000), "sums of halves": folded(1024, "f16"), "sums, ragged": folded(331),
    "maxima": folded(2048, fold="max"), "maxima of bytes": folded(512, "u8", "max")}


def nests(plan):
    return [n for k in plan.kernels for s in k.lowered.stages if isinstance(s, (Nest, HeldRows))
            for n in (s.nests if isinstance(s, HeldRows) else (s,))]


def planned(program, target=TARGET):
    return lower(program, decide(program, target), target)


@needs_cxx
def test_neighbours_are_right_at_every_size(tmp_path):
    """Against the evaluator: all dtypes, ragged sizes and extents that each call says."""
    built = build_cases([Case(n, p, tol=3e-3 if "16" in str(p) else 1e-5)
                         for n, p in PROGRAMS.items()], TARGET, tmp_path / "b")
    for seed in range(2):
        built.check(seed, syms=lambda s, r: int(r.integers(s.lo, s.hi + 1)))
    built.check(3, syms=lambda s, r: s.lo)


@pytest.mark.parametrize("dtype", WIDEST)
def test_a_thread_has_16_bytes_of_neighbours(dtype):
    (nest,) = nests(planned(mapped("m", 64, 1024, of=dtype, to=dtype)))
    assert nest.wide.width == WIDEST[dtype] and nest.wide.writes == ("y",)
    assert [x.buffer for x in nest.wide.reads] == ["x"]


@pytest.mark.parametrize("name, width", [
    ("ragged", 4), ("few", 0), ("even", 4), ("wider", 4), ("any length", 4), ("any rows", 4),
    ("bytes to floats", 8), ("masked", 8), ("shifted", 4), ("guarded", 4), ("sums, ragged", 0)])
def test_how_many_follows_from_types_and_places(name, width):
    found = [n.wide.width if n.wide else 0 for n in nests(planned(PROGRAMS[name]))]
    assert max(found) == width


def test_a_load_that_is_made_for_some_neighbours_only_is_made_for_each():
    (nest,) = nests(planned(guarded(64)))
    assert nest.wide.reads == () and nest.wide.writes == ("y",)
    (nest,) = nests(planned(shifted(64)))
    assert nest.wide.reads == ()


def test_tensors_of_callers_at_any_address_are_read_one_by_one():
    anywhere = replace(TARGET, aligned=False)
    for n in nests(planned(folded(1000), anywhere)):
        assert n.wide is None or "x" not in {x.buffer for x in n.wide.reads}
        assert n.wide is None or "y" not in n.wide.writes


def test_the_interpreter_refuses_what_is_not_aligned():
    """First of neighbours that lie one element further on."""
    plan = planned(mapped("m", 64, 1000))
    feeds = {"x": np.random.default_rng().standard_normal((64, 1000), np.float32)}
    assert np.array_equal(run_plan(plan, feeds)["y"], feeds["x"] * np.float32(0.5) + 1)

    def moved(body):
        return tuple(replace(s, first=s.first + 1) if isinstance(s, Neighbours) else
                     with_bodies(s, {n: moved(b) for n, b in bodies(s)}) for s in body)
    (kernel,) = plan.kernels
    wrong = replace(plan, kernels=(replace(kernel, body=moved(kernel.body)),))
    with pytest.raises(InterpreterError, match="16 bytes of . are not aligned to as many"):
        run_plan(wrong, feeds)


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    """{unaligned: a simulated Model} of tanh(x + z)."""
    folder = tmp_path_factory.mktemp("sums")
    return {u: aotc.compile(model(), folder / str(u), target="cuda:sm_80", name="sum",
                            unaligned=u).load(simulate=True) for u in (False, True)}


def model(n=5000):
    return onnx.parser.parse_model(MODEL.format(n))


def run_at(model, places, n=5000):
    """The output of a call whose tensors lie ``places`` bytes behind multiples of 256, by name."""
    library: Library = model._library
    ffi, function, null = library.ffi, library.function, library.ffi.NULL
    rng, context = np.random.default_rng(), model._context
    host = {b: rng.standard_normal(n).astype(np.float32) for b in "xzy"}
    keep, at = [], {}
    for b, a in host.items():
        pointer = ffi.new("void **")
        library.call("device_alloc", pointer, a.nbytes + 64 * 5)
        keep.append(pointer[0])
        base = int(ffi.cast("uintptr_t", pointer[0]))
        at[b] = ffi.cast("void *", -(-base // 256) * 256 + places.get(b, 0))
    arena = ffi.new("void **")
    need = function("arena_size_of")(null)
    library.call("device_alloc", arena, need)
    library.call("init", context, model._weights.pointer, arena[0], need, null)
    for b in "xz":
        library.call("copy_in", at[b], ffi.cast("void *", host[b].ctypes.data), host[b].nbytes,
                     null)
    ins, outs = ffi.new("const void *[]", [at["x"], at["z"]]), ffi.new("void *[]", [at["y"]])
    status = function("run_buffers")(context, null, ins, outs, null)
    model._checked(status)
    library.call("copy_out", ffi.cast("void *", host["y"].ctypes.data), at["y"], host["y"].nbytes,
                 null)
    want = np.tanh(host["x"] + host["z"])
    assert np.abs(host["y"] - want).max() < 1e-6
    for p in keep:
        function("device_free")(p)


@needs_cxx
@pytest.mark.parametrize("tensor", "xzy")
def test_a_tensor_that_is_not_aligned_is_refused_by_its_name(sums, tensor):
    run_at(sums[False], {})
    run_at(sums[False], {tensor: 16})
    with pytest.raises(RunError, match=f"{tensor}: its address must be a multiple of 16; copy it "
                                       "there, or compile with --unaligned") as found:
        run_at(sums[False], {tensor: 4})
    assert found.value.status == "AOTC_TENSOR_MISALIGNED"
    run_at(sums[False], {})  # the context goes on


@needs_cxx
def test_kernels_for_tensors_at_any_address(sums):
    run_at(sums[True], {"x": 4, "z": 8, "y": 12})


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc: install the CUDA toolkit")
def test_accesses_are_vectors_in_ptx(tmp_path):
    """Of maps and row folds: 16 bytes of f32 and of halves."""
    for name, program in (("m", mapped("m", 64, 1024)), ("s", folded(2048)),
                          ("h", mapped("h", 64, 1024, of="f16", to="f16"))):
        plan, folder = planned(program), tmp_path / name
        assert any(isinstance(s, Neighbours) for k in plan.kernels for s in walk_body(k.body))
        build_text(program, folder)
        (file,) = folder.glob("*_kernels_*.cu")
        subprocess.run(["nvcc", "-arch=sm_80", "-ptx", "-O3", f"-I{folder}", str(file), "-o",
                        str(tmp_path / "x.ptx")], check=True)
        text = (tmp_path / "x.ptx").read_text()
        assert re.search(r"ld\.global(\.nc)?(\.L\w+)?\.v4", text)
        assert re.search(r"st\.global\.v4", text)
        assert not re.search(r"st\.global\.(f32|b32|u16|b16)", text)


def build_text(program, folder):
    schedule = decide(program, TARGET)
    write_bundle(render_bundle(lower(program, schedule, TARGET), schedule, INFO), folder)
