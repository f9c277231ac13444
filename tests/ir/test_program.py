"""What is wrong with a Program is said, and what folds start from."""

from dataclasses import replace

import numpy as np
import pytest

from aotc.ir.dtypes import DTYPES, INDEX
from aotc.ir.expr import Axis, Const, Load, Var, Where, compare
from aotc.ir.program import Buffer, Compute, Fold, Program, neutral_value
from aotc.oracle.check_program import check_program


def argmax():
    """The place of the largest of eight."""
    r = Axis("r", Const(8))
    x, best, arg = Var("x", "f32"), Var("best", "f32"), Var("arg", INDEX)
    wins = compare("gt", x, best)
    fold = Fold((("best", "f32"), ("arg", INDEX)), (neutral_value("max", "f32"), Const(0)),
                (Where(wins, x, best), Where(wins, r, arg)))
    step = Compute(("best", "arg"), (), (r,), fold, Load("x", (r,), "f32"))
    buffers = {b.name: b for b in (Buffer("x", (Const(8),), "f32", "input"),
                                   Buffer("best", (), "f32"), Buffer("arg", (), INDEX))}
    return Program("p", ("x",), ("best", "arg"), buffers, {}, (step,))


def test_a_fold_uses_its_own_axes_only():
    program = argmax()
    assert check_program(program) == []
    step = program.steps[0]
    other = Axis("q", Const(8))
    stray = replace(step, raxes=(other,), body=Load("x", (other,), "f32"))
    assert check_program(replace(program, steps=(stray,))) == [
        "best: its fold uses a stray r"]


@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "u8", "i32", "u64", "i64", "bool"])
def test_neutral_elements_change_nothing(dtype):
    kind = DTYPES[dtype].numpy
    info = np.finfo(kind) if kind.kind == "f" else np.iinfo("u1" if kind.kind == "b" else kind)
    values = np.array([0, 1, info.min, info.max], "f8" if kind.kind == "f" else object)
    values = np.array([v for v in values if kind.kind != "b" or v in (0, 1)], kind)
    for fold, join in (("max", np.maximum), ("min", np.minimum), ("sum", np.add),
                       ("prod", np.multiply)):
        start = kind.type(neutral_value(fold, dtype).value)
        assert np.array_equal(join(start, values), values), (fold, dtype)
