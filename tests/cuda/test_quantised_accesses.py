"""Quantised convolutional nets on GPUs: what their products read and store are no single bytes."""

import warnings

import numpy as np
import onnx
import pytest
from sass import compile_kernels, why_no_sass

import aotc
from aotc.ir.access import is_unit
from aotc.ir.expr import loads
from aotc.ir.kernel.plan_stages import Contract
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.target import get_target
from benchmarks.exported.build import Writer
from benchmarks.quantised import quantise

TARGET = get_target("cuda:sm_80")


def depthwise(g, x, c):
    return g.op("Relu", g.op("Conv", x, g.weight(c, 1, 3, 3), group=c, pads=[1] * 4))


def mobile(g, x):
    """Expansion, depthwise convolution and projection, with a residual."""
    y = g.conv(depthwise(g, g.op("Relu", g.conv(x, 32, 96, 1)), 96), 96, 24, 1)
    z = g.conv(depthwise(g, g.op("Relu", g.conv(y, 24, 144, 1)), 144), 144, 24, 1)
    return g.op("Relu", g.conv(g.op("Add", y, z), 24, 48, 3))


def residual(g, x):
    """A bottleneck and its residual."""
    y = g.op("Relu", g.conv(x, 32, 24, 1))
    y = g.conv(g.op("Relu", g.conv(y, 24, 24, 3)), 24, 64, 1)
    return g.op("Relu", g.conv(g.op("Relu", g.op("Add", y, g.conv(x, 32, 64, 1))), 64, 32, 3))


BLOCKS = {"mobile": mobile, "residual": residual}


@pytest.fixture(scope="module", params=BLOCKS)
def net(request, tmp_path_factory):
    """A file with a block between a pool and a pool, quantised."""
    folder, g = tmp_path_factory.mktemp("q"), Writer(request.param, 1)
    x = g.op("MaxPool", g.input("x", [1, 32, 28, 28]), kernel_shape=[2, 2], strides=[2, 2])
    y = BLOCKS[request.param](g, x)
    onnx.save(g.model(g.op("MaxPool", y, kernel_shape=[2, 2])), folder / "f32.onnx")
    sets = [{"x": np.random.default_rng(n).standard_normal((1, 32, 28, 28)).astype(np.float32)}
            for n in range(2)]
    quantise(folder / "f32.onnx", "qdq", folder / "q.onnx", sets)
    return folder / "q.onnx"


def products(net):
    """[(kernel, Contract on a tensor core's row of bytes)] of a net, which are all of its sums."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = run_pipeline(Options(source=net, target=TARGET.name, name="net",
                                    stop_after="plan")).plan
    found = [(k, s) for k in plan.kernels for s in k.lowered.stages if isinstance(s, Contract)]
    assert len(found) >= 4 and all(TARGET.product_row(s.row).by_columns for _, s in found)
    return found


def test_products_copy_and_store_several_bytes(net):
    """Operands come by copies; bytes of results, and of residuals, eight at a time."""
    for kernel, c in products(net):
        said = c.writing.said
        assert said["a_fetch"] == said["b_fetch"] == "copy", kernel
        assert said["a_width"] >= 8 and said["b_width"] >= 8, kernel
        assert c.wide is not None and set(c.wide.writes) == {p.buffer for p in c.puts}, kernel
        beside = {x for p in c.puts for x in loads(p.value) if is_unit(x.index[0], c.n.axis)}
        assert beside == set(c.wide.reads), kernel
        assert c.wide.width == (8 if {p.value.dtype for p in c.puts} <= {"u8", "i8"} else 4)


@pytest.mark.skipif(bool(why_no_sass()), reason=why_no_sass())
def test_no_instruction_moves_a_single_byte(net, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        aotc.compile(net, tmp_path / "b", target=TARGET.name, name="net")
    made = compile_kernels(tmp_path / "b", TARGET.cflags)
    for kernel, c in products(net):
        code = made[kernel.function or kernel.name].code
        single = {op: code.count(op) for op in ("LDG.U8", "LDG.S8", "STG.U8", "STG.S8")}
        assert not any(single.values()), (kernel.name, single)
        stored = code.count("STG.64") if c.wide.width == 8 else code.count("STG.128")
        assert stored and stored == code.count("STG") and code.count("IMMA"), kernel.name
