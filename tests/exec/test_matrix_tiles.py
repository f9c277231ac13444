"""Rows on matrix tiles, through their twin in C and, where there are any, through the instructions:
every case, sums in the order of the instruction bit by bit, whole models; that what needs the
instructions says so; that the real code compiles."""

import json
import shutil
import subprocess

import numpy as np
import pytest
from dot_cases import dot_cases
from harness import STRICT, build_cases, differences
from onnx import TensorProto, helper
from pair_cases import matmul_case
from small_models import make_model

import aotc
from aotc.errors import AotcError
from aotc.ir.dtypes import from_bf16, to_bf16
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.runtime.compile_bundle import find_compiler
from aotc.runtime.feeds import machine
from aotc.runtime.status import CpuError
from aotc.target import TARGETS, runs_here
from aotc.target.micro_kernels import TILES

AMX = TARGETS["x86-64-v4-amx"]
ROWS = [u for u in AMX.rows("dot") if u.template == TILES]
TWIN = "-DAOTC_TILES_IN_C"
needs_lanes = pytest.mark.skipif(not runs_here(TARGETS["x86-64-v4-bf16"]),
                                 reason="needs a CPU with AVX-512 and bf16 for all but tiles")
needs_x86 = pytest.mark.skipif(machine() != "x86_64", reason="needs an x86-64 CPU")


@pytest.fixture(params=[TWIN, ""], ids=["twin", "instructions"])
def flags(request, monkeypatch):
    """Flags of the C compiler, which ``aotc.compile`` takes too."""
    if not request.param and not runs_here(AMX):
        pytest.skip("needs a CPU with matrix tiles")
    monkeypatch.setenv("CFLAGS", f"-Og {request.param}")
    return request.param


def product(rows=37, depth=70, columns=40, seed=0):
    """y f32[rows, columns] = x w."""
    w = np.random.default_rng(seed).standard_normal((depth, columns)).astype(np.float32)
    return make_model([helper.make_node("MatMul", ["x", "w"], ["y"])],
                      {"x": (TensorProto.FLOAT, [rows, depth])},
                      {"y": (TensorProto.FLOAT, [rows, columns])}, {"w": w}), w


def in_the_order_of_tiles(x, w):
    """x w of bf16: pairs by 16, even and odd terms by themselves from zero on."""
    a, b = from_bf16(to_bf16(x)), from_bf16(to_bf16(w))
    out = np.zeros((len(a), b.shape[1]), np.float32)
    for k in range(0, a.shape[1], 32):
        sums = np.zeros((2, *out.shape), np.float32)
        for i in range(k, min(k + 32, a.shape[1])):
            sums[i % 2] += a[:, i, None] * b[None, i]
        out += sums[0] + sums[1]
    return out


@needs_lanes
@pytest.mark.parametrize("row", [
    pytest.param(u, id=u.name, marks=() if u.tile.mr == 32 and u.a == "bf16" else
                 pytest.mark.product) for u in ROWS])
def test_rows_equal_the_evaluator(row, flags, tmp_path):
    cases = [p.fast for p in dot_cases(row, AMX)]
    if row.a == "bf16":  # whole groups of steps, and what is left behind them
        rng = np.random.default_rng(5)
        cases += [matmul_case(row, AMX, rng, mode, (row.tile.mr + 5, 35, depth)).fast
                  for mode in ("rows", "packed") for depth in (64, 90, 330)]
    built = build_cases(cases, AMX, tmp_path / "b", f"{STRICT} {flags}")
    s = built.sample(1)
    wrong = [f"{c.name}: {text}" for c, g, w in zip(built.cases, s.got, s.want)
             for text in differences(g, w, c.tol, c.floor)]
    assert not wrong, "\n".join(wrong)


@needs_lanes
@pytest.mark.parametrize("size, threads", [
    ((37, 70, 40), 1), pytest.param((37, 70, 40), 2, marks=pytest.mark.product),
    # several slices of the sum, a tile of 16 rows behind others, panels of columns that are whole
    ((133, 600, 64), 1),
    pytest.param((96, 256, 40), 1, marks=pytest.mark.product)])
