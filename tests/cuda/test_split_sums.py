"""Products of few tiles have their sums in parts, whatever they multiply: enough blocks for all
multiprocessors, rounded operands as without parts, integers to the bit."""

from dataclasses import replace

import numpy as np
import pytest
from cusim_build import needs_cxx
from harness import Case, build_cases
from onnx import TensorProto, helper
from small_models import make_model
from te_programs import Maker, ax, relu

from aotc.ir.dtypes import BF16, HALF, TF32
from aotc.ir.expr import Const
from aotc.ir.kernel.plan_stages import Contract
from aotc.options import Options
from aotc.passes.rewrites import apply_rewrites
from aotc.passes.sums.split_k import RULE
from aotc.pipeline import run_pipeline
from aotc.sched import check_schedule, decide, lower
from aotc.target import get_target

TARGET = get_target("cuda:sm_80")
rng = np.random.default_rng
SIGNED = "i8"
KINDS = (HALF, BF16, TF32, "u8", SIGNED)
SHAPES = [(8, 4096, 4096), (49, 512, 4608), (64, 256, 8192), (20, 512, 4128)]


def floats(m, n, k):
    """y = relu(x @ w): x f32[m, k], w f32[k, n]."""
    p, i, j, r = Maker(), ax("i", m), ax("j", n), ax("k", k)
    p.input("x", m, k)
    p.const("w", rng(n).standard_normal((k, n)).astype(np.float32))
    p.step("s", (i, j), p.ref("x", i, r) * p.ref("w", r, j), (r,), "sum")
    p.step("y", (i, j), relu(p.ref("s", i, j)))
    return p.done("y")


def integers(m, n, k, dtype="u8"):
    """y, bytes of a dtype, of bytes x with a zero point by s8 weights; scaled and rounded."""
    kind = np.int8 if dtype == SIGNED else np.uint8
    zero = np.array(-9 if dtype == SIGNED else 131, kind)
    tensors = {"w": rng(n).integers(-127, 128, (k, n)).astype(np.int8), "z": zero,
               "s": np.float32(0.02), "t": np.float32(0.01), "none": np.int8(0),
               "u": np.float32(0.02 * k ** 0.5)}
    element = TensorProto.INT8 if dtype == SIGNED else TensorProto.UINT8
    return run_pipeline(Options(source=make_model([helper.make_node(
        "QLinearMatMul", ["x", "s", "z", "w", "t", "none", "u", "z"], ["y"])], {
            "x": (element, [m, k])}, {"y": (element, [m, n])}, tensors),
        target=TARGET.name, name="net", stop_after="inline")).program


def made(kind, shape):
    return floats(*shape) if kind in (HALF, BF16, TF32) else integers(*shape, kind)


def convolution(channels=256):
    """y i32 of a convolution of u8 with a zero point, which its padding reads, too."""
    tensors = {"v": rng(3).integers(-127, 128, (32, channels, 3, 3)).astype(np.int8),
               "zero": np.uint8(77), "none": np.int8(0)}
    return run_pipeline(Options(source=make_model([helper.make_node(
        "ConvInteger", ["x", "v", "zero"], ["y"], pads=[1] * 4)], {
            "x": (TensorProto.UINT8, [1, channels, 7, 7])}, {
                "y": (TensorProto.INT32, [1, 32, 7, 7])}, tensors),
        target=TARGET.name, name="net", stop_after="inline")).program


def asked(kind):
    """The precision that a kind of operands is asked for by."""
    return kind if kind in (HALF, BF16, TF32) else "f32"


def rounded(program, precision):
    """The Program whose operands are rounded, with sums that are whole."""
    rewrites = tuple(r for r in decide(program, TARGET, precision=precision).rewrites
                     if r[0] != RULE)
    return replace(apply_rewrites(program, rewrites), rewrites=())


def parts_of(schedule):
    return {c: p["parts"] for rule, c, p in schedule.rewrites if rule == RULE}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_every_multiprocessor_has_a_block(kind, shape):
    program = made(kind, shape)
    schedule = decide(program, TARGET, precision=asked(kind))
    done = apply_rewrites(program, schedule.rewrites)
    assert check_schedule(program, schedule, TARGET) == []
    (items,) = {k.tiles for k in lower(done, schedule, TARGET).kernels if any(
        isinstance(s, Contract) for s in k.lowered.stages)}
    assert isinstance(items, Const) and items.value >= TARGET.machine.workers


@pytest.mark.parametrize("kind", KINDS)
def test_products_of_tiles_enough_stay_whole(kind):
    for shape in ((2048, 2048, 1024), (40, 48, 96)):
        assert parts_of(decide(made(kind, shape), TARGET, precision=asked(kind))) == {}


@pytest.mark.parametrize("target", ["x86-64-v4-amx", "c", "dsa:stcp920"])
def test_targets_of_other_work_items_get_no_parts(target):
    for kind in (BF16, "u8"):
        program = made(kind, (49, 128, 2304))
        assert parts_of(decide(program, get_target(target), precision=asked(kind))) == {}


# a sum of each kind whose parts are no whole steps, or begin at no whole fetch, of a row
RAGGED = {(HALF, (33, 70, 1200)): 12, (BF16, (8, 136, 1036)): 7, (TF32, (20, 70, 990)): 5,
          ("u8", (33, 70, 1200)): 3, (SIGNED, (50, 40, 1036)): 7, ("u8", (8, 70, 1040)): 5,
          (HALF, (5, 40, 1001)): 7}


@needs_cxx
def test_parts_add_up_in_the_simulator(tmp_path):
    """To what the evaluator makes of whole sums of the same rounded operands; integers equal it."""
    cases = []
    for (kind, shape), parts in RAGGED.items():
        program = rounded(made(kind, shape), asked(kind))
        (name,) = (s.out for s in program.steps if s.fold == "sum")
        cases.append(Case(f"{kind} {shape}", program, decide(
            program, TARGET, winograd=((RULE, name, {"parts": parts}),)),
            0 if asked(kind) == "f32" else 2e-5))
    for program in (convolution(), made(HALF, (49, 40, 2304))):
        schedule = decide(program, TARGET)
        assert parts_of(schedule)
        cases.append(Case("chosen", program, schedule, 2e-6))
    build_cases(cases, TARGET, tmp_path / "b").check(1)

