"""Inputs and outputs of models in f16 and bf16 are read and stored as what they are: no kernel
converts types alone."""

import warnings

import ml_dtypes
import numpy as np
import pytest
from attention_model import attention
from cusim_build import needs_cxx
from half_models import halved
from onnx import TensorProto, helper
from small_models import conv_stack, fire_stack, make_model, u_net

import aotc
from aotc import as_asked
from aotc.as_asked import with_half_ends
from aotc.ir.dtypes import BF16, HALF
from aotc.ir.expr import Cast, Load
from aotc.ir.numbers.narrow import rounded_to_bits, stored_half, upper_half
from aotc.ir.program import Compute
from aotc.options import Options
from aotc.passes.precision.half_ends import keep_half_ends
from aotc.passes.rewrites import apply_schedule_rewrites
from aotc.pipeline import run_pipeline
from aotc.target import get_target
from benchmarks.gpu.nets import NETS, Net

MODELS = {"attention": lambda: attention(40), "conv stack": conv_stack, "u-net": u_net,
          "fire stack": lambda: fire_stack(9, (16, 32), 32)}
BLOCKS = ("bert_base", "resnet50", "llama_layer", "gpt2_token")
TYPES = {HALF: (TensorProto.FLOAT16, np.float16), BF16: (TensorProto.BFLOAT16, ml_dtypes.bfloat16)}
EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -6e4, 1e-3, 7.0], np.float32)
node = helper.make_node


def until(stage, model, target="cuda:sm_80", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_pipeline(Options(source=model, target=target, name="net", stop_after=stage,
                                    **options))


def number(e):
    """What is left of an expression without conversions between floats."""
    while True:
        inner = stored_half(e) or upper_half(e) or rounded_to_bits(e)
        if inner is None and isinstance(e, Cast) and e.dtype in (HALF, BF16):
            inner = e.x
        if inner is None:
            return e
        e = inner


def conversions(work):
    """Kernels that do nothing but convert the elements of a tensor."""
    program = apply_schedule_rewrites(work.program, work.schedule)

    def converts(c):
        return isinstance(c, Compute) and c.fold == "none" and isinstance(
            number(c.body), Load) and number(c.body) is not c.body
    return [g.name for g in work.schedule.groups
            if all(converts(program.producer[c]) for c in g.computes)]


def made(name):
    """(a model, options to compile it with)."""
    if name in MODELS:
        return MODELS[name](), {}
    return NETS[name](1, True), Net(name, 1, small=True).options


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", [*MODELS, *BLOCKS])
def test_no_kernel_only_converts(name, dtype):
    model, options = made(name)
    work = until("plan", halved(model, dtype), **options)
    assert conversions(work) == []
    ends = {p.onnx or p.name: p.dtype for p in work.plan.places if p.storage in ("input", "output")}
    floats = [t.name for t in (*model.graph.input, *model.graph.output)
              if t.type.tensor_type.elem_type == TensorProto.FLOAT]
    assert floats and {ends[n] for n in floats} == {dtype}


@pytest.mark.parametrize("dtype", TYPES)
def test_the_check_finds_what_converts(dtype, monkeypatch):
    monkeypatch.setattr(as_asked, "with_half_ends", lambda program, target: program)
    assert conversions(until("schedule", halved(attention(40), dtype)))


@pytest.mark.parametrize("target", ["x86-64-v4-amx", "aarch64", "c", "dsa:stcp920"])
def test_other_targets_keep_their_programs(target):
    for dtype in TYPES:
        work = until("inline", halved(attention(40), dtype), target)
        assert with_half_ends(work.program, get_target(target)) is work.program


def ends(nodes, shapes, dtype, outputs=("y",), **tensors):
    """A model of inputs x, .. of ``shapes``."""
    kind, numbers = TYPES[dtype]
    return make_model(nodes, {n: (kind, s) for n, s in shapes.items()},
                      dict.fromkeys(outputs, (kind, None)),
                      {n: a.astype(numbers) for n, a in tensors.items()})


def run(model, feeds, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bundle = aotc.compile(model, folder, target="cuda:sm_80", name="net")
    return bundle, bundle.load(simulate=True).run(feeds)


@needs_cxx
@pytest.mark.parametrize("dtype", TYPES)
def test_edges_of_the_types(dtype, tmp_path):
    """NaN, infinities, zeros and what rounding carries to infinity, of any number of elements, in
    and out; the caller's types stay."""
    numbers = TYPES[dtype][1]
    x = np.resize(EDGES, (3, 37)).astype(numbers)
    w = np.eye(37, 40, dtype=np.float32)
    bundle, got = run(ends([node("Add", ["x", "x"], ["y"]), node("MatMul", ["z", "w"], ["p"])], {
        "x": [3, 37], "z": [17, 37]}, dtype, ("y", "p"), w=w), {"x": x, "z": np.resize(
            EDGES[3:], (17, 37)).astype(numbers)}, tmp_path / "b")
    with np.errstate(all="ignore"):
        want = (x.astype(np.float32) * 2).astype(numbers)
    assert got["y"].dtype == numbers
    np.testing.assert_array_equal(got["y"].astype("f4"), want.astype("f4"))
    np.testing.assert_array_equal(got["p"][:, :37].astype("f4"), np.resize(
        EDGES[3:], (17, 37)).astype(numbers).astype("f4"))
    stored = [t["dtype"] for t in (*bundle.manifest["inputs"], *bundle.manifest["outputs"])]
    assert set(stored) == {"f16" if dtype == HALF else "u16"}


@needs_cxx
def test_bits_that_are_moved_stay_bits(tmp_path):
    """Of a bf16 input that is computed with and given back as it is."""
    model = ends([node("Add", ["x", "x"], ["y"]), node("Transpose", ["x"], ["t"])],
                 {"x": [5, 9]}, BF16, ("y", "t"))
    work = until("inline", model)
    assert work.program.dtype("x") == "u16" and work.program.dtype("y") == BF16
    x = np.resize(EDGES, (5, 9)).astype(ml_dtypes.bfloat16)
    _, got = run(model, {"x": x}, tmp_path / "b")
    assert np.array_equal(got["t"].view(np.uint16), x.T.view(np.uint16))


def test_a_transposed_input_is_copied_as_it_is_converted():
    """What also moves elements is no conversion alone, and stays a kernel where it was one."""
    program = until("inline", ends([node("Transpose", ["x"], ["t"]), node(
        "MatMul", ["t", "w"], ["y"])], {"x": [24, 40]}, HALF, w=np.ones((24, 32)))).program
    assert keep_half_ends(program) == program