@pytest.mark.usefixtures("flags")
def test_sums_are_those_of_the_instruction(size, threads, tmp_path):
    model, w = product(*size)
    made = aotc.compile(model, tmp_path / "b", target=AMX.name, precision="bf16")
    x = np.random.default_rng(2).standard_normal(size[:2]).astype(np.float32)
    got = made.load(threads=threads).run({"x": x})["y"]
    assert np.array_equal(got, in_the_order_of_tiles(x, w))
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    assert manifest["target"] == AMX.name
    assert any(r.endswith("__amx") for k in manifest["kernels"] for r in k["rows"])


@needs_lanes
@pytest.mark.parametrize("width, mode", [(32, "rows"), (14, "packed")])
@pytest.mark.usefixtures("flags")
def test_rows_of_windows_are_read_in_place_where_that_copies_less(width, mode, tmp_path):
    """Two panels of columns, rows that cross the padding and lines of the image: the same bits
    either way."""
    rng, conv = np.random.default_rng(3), helper.make_node("Conv", ["x", "w", "b"], ["y"],
                                                           pads=[1, 1, 1, 1])
    model = make_model([conv], {"x": (TensorProto.FLOAT, [1, 32, 9, width])},
                       {"y": (TensorProto.FLOAT, [1, 64, 9, width])},
                       {"w": rng.standard_normal((64, 32, 3, 3)).astype(np.float32),
                        "b": rng.standard_normal(64).astype(np.float32)})
    x, got = rng.standard_normal((1, 32, 9, width)).astype(np.float32), {}
    for name, schedule in (("chosen", None), ("other", tmp_path / "other.json")):
        made = aotc.compile(model, tmp_path / name, target=AMX.name, precision="bf16",
                            winograd="off", schedule=schedule)
        got[name] = made.load().run({"x": x})["y"]
        said = json.loads((tmp_path / name / "schedule.json").read_text())
        stage, = (c for g in said["groups"] for c in g["loops"].values() if "k" in c)
        if schedule is None:
            assert stage["a"] == mode
            stage["a"] = "packed" if mode == "rows" else "rows"
            for key in ("order", "copied_run"):
                stage.pop(key, None)
            (tmp_path / "other.json").write_text(json.dumps(said))
        else:
            assert stage["a"] != mode
    assert np.array_equal(got["chosen"], got["other"])


def test_one_row_and_f32_have_no_tiles(tmp_path):
    """M = 1 runs in lanes; who does not ask for bf16 gets none of it."""
    for rows, precision in ((1, "bf16"), (37, "f32")):
        made = aotc.compile(product(rows)[0], tmp_path / precision, target=AMX.name,
                            precision=precision)
        names = {r for k in made.manifest["kernels"] for r in k["rows"]}
        assert not any("x32__amx" in r for r in names)
        kernels = [f.read_text() for f in (tmp_path / precision).glob("*_kernels_*.c")]
        assert not any("aotc_tiles" in text for text in kernels)


def test_who_has_no_tiles_is_told(tmp_path, monkeypatch):
    """At the start, by a status; nothing runs into an illegal instruction."""
    if runs_here(AMX):
        pytest.skip("this machine has matrix tiles")
    monkeypatch.setenv("CFLAGS", "-Og")
    made = aotc.compile(product()[0], tmp_path / "b", target=AMX.name, precision="bf16")
    with pytest.raises(AotcError, match="amx_tile"):
        made.load().run({"x": np.zeros((37, 70), np.float32)})


# what the CPU says of its units, XCR0, what the system answers to the request -> whether tiles may
# be used.  Linux refuses where a signal stack is too small (ENOMEM), or would be (ENOSPC), and
# where it does not know the request (EINVAL).
ANSWERS = {"granted": ("~0u", 0x600e7, 0, True), "small stack": ("~0u", 0x600e7, -12, False),
           "no space": ("~0u", 0x600e7, -28, False), "unknown": ("~0u", 0x600e7, -22, False),
           "not saved": ("~0u", 0xe7, 0, False), "no units": ("0u", 0x600e7, 0, False)}
