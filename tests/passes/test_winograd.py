"""Winograd forms as rewritings of Programs: exact matrices, recognition, equal values."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from te_programs import Maker, ax, conv2d, matmul, padded

from aotc.errors import ScheduleError
from aotc.ir.expr import Axis, Sym
from aotc.oracle.check_program import check_program
from aotc.oracle.evaluate import evaluate
from aotc.passes.rewrites import apply_rewrites
from aotc.passes.winograd import (
    MAX_POINTS,
    TILES,
    exact_forms,
    find_convolution,
    rewrite,
    stages_of,
)

FORMS = [(m, r) for m, r in product(TILES, (2, 3, 4, 5)) if m + r - 1 <= MAX_POINTS]


def image(height, width, pad=1, kernel=3, batch=1, stride=1, dilation=1, seed=0):
    """conv "c" of x[batch, 5, height, width] with 4 columns."""
    m = Maker()
    m.input("x", batch, 5, height, width)
    rng = np.random.default_rng(seed)
    w = m.const("w", rng.standard_normal((4, 5, kernel, kernel)).astype(np.float32))
    conv2d(m, "c", "x", w, stride, pad, dilation)
    return m.done("c")


def volume(depth, height, width, pad, stride=1):
    """conv "c" of x[1, 3, depth, height, width]; ``stride`` along the depth."""
    m = Maker()
    m.input("x", 1, 3, depth, height, width)
    m.const("w", np.random.default_rng(1).standard_normal((4, 3, 3, 3, 3)).astype(np.float32))
    size = [(depth + 2 * pad - 3) // stride + 1, height + 2 * pad - 2, width + 2 * pad - 2]
    n, q, c = ax("n", 1), ax("oc", 4), ax("ic", 3)
    o = [ax(f"o{a}", s) for a, s in zip("dhw", size)]
    k = [ax(f"k{a}", 3) for a in "dhw"]
    index = (n, c, o[0] * stride + k[0] - pad, o[1] + k[1] - pad, o[2] + k[2] - pad)
    limits = {2: depth, 3: height, 4: width} if pad else {}
    m.step("c", (n, q, *o), padded(m, "x", index, limits) * m.ref("w", q, c, *k), (c, *k), "sum")
    return m.done("c")


def line(length, kernel=3):
    """1-D conv "c" without padding."""
    m = Maker()
    m.input("x", 2, 3, length)
    m.const("w", np.random.default_rng(2).standard_normal((4, 3, kernel)).astype(np.float32))
    n, q, c, k = ax("n", 2), ax("oc", 4), ax("ic", 3), ax("k", kernel)
    o = ax("o", length - kernel + 1)
    m.step("c", (n, q, o), m.ref("x", n, c, o + k) * m.ref("w", q, c, k), (c, k), "sum")
    return m.done("c")


@pytest.mark.parametrize("m, r", FORMS)
def test_matrices_are_exact(m, r):
    at, g, bt = exact_forms(m, r)
    n = m + r - 1
    for i, k, l in product(range(m), range(r), range(n)):
        total = sum(at[i][j] * g[j][k] * bt[j][l] for j in range(n))
        assert total == (l == i + k)


def same_values(program, tile, syms=None, seed=3):
    new = apply_rewrites(program, (("winograd", "c", tile),))
    assert check_program(new) == []
    shape = [syms[d.name] if isinstance(d, Sym) else d.value for d in program.shape("x")]
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    want, got = (evaluate(p, {"x": x})["c"] for p in (program, new))
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()
    return new


@pytest.mark.parametrize("m", TILES)
@pytest.mark.parametrize("size", [(6, 8), (7, 7), (9, 5), (12, 12), (3, 4)])
@pytest.mark.parametrize("pad", [0, 1, 2])
def test_images(size, pad, m):
    for axes in (("oh", "ow"), ("oh",), ("ow",)):
        same_values(image(*size, pad), dict.fromkeys(axes, m))
    same_values(image(*size, pad), {"oh": 2, "ow": m})


@pytest.mark.parametrize("pad", [0, 1])
def test_volumes(pad):
    p = volume(5, 7, 6, pad)
    for tile in ({"oh": 4, "ow": 4}, {"od": 2, "oh": 2, "ow": 2}, {"od": 2}, {"ow": 6}):
        same_values(p, tile)
    assert set(find_convolution(p, p.producer["c"]).windows) == {"od", "oh", "ow"}
    same_values(volume(7, 6, 6, pad, stride=2), {"oh": 4, "ow": 2})  # the depth stays a sum


def test_lines_and_wide_kernels():
    for m in (2, 4):
        same_values(line(11, 5), {"o": m})
        same_values(image(9, 8, 2, kernel=5), {"oh": m, "ow": m})
    same_values(line(10, 2), {"o": 6})


def test_symbolic_batch():
    p = image(6, 6, batch=Sym("b", 1, 9))
    same_values(p, {"oh": 4, "ow": 4}, {"b": 3})


def test_the_rewritten_program_is_one_contraction_between_two_transforms():
    new = same_values(image(6, 6), {"oh": 4, "ow": 4})
    v, m, y = stages_of(new, "c")
    assert (v.out, m.out, y.out) == ("c_v", "c_m", "c")
    assert [a.extent.value for a in v.axes] == [6, 6, 1, 2, 2, 5]
    assert [r.name for r in m.raxes] == ["ic"] and "w" not in new.consts
    assert apply_rewrites(new, (("winograd", "c", {"oh": 4, "ow": 4}),)) is new


@pytest.mark.parametrize("change", ["stride", "dilation", "data", "groups", "fold", "pointwise"])
def test_what_is_no_such_convolution(change):
    if change in ("stride", "dilation"):
        p = image(9, 9, **{change: 2})
    elif change == "data":  # weights that are computed
        m = Maker()
        m.input("x", 1, 5, 8, 8)
        m.input("w", 4, 5, 3, 3)
        conv2d(m, "c", "x", "w", 1, 1)
        p = m.done("c")
    elif change == "groups":
        m = Maker()
        m.input("x", 1, 4, 8, 8)
        conv2d(m, "c", "x", m.const("w", np.ones((4, 2, 3, 3), np.float32)), 1, 1, groups=2)
        p = m.done("c")
    elif change == "fold":
        p = image(8, 8)
        c = p.steps[0]
        p = replace(p, steps=(replace(c, fold="max"),))
    else:
        m = Maker()
        m.input("x", 5, 6)
        matmul(m, "c", "x", m.const("w", np.ones((6, 7), np.float32)))
        p = m.done("c")
    assert find_convolution(p, p.producer["c"]) is None
    with pytest.raises(ScheduleError, match="winograd of c"):
        apply_rewrites(p, (("winograd", "c", {"oh": 2}),))
    with pytest.raises(ScheduleError, match="no convolution with constant weights"):
        rewrite(p, "c", {"oh": 2})


@pytest.mark.parametrize("item, words", [
    (("fast", "c", {"oh": 2}), "rule 'fast'; choose from winograd"),
    (("winograd", "nothing", {"oh": 2}), "no such compute"),
    (("winograd", "c", {"n": 2}), "axis 'n'; choose from oh, ow"),
    (("winograd", "c", {"oh": 3}), "3 outputs per tile along oh; choose from 2, 4, 6"),
    (("winograd", "c", {"oh": True}), "choose from 2, 4, 6"),
    (("winograd", "c", {}), "outputs per tile"), (("winograd", "c", 4), "an item is"),
    (("winograd", "c"), "an item is"), ("winograd", "an item is")])
def test_faults_name_the_legal_choices(item, words):
    with pytest.raises(ScheduleError, match=words):
        apply_rewrites(image(6, 6), (item,))


def test_two_of_one_compute_are_refused():
    with pytest.raises(ScheduleError, match="no convolution"):
        apply_rewrites(image(6, 6), (("winograd", "c", {"oh": 2, "ow": 2}),) * 2)


def test_axes_that_are_windows_are_named_by_the_output():
    found = find_convolution(p := image(6, 6), p.producer["c"])
    assert found.channel.name == "ic" and found.columns.name == "oc"
    assert [w.shift for w in found.windows.values()] == [-1, -1]
    assert all(isinstance(w.out, Axis) for w in found.windows.values())


@pytest.mark.parametrize("rule, parameters", [
    ("narrow", {"dtype": "bf16", "stored": "bf16"}), ("halve", {"stored": "f16"}),
    ("group", {"bits": 8, "size": 32, "stored": "bytes"}), ("integer_rows", {"bits": 8})])
def test_stages_of_a_form_are_not_rounded(rule, parameters):
    """The last transform would magnify it, whichever stage it is, and whether the form is asked for
    with it or is there already."""
    form = ("winograd", "c", {"oh": 4, "ow": 4})
    for stage in ("c_v", "c_m", "c"):
        item = (rule, stage, parameters)
        for start, rewrites in ((image(9, 9), (form, item)),
                                (apply_rewrites(image(9, 9), (form,)), (form, item))):
            with pytest.raises(ScheduleError, match=f"{rule} {stage}: a stage of the Winograd form "
                               "of c, which is f32; remove this item, or the form's and name c"):
                apply_rewrites(start, rewrites)
