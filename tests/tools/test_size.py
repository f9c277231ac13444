"""aotc size: flash and RAM of a bundle, and the budgets that a compilation keeps."""

import json
import re
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from small_models import conv_stack, dense, running_sum, u_net

import aotc
from aotc.cli import main
from aotc.emit.bundle.memory_map import MemoryMap, MemoryUser, StoredConstant, Tenant
from aotc.footprint.bundle_size import (
    SizeLimit,
    check_limits,
    measure_bundle,
    show_bytes,
    size_of,
    total_bytes,
)
from aotc.footprint.code_size import measure_code
from aotc.footprint.elf import read_elf
from aotc.footprint.memory_picture import draw_memory
from aotc.options import Options
from aotc.tools.check_model import check_model

M4 = "arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb"
needs_arm = pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None,
                               reason="not installed: arm-none-eabi-gcc")


def _map_of(folder):
    return MemoryMap.from_json(json.loads((folder / "memory.json").read_text()))


@pytest.mark.parametrize("make, dims, options", [
    (u_net, {}, {}), (running_sum, {}, {}), (dense, {"n": (1, 32)}, {}),
    (dense, {"n": (1, 32)}, {"profile": True}),
    (dense, {"n": (1, 32)}, {"variants": {"n": [(1, 1), (2, 32)]}})])
def test_the_arena_is_that_of_the_library_and_of_check(tmp_path, make, dims, options):
    model = make()
    made = aotc.compile(model, tmp_path / "b", target="c", dims=dims, **options)
    memory = _map_of(made.path)
    loaded = made.load()
    need = loaded._library.function("arena_size")(*memory.extents.values(), 1)
    assert memory.arena == need
    assert memory.arena >= memory.peak.bytes + memory.front
    if not options:
        said = check_model(Options(model, target="c", dims=dims)).arenas[-1][1]
        assert said == memory.arena


def test_every_tensor_has_room_and_no_two_share_it(tmp_path):
    made = aotc.compile(u_net(), tmp_path / "b", target="c", connect="none")
    memory = _map_of(made.path)
    assert len(memory.tenants) > 3 and memory.constants and len(memory.users) > 3
    for t in memory.tenants:
        assert t.bytes > 0 and t.offset >= 0 and t.offset + t.bytes <= memory.slots
        assert 0 <= t.first <= t.last < len(memory.users)
    for n, a in enumerate(memory.tenants):
        for b in memory.tenants[:n]:
            # what is written over an input begins where that ends
            at_once = a.first < b.last and b.first < a.last
            apart = a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset
            assert apart or not at_once, (a, b)


def test_moments_count_what_lies_on_another_once():
    tenants = (Tenant("a", "", 100, 0, 0, 1), Tenant("b", "x", 60, 40, 1, 1),
               Tenant("c", "", 10, 128, 1, 1))
    memory = MemoryMap({"n": 3}, 64, 192, tenants, (MemoryUser("k0", 0), MemoryUser("k1", 32)),
                       (StoredConstant("w", "W", 8, (1,)),))
    assert [(m.stored, m.scratch) for m in memory.moments] == [(100, 0), (110, 32)]
    assert [(t.name, own) for t, own in memory.peak.own] == [("a", 100), ("b", 0), ("c", 10)]
    assert memory.arena == 64 + 192 + 32 and memory.peak.kernel == 1
    assert MemoryMap.from_json(json.loads(memory.to_json())) == memory