_CPUID = """
static int __get_cpuid_count(unsigned leaf, unsigned part, unsigned *a, unsigned *b, unsigned *c,
    unsigned *d)
{
    (void)leaf, (void)part;
    *a = *b = 0;
    *c = ~0u;
    *d = %s;
    return 1;
}
static int __get_cpuid(unsigned leaf, unsigned *a, unsigned *b, unsigned *c, unsigned *d)
{
    return __get_cpuid_count(leaf, 0, a, b, c, d);
}
"""
# arch_prctl of ARCH_REQ_XCOMP_PERM and XTILEDATA is answered, nothing else is granted
_SYSTEM = ("sub $158, %%rax; lea -0x1023(%%rdi), %%rcx; or %%rcx, %%rax; lea -18(%%rsi), %%rcx; "
           "or %%rcx, %%rax; mov ${}, %%rcx; cmove %%rcx, %%rax")


def answered(folder, units, saved, system):
    """The files of a bundle as on a machine that answers so, whatever this one is; flags of the C
    compiler that it needs."""
    (folder / "cpuid.h").write_text(_CPUID % units)
    header = folder / "aotc_tiles_allowed.h"
    text = header.read_text()
    for asked, answer in (("xgetbv", f"mov ${saved}, %%eax; mov $0, %%edx"),
                          ("syscall", _SYSTEM.format(system))):
        assert text.count(f'"{asked}"') == 1
        text = text.replace(f'"{asked}"', f'"{answer}"')
    header.write_text(text)
    return f"-I{folder}"


@needs_x86
def test_tiles_are_used_where_cpu_and_system_allow(tmp_path):
    """The request is made as Linux wants it, and every refusal is one."""
    aotc.compile(product()[0], tmp_path / "b", target=AMX.name, precision="bf16")
    main = tmp_path / "main.c"
    main.write_text('#include "aotc_tiles_allowed.h"\n'
                    "int main(void) { return aotc_tiles_allowed(); }\n")
    found = {}
    for said, (*answers, _) in ANSWERS.items():
        folder = tmp_path / said.replace(" ", "_")
        folder.mkdir()
        shutil.copy(tmp_path / "b" / "aotc_tiles_allowed.h", folder)
        program = str(folder / "main")
        subprocess.run([*find_compiler(), "-std=c11", *STRICT.split(), answered(folder, *answers),
                        str(main), "-o", program], check=True)
        found[said] = bool(subprocess.run([program], check=False).returncode)
    assert found == {said: allowed for said, (*_, allowed) in ANSWERS.items()}


@needs_lanes
@pytest.mark.parametrize("said", ["granted", "small stack"])
def test_a_bundle_is_told_before_it_runs(said, tmp_path, monkeypatch):
    """A bundle for matrix tiles alone: a status where the system refuses them."""
    *answers, allowed = ANSWERS[said]
    made = aotc.compile(product()[0], tmp_path / "b", target=AMX.name, precision="bf16")
    monkeypatch.setenv("CFLAGS", f"-Og {answered(tmp_path / 'b', *answers)}")
    loaded, feeds = made.load(), {"x": np.zeros((37, 70), np.float32)}
    if allowed:  # nothing runs: this CPU may have no tiles
        loaded.bind(feeds)
    else:
        with pytest.raises(CpuError, match="amx_tile"):
            loaded.bind(feeds)


@pytest.mark.product
@needs_lanes
def test_where_tiles_are_refused_the_next_kernels_run(tmp_path, monkeypatch):
    model, w = product()
    made = aotc.compile(model, tmp_path / "b", target="x86-64", precision="bf16")
    monkeypatch.setenv("CFLAGS", f"-Og {answered(tmp_path / 'b', *ANSWERS['small stack'][:3])}")
    loaded = made.load()
    x = np.random.default_rng(2).standard_normal((37, 70)).astype(np.float32)
    want = from_bf16(to_bf16(x)) @ from_bf16(to_bf16(w))
    assert np.max(np.abs(loaded.run({"x": x})["y"] - want)) <= 1e-5 * np.ptp(want)
    assert loaded.variant != AMX.name


