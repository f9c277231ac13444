"""Calls of real models are captured in a CUDA graph without a call that waits or asks for memory:
the bundles' own host code, with kernels that do nothing."""

import re
import shutil

import pytest
from cuda_twins import Twins
from harness import INFO
from zoo_files import OTHERS, SMALL

from aotc.emit.bundle.render import render_plans
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.runtime.compile_bundle import build, read_manifest
from aotc.runtime.shared_library import Library

TARGET, SIZE = "cuda:sm_90", 1 << 40
STUBS = """#include "{name}_internal.h"

static __global__ void nothing(void)
{{
}}
{functions}"""


def stubs(name, header):
    """Launchers of all kernels that a header declares, and the permissions they ask for."""
    functions = [f"cudaError_t {f}(const {name}_frame *, cudaStream_t stream)\n{{\n"
                 "    AOTC_LAUNCH(nothing, dim3(1), dim3(32), 0, stream);\n"
                 "    return cudaGetLastError();\n}\n"
                 for f in re.findall(r"cudaError_t (\w+)\(const", header)]
    permits = [f"cudaError_t {f}(void)\n{{\n    return cudaSuccess;\n}}\n"
               for f in re.findall(r"cudaError_t (\w+)\(void\)", header)]
    return STUBS.format(name=name, functions="\n".join(functions + permits)), len(functions)


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))),
                    reason="the simulator needs a C++ compiler: install g++")
@pytest.mark.parametrize("name", [
    pytest.param(n, marks=() if n == "dense_dynamic" else pytest.mark.zoo)
    for n in SMALL + OTHERS])
def test_a_capture_holds_all_launches_and_no_call_that_waits(zoo_model, name, tmp_path):
    plans = run_pipeline(Options(zoo_model(name), target=TARGET, stop_after="plan",
                                 name="net")).plans
    bundle = render_plans(plans, INFO, kernel_files={"net_kernels_1.cu": ""})
    for file, text in bundle.files.items():
        if not file.endswith("_weights.bin"):
            (tmp_path / file).write_bytes(text)
    text, launchers = stubs("net", bundle.files["net_internal.h"].decode())
    (tmp_path / "net_kernels_1.cu").write_text(text)
    library = Library(tmp_path, read_manifest(tmp_path), build(tmp_path, simulate=True))

    class Host:
        _ffi, _library = library.ffi, library
    twins, ffi = Twins(Host), library.ffi
    context, graph = ffi.new("net_context *"), ffi.new("net_graph *")
    arena, stream = twins.made("cudaMalloc", 64), twins.stream()
    any_ = ffi.cast("void *", 1 << 20)  # tensors that nothing reads
    assert library.function("init")(context, any_, arena, SIZE, stream) == 0
    info = library.function("info")()
    syms = ffi.new("int64_t[]", [s.lo for s in info.symbols[0:info.symbol_count]] or 1)
    ins, outs = (ffi.new("void *[]", [any_] * (n + 1)) for n in (info.input_count,
                                                                info.output_count))
    assert library.function("graph_create")(graph, context) == 0, library.detail(context)
    status = library.function("graph_launch")(graph, syms, ins, outs, stream)
    assert status == 0, library.detail(context)
    assert twins.aotc_cusim_refused_calls() == 0 and graph.captures == 1
    if len(plans.alternatives) == 1:
        assert twins.aotc_cusim_captured() == launchers == len(plans.main.plan.kernels)
    else:
        assert 0 < twins.aotc_cusim_captured() <= launchers
