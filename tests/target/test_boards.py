"""Targets without an operating system: built freestanding, run on an emulated board, equal to the
evaluator and the reference; what their libraries call, and how many instructions models take."""

import re
import shutil
import subprocess
from pathlib import Path

import onnx
import pytest
from harness import INFO, Built, merged
from quantised_net import bytes_net
from row_cases import CASES
from small_models import dense

import aotc
from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.errors import AotcError
from aotc.runtime.compile_bundle import build
from aotc.runtime.emulate import EmulatedModel
from aotc.sched import lower
from aotc.target import TARGETS
from aotc.tools.verify import verify

BOARDS = [t for t in TARGETS.values() if t.board]
NETS = Path(__file__).resolve().parents[3] / "shared" / "mcu"


FIRST = ("cortex-m0", "cortex-m4", "rv32imc")
EACH = [pytest.param(t, marks=() if t.name in FIRST else pytest.mark.product, id=t.name)
        for t in BOARDS]
SOFT = re.compile(r"__aeabi_(?:[fd]|u?[il]2[fd])|__\w*[sd]f")  # floats in software


@pytest.fixture(scope="module", params=EACH)
def target(request):
    """Every target without an operating system; skips where its tools are missing."""
    return _need_tools(request.param)


def _need_tools(target):
    cross = target.cross
    missing = [n for n in (cross.cc[0], cross.emulator[0]) if not shutil.which(n)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (Debian: {', '.join(cross.packages)})")
    return target


def test_every_row_equals_the_evaluator(target, tmp_path):
    cases = [pair.fast for i, u in enumerate(target.ukernels)
             for pair in list(CASES[u.category](u, target))[i % 16::16]]
    program, schedule = merged(cases, target)
    bundle = render_bundle(lower(program, schedule, target), schedule, INFO, weights="embed")
    write_bundle(bundle, tmp_path / "rows")
    built = Built(tuple(cases), target, program, schedule, EmulatedModel(tmp_path / "rows"),
                  tmp_path / "rows")
    built.check(1)
    built.check(2, syms=lambda s, r: s.lo)


def test_a_model_matches_the_reference_and_its_bundle_its_own_recording(target, tmp_path):
    onnx.save(dense(3), tmp_path / "net.onnx")
    matches = verify(tmp_path / "net.onnx", target=target.name, out=tmp_path / "b")
    assert matches and all(m.ok for _, m in matches)
    done = subprocess.run(["make", "-s", "test"], cwd=tmp_path / "b", capture_output=True,
                          text=True)
    told = done.stdout + done.stderr
    assert done.returncode == 0 and "passed" in told, told
    assert int(re.findall(r"instructions (\d+)", told)[-1]) > 100
    assert 0 < int(re.findall(r"stack (\d+)", told)[-1]) < 2048


def test_bytes_stay_integers_from_end_to_end(target, tmp_path):
    """Within a quantum of the reference, and no kernel calls floats in software or copies."""
    onnx.save(bytes_net(), tmp_path / "net.onnx")
    matches = verify(tmp_path / "net.onnx", target=target.name, out=tmp_path / "b", runs=3)
    assert len(matches) >= 3 and all(m.ok for _, m in matches)
    nm = target.cross.cc[0].replace("gcc", "nm")
    for path in (tmp_path / "b" / "build").glob("net_kernels_*.o"):
        called = subprocess.run([nm, "-u", path], check=True, capture_output=True, text=True).stdout
        names = {line.split()[-1] for line in called.splitlines()}
        assert not [n for n in names if SOFT.match(n) or n == "memcpy"], (path.name, names)
    text = "".join(p.read_text() for p in (tmp_path / "b").glob("net_kernels_*.c"))
    assert "aotc_rescale(" in text and "aotc_shift(" in text and "int64_t m0" not in text


def test_no_shared_library_is_built(tmp_path):
    bundle = aotc.compile(dense(3), tmp_path / "b", target=BOARDS[0].name, name="dense")
    with pytest.raises(AotcError, match="no shared libraries; make -C .* libdense.a"):
        build(bundle.path)
    with pytest.raises(AotcError, match="this machine is"):
        bundle.load()


def test_exact_math_rounds_in_floats(tmp_path):
    target = BOARDS[0]
    onnx.save(bytes_net(), tmp_path / "net.onnx")
    bundle = aotc.compile(tmp_path / "net.onnx", tmp_path / "b", target=target.name, math="exact")
    text = "".join(p.read_text() for p in bundle.path.glob("net_kernels_*.c"))
    assert "aotc_rescale(" not in text and "aotc_vround(" in text


# instructions of a call, in millions: loose bounds, since compilers differ
COUNTS = {("cortex-m4", "kws_int8"): 9.2, ("cortex-m4", "ad_int8"): 0.7,
          ("cortex-m4", "vww_int8"): 24.0, ("cortex-m4", "kws"): 9.0,
          ("cortex-m3", "kws_int8"): 11.0, ("cortex-m0", "kws_int8"): 24.0,
          ("rv32imc", "kws_int8"): 15.0}


@pytest.mark.parametrize("name, net", [
    pytest.param(*key, marks=() if i < 2 else pytest.mark.product) for i, key in enumerate(COUNTS)])
def test_nets_take_few_instructions(name, net, tmp_path):
    if not (NETS / f"{net}.onnx").exists():
        pytest.skip(f"not there: {NETS / net}.onnx")
    cross = TARGETS[name].cross
    if not shutil.which(cross.cc[0]) or not shutil.which(cross.emulator[0]):
        pytest.skip(f"not installed (Debian: {', '.join(cross.packages)})")
    bundle = aotc.compile(NETS / f"{net}.onnx", tmp_path / "b", target=name).path
    done = subprocess.run(["make", "-s", "test", "CFLAGS=-O2"], cwd=bundle, capture_output=True,
                          text=True)
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert int(re.findall(r"instructions (\d+)", told)[-1]) < 1e6 * COUNTS[name, net]
    assert int(re.findall(r"stack (\d+)", told)[-1]) < 2048