def test_the_instructions_compile(tmp_path):
    """Tiles begin and end in the kernel; products are what the rows say."""
    model, _ = product()
    aotc.compile(model, tmp_path / "b", target=AMX.name, name="seen", precision="bf16")
    files = sorted((tmp_path / "b").glob("seen_kernels_*.c"))
    text = "".join(_assembly(f, AMX.cflags) for f in files)
    for word in ("ldtilecfg", "tilerelease", "tdpbf16ps %tmm6, %tmm4, %tmm0", "tileloadd",
                 "tilestored"):
        assert word in text, word
    assert "syscall" in _assembly(tmp_path / "b" / "seen.c")


def _assembly(source, flags=()):
    out = source.with_suffix(".s")
    subprocess.run([*find_compiler(), "-std=c11", *STRICT.split(), *flags, "-S", source.name, "-o",
                    out.name], check=True, cwd=source.parent)
    return out.read_text().replace("\t", " ")


@pytest.mark.product
@needs_lanes
@pytest.mark.usefixtures("flags")
def test_a_bundle_for_several_cpus_has_them(tmp_path):
    model, w = product()
    made = aotc.compile(model, tmp_path / "b", target="x86-64", precision="bf16")
    assert [v["target"] for v in made.manifest["variants"]][0] == AMX.name
    x = np.random.default_rng(2).standard_normal((37, 70)).astype(np.float32)
    got = made.load(variant=AMX.name).run({"x": x})["y"]
    assert np.array_equal(got, in_the_order_of_tiles(x, w))
    other = made.load(variant="x86-64-v1").run({"x": x})["y"]
    assert np.max(np.abs(got - other)) <= 1e-5 * np.ptp(other)


@needs_lanes
def test_dynamic_chains_stay_integers_between_few_kernels(tmp_path, monkeypatch):
    """DynamicQuantizeLinear, MatMulInteger, Cast and Mul, twice: both products on matrix tiles, one
    kernel for the largest element and one for all else at most, each; results are onnxruntime's."""
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.setenv("CFLAGS", f"-Og {TWIN}")
    rng, nodes, tensors = np.random.default_rng(0), [], {}
    for n, (x, y) in enumerate((("x", "h"), ("h", "y"))):
        tensors |= {f"w{n}": rng.integers(-127, 128, (64, 64)).astype(np.int8),
                    f"s{n}": np.float32(0.01), f"z{n}": np.int8(0)}
        node = helper.make_node
        nodes += [node("DynamicQuantizeLinear", [x], [f"q{n}", f"qs{n}", f"qz{n}"]),
                  node("MatMulInteger", [f"q{n}", f"w{n}", f"qz{n}", f"z{n}"], [f"i{n}"]),
                  node("Cast", [f"i{n}"], [f"f{n}"], to=TensorProto.FLOAT),
                  node("Mul", [f"qs{n}", f"s{n}"], [f"m{n}"]),
                  node("Mul", [f"f{n}", f"m{n}"], [y])]
    model = make_model(nodes, {"x": (TensorProto.FLOAT, [40, 64])},
                       {"y": (TensorProto.FLOAT, [40, 64])}, tensors)
    made = aotc.compile(model, tmp_path / "b", target=AMX.name)
    groups = run_pipeline(Options(model, target=AMX.name, stop_after="schedule")).schedule.groups
    assert sum(r.startswith("dot_u8s8_") for g in groups for r in g.rows.values()) == 2
    assert len(made.manifest["kernels"]) <= 5, groups
    x = rng.standard_normal((40, 64)).astype(np.float32)
    want = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    assert np.abs(made.load().run({"x": x})["y"] - want).max() <= 2e-2 * np.ptp(want)
