"""What a library of a CUDA bundle needs and exports: the driver by way of the CUDA runtime that is
linked in, the system's own libraries, and what its header declares."""

import re
import shutil
import subprocess

import pytest
from harness import INFO, Case, merged
from kernel_programs import dense, rows

from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.sched import lower
from aotc.target import TARGETS

TOOLS = ("nvcc", "make", "readelf", "nm")
SYSTEM = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libdl.so.2", "librt.so.1",
          "libpthread.so.0"}
pytestmark = pytest.mark.skipif(not all(map(shutil.which, TOOLS)),
                                reason=f"needs {', '.join(TOOLS)}")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A bundle's shared library and its header."""
    target, folder = TARGETS["cuda:sm_90"], tmp_path_factory.mktemp("library") / "b"
    program, schedule = merged([Case(p.name, p) for p in (dense(), rows())], target)
    write_bundle(render_bundle(lower(program, schedule, target), schedule, INFO), folder)
    done = subprocess.run(["make", "-j2", "NVCCFLAGS=-O1", "all"], cwd=folder, timeout=600,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder / "libcases.so", (folder / "cases.h").read_text()


def lines_of(*command):
    return subprocess.run([*map(str, command)], check=True, capture_output=True,
                          text=True).stdout.splitlines()


def test_it_needs_no_library_of_cuda(library):
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", "\n".join(lines_of("readelf", "-d", library[0])))
    assert needed and not {n for n in needed if not n.startswith("ld-linux")} - SYSTEM, needed
    asked = [line.split()[-1] for line in lines_of("nm", "-D", "--undefined-only", library[0])]
    assert not [n for n in asked if re.match(r"_*(cu|nv)[A-Z_]", n)], asked


def test_it_exports_what_its_header_declares(library):
    """Neither launchers of kernels nor the CUDA runtime, of which a program may have another."""
    path, header = library
    found = {line.split()[-1] for line in lines_of("nm", "-D", "--defined-only", path)}
    declared = set(re.findall(r"\b(cases_\w+)(?:\(|\[\d*\]|;)", re.sub(
        r"/\*.*?\*/|typedef .*?\} \w+;|typedef [^;]*;|#.*?\n", "", header, flags=re.S)))
    assert {"cases_run", "cases_graph_launch", "cases_weights_hash"} <= declared
    assert found == declared