@pytest.fixture
def cortex(monkeypatch):
    """Code is for a Cortex-M4, with the flags that users have."""
    monkeypatch.setenv("CC", M4)
    monkeypatch.delenv("CFLAGS", raising=False)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A small bundle with its weights in the library."""
    out = tmp_path_factory.mktemp("size") / "digits"
    return aotc.compile(conv_stack(), out, target="c", weights="embed", name="digits")


PROGRAM = """
#include "digits.h"
static _Alignas(64) unsigned char arena[DIGITS_ARENA_BYTES_MAX(1)];
static digits_weights weights;
static digits_context context;
int reset(void *const *tensors)
{
    if (digits_weights_embedded(&weights) != AOTC_OK) return 1;
    if (digits_init(&context, &weights, arena, sizeof arena, 0) != AOTC_OK) return 2;
    return digits_run(&context, ARGUMENTS) != AOTC_OK;
}
"""


@needs_arm
def test_code_is_what_a_linked_program_has(digits, cortex, tmp_path):
    found = measure_bundle(digits.path)
    code = found.code
    assert code.bare and code.stack > 0 and not code.endless
    assert {"memcpy", "memset"} <= {*code.outside} and not found.no_code
    main_c = tmp_path / "main.c"
    count = len(digits.manifest["inputs"]) + len(digits.manifest["outputs"])
    main_c.write_text(PROGRAM.replace("ARGUMENTS", ", ".join(
        f"tensors[{n}]" for n in range(count))))
    linked = tmp_path / "linked.elf"
    sources = list(digits.path.glob("digits*.c"))
    done = subprocess.run(
        [*M4.split(), "-std=c11", "-O2", "-ffreestanding", "-DAOTC_FREESTANDING",
         "-ffunction-sections", "-fdata-sections", "-nostdlib", "-Wl,--gc-sections",
         "-Wl,--entry=reset", "-Wl,--unresolved-symbols=ignore-all", f"-I{digits.path}",
         str(main_c), *map(str, sources), "-o", str(linked)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = subprocess.run(["arm-none-eabi-size", str(linked)], capture_output=True, text=True,
                          check=True).stdout.splitlines()[1].split()[0]
    # the program's own function, what aligns functions and tables, calls that are too far
    own = total_bytes(found.flash) - (code.libraries or 0)
    assert 0 < int(text) - own < 200
    linked = subprocess.run(
        [*M4.split(), "-nostartfiles", "-x", "c", "-", "-o", str(tmp_path / "none.elf"),
         "-Wl,--entry=f"], input=b"void *memset(void *, int, unsigned); void f(void) {}",
        capture_output=True)
    if linked.returncode:
        pytest.skip("not installed: a C library for arm-none-eabi-gcc (libnewlib-arm-none-eabi)")
    # software has this CPU's floats here, which is kilobytes
    assert "__aeabi_fmul" in code.outside and 1 << 10 < code.libraries < 1 << 14


@needs_arm
def test_the_stack_is_no_less_than_what_a_run_takes(digits, cortex):
    """The chain of calls by hand: run, its checks, the launcher and the deepest kernel."""
    code = measure_code(digits.path, digits.manifest)
    frames = {p.name: p.stack for p in code.parts}
    kernels = {k["c"] for k in digits.manifest["kernels"]}
    own = max(v for k, v in frames.items() if k in kernels)
    start = sum(v for k, v in frames.items() if re.match(r"digits_run|compute|launch", k))
    assert own > 0 and start > 0 and code.stack >= own + start


@needs_arm
def test_the_report_names_parts_kernels_and_moments(digits, cortex, capsys, tmp_path):
    assert main(["size", str(digits.path), "-o", str(tmp_path / "m.svg")]) == 0
    text = capsys.readouterr().out
    for word in ("flash", "weights", "code", "tables", "RAM", "arena", "stack", "context",
                 "inputs and outputs", "without an operating system", "memcpy",
                 "the moments that need most of it", "kernel, in bytes"):
        assert word in text, word
    for kernel in digits.manifest["kernels"]:
        assert kernel["c"] in text
    root = ElementTree.fromstring((tmp_path / "m.svg").read_text())
    memory = _map_of(digits.path)
    titles = [t.text for t in root.iter("{http://www.w3.org/2000/svg}title")]
    assert sum(": " in t and "kernels" in t for t in titles) == len(memory.tenants)
    assert main(["size", str(digits.path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    for memory in ("flash", "ram"):
        assert data[memory]["bytes"] == sum(p["bytes"] for p in data[memory]["parts"])
        assert data[memory]["bytes"] == sum(data[memory]["by_kind"].values())
    assert data["flash"]["by_kind"]["weights"] == digits.manifest["weights_bytes"]
    assert data["ram"]["by_kind"]["arena"] == _map_of(digits.path).arena


@needs_arm
def test_a_bundle_that_is_too_large_is_not_written(tmp_path, capsys, cortex):
    onnx.save(dense(), tmp_path / "m.onnx")
    command = ["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "b"), "--target", "c",
               "--dim", "n=1..32", "--name", "tiny"]
    assert main([*command, "--flash", "1K", "--ram", "512"]) == 1
    fault = capsys.readouterr().err
    for memory in ("flash", "ram"):
        lines = fault.partition(f"{memory}: tiny needs ")[2].splitlines()
        assert "the largest:" in lines[0]
        sizes = [line.split()[:2] for line in lines[1:4]]
        assert len(sizes) == 3 and all(unit in ("KB", "bytes") for _, unit in sizes)
    assert not (tmp_path / "b").exists()
    size = size_of(tmp_path / "m.onnx", Options(tmp_path / "m.onnx", target="c", name="tiny",
                                                dims={"n": (1, 32)}))
    exact = {"flash": str(total_bytes(size.flash)), "ram": str(total_bytes(size.ram))}
    assert main([*command, "--flash", exact["flash"], "--ram", exact["ram"]]) == 0
    assert (tmp_path / "b" / "manifest.json").exists()
    for memory, need in exact.items():
        with pytest.raises(aotc.AotcError, match=f"^{memory}: tiny needs {need} bytes .*, 1 more"):
            check_limits(size, [SizeLimit(memory, int(need) - 1)])


def test_without_a_compiler_the_rest_is_known(tmp_path, monkeypatch, capsys):
    made = aotc.compile(dense(), tmp_path / "b", target="aarch64", name="tiny")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    size = measure_bundle(made.path)
    assert size.code is None and "aarch64-linux-gnu-gcc" in size.no_code
    assert {p.kind for p in size.flash} == {"weights"}
    assert main(["size", str(made.path)]) == 0
    assert "code and stack are not known. no compiler: tiny is for aarch64" in \
        capsys.readouterr().out
    # what is over without code is over; what fits without code is not known to fit
    with pytest.raises(aotc.AotcError, match="flash: tiny needs .* without code and stack"):
        check_limits(size, [SizeLimit("flash", 64)])
    with pytest.raises(aotc.AotcError, match="flash: what is known fits, but nothing tells"):
        check_limits(size, [SizeLimit("flash", 1 << 20)])


def test_a_dimension_without_a_bound_keeps_no_budget(tmp_path):
    size = size_of(dense(), Options(dense(), target="c"))
    assert size.free == ("n",)
    with pytest.raises(aotc.AotcError, match="--dim n=LO..HI"):
        check_limits(size, [SizeLimit("ram", 1 << 30)])


@pytest.mark.parametrize("text", ["", "K", "64X", "-3", "0", True, "1:2"])
def test_budgets_are_bytes(tmp_path, text):
    with pytest.raises(aotc.AotcError, match="^ram .*: write bytes as 64M"):
        aotc.compile(dense(), tmp_path / "b", target="c", ram=text)


def test_other_targets_have_no_map(tmp_path, capsys):
    made = aotc.compile(dense(), tmp_path / "b", target="cuda:sm_80")
    assert main(["size", str(made.path)]) == 1
    assert "aotc check" in capsys.readouterr().err


def test_what_is_no_object_file_is_refused():
    for data in (b"", b"\x7fELF", b"\x7fELF\2\1" + bytes(90), b"MZ" + bytes(99)):
        with pytest.raises(aotc.AotcError, match=r"x\.o: no ELF object file"):
            read_elf(data, "x.o")


def test_without_its_reader_code_is_unknown(tmp_path, monkeypatch):
    made = aotc.compile(dense(), tmp_path / "b", target="c")
    monkeypatch.setitem(sys.modules, "elftools.elf.elffile", None)
    found = measure_bundle(made.path)
    assert found.code is None and "pip install 'aotc[size]'" in found.no_code


def test_bytes_are_said_shortly():
    assert [show_bytes(n) for n in (0, 1023, 1024, 1 << 20)] == [
        "0 bytes", "1023 bytes", "1.0 KB", "1.0 MB"]


def test_a_picture_of_nothing(tmp_path):
    memory = MemoryMap({}, 0, 0, (), (), ())
    assert ElementTree.fromstring(draw_memory(memory, "a<b")).tag.endswith("svg")
    assert np.isclose(memory.arena, 64)
