"""Access rewriting: a Program with its buffers stored in layouts computes the same."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from te_programs import Maker, ax
from te_random import random_program

from aotc.errors import ScheduleError
from aotc.ir.expr import Axis, Binary, Const, Where, all_hold, compare, show, walk
from aotc.ir.layout import Fuse, Layout, Pad, Reorder, Split, Unfold, unfold_for_tile
from aotc.ir.program import LibCall, static_shape
from aotc.oracle.check_program import check_program
from aotc.oracle.evaluate import evaluate, input_arrays
from aotc.passes.layout_rule import layout_rewrite
from aotc.passes.relayout import relayout
from aotc.passes.rewrites import apply_rewrites
from aotc.samples import extents, random_inputs

BLOCKED = Layout((Split(1, (-1, 4)), Reorder((0, 1, 3, 4, 2))))


def random_layout(shape, rng, expand=True):
    """Up to four primitives, each legal for the (possibly symbolic) shape that it meets."""
    prims, shape = [], list(shape)
    for _ in range(rng.randint(0, 4) if shape else 0):
        d = rng.randrange(len(shape))
        n = shape[d].value if isinstance(shape[d], Const) else None
        kinds = ["reorder", "fuse"] + (["split"] if n else []) + (
            ["pad"] if expand else []) + (["unfold"] if n and expand else [])
        kind = rng.choice(kinds)
        if kind == "split":
            p = Split(d, (-1, rng.choice([f for f in range(1, n + 1) if n % f == 0])))
        elif kind == "reorder":
            p = Reorder(tuple(rng.sample(range(len(shape)), len(shape))))
        elif kind == "fuse":
            p = Fuse(d, rng.randint(1, len(shape) - d))
        elif kind == "pad":
            p = Pad(d, rng.randint(0, 2), rng.randint(0, 3))
        else:
            size = rng.randint(1, n)
            p = Unfold(d, size, rng.randint(1, size))
        shape = p.shape(shape)
        prims.append(p)
    return Layout(tuple(prims))


def relaid(program, rng):
    """(program, {buffer: Layout}) with a random layout for about half of the buffers that may have
    one."""
    layouts, steps = {}, program.producer
    for b, buffer in program.buffers.items():
        step = steps.get(b)
        near = (step,) + program.consumers.get(b, ())
        if rng.random() < 0.4 or any(isinstance(s, LibCall) for s in near) or (
                step is not None and len(step.outs) > 1) or not all(
                isinstance(d, Const) or d in program.syms for d in buffer.shape):
            continue
        layout = random_layout(buffer.shape, rng, step is None or step.fold in ("none", "sum"))
        try:
            relayout(program, {b: layout})
        except ScheduleError as err:
            assert "slide" in str(err) or "windows of" in str(err) or "before dim" in str(err)
            continue
        layouts[b] = layout
    return relayout(program, layouts), layouts


def outputs_of(program, layouts, feeds, logical):
    """Outputs of a relaid Program on logical feeds, in logical form."""
    arrays = input_arrays(logical, feeds)
    stored = {b: layouts[b].apply(x) if b in layouts else x for b, x in arrays.items()}
    out, plain = evaluate(program, stored), evaluate(logical, feeds)
    for b, x in out.items():
        got = layouts[b].unapply(x, plain[b].shape) if b in layouts else x
        np.testing.assert_allclose(got, plain[b], rtol=1e-5, atol=1e-5, err_msg=b)
    return out


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 100000))
def test_random_programs_compute_the_same_in_random_layouts(seed):
    program = random_program(seed)
    new, layouts = relaid(program, random.Random(seed))
    assert check_program(new) == []
    if program.syms and any(d in program.syms for b in layouts for d in program.shape(b)):
        return  # shapes of the caller's arrays no longer say the symbol
    feeds = random_inputs(program, extents(program)[0])
    outputs_of(new, layouts, feeds, program)


def conv(channels, out, size, kernel, step=1, dilation=1, pad=0):
    """x -> sum conv(x) + relu, with square windows."""
    m = Maker("conv")
    points = (size + 2 * pad - dilation * (kernel - 1) - 1) // step + 1
    m.input("x", 2, channels, size, size)
    rng = np.random.default_rng(size + kernel)
    m.const("k", rng.standard_normal((out, channels, kernel, kernel)).astype(np.float32))
    n, o, h, w = (ax(a, e) for a, e in zip("nohw", (2, out, points, points)))
    i, p, q = ax("i", channels), ax("p", kernel), ax("q", kernel)
    y, z = h * step + p * dilation - pad, w * step + q * dilation - pad
    load = m.ref("x", n, i, y, z)
    if pad:
        inside = all_hold([compare("ge", y, 0), compare("lt", y, size),
                           compare("ge", z, 0), compare("lt", z, size)])
        load = Where(inside, load, Const(0, "f32"))
    m.step("s", (n, o, h, w), load * m.ref("k", o, i, p, q), (i, p, q), "sum")
    m.pointwise("y", "s", lambda e, _: e + e)
    return m.done("y")


def check(program, layouts):
    new = relayout(program, layouts)
    assert check_program(new) == []
    feeds = random_inputs(program, extents(program)[0])
    outputs_of(new, layouts, feeds, program)
    return new


def divisions(program):
    return [n for s in program.steps for n in walk(s.body)
            if isinstance(n, Binary) and n.op in ("floordiv", "mod")]


def test_blocked_convolution_has_the_indices_one_would_write():
    p = conv(8, 12, 7, 3)
    new = check(p, {"x": BLOCKED, "s": BLOCKED, "y": BLOCKED})
    body = show(new.producer["s"].body)
    assert body == "x[n, i_0, h + p, q + w, i_1] * k[o_0, o_1, i_0, i_1, p, q]"
    assert not divisions(new)
    assert show(new.producer["y"].body) == "s[i0, i1_0, i2, i3, i1_1] + s[i0, i1_0, i2, i3, i1_1]"
    assert static_shape(new.shape("y")) == (2, 3, 5, 5, 4)


@pytest.mark.parametrize("step,kernel,dilation,pad", [
    (1, 3, 1, 0), (1, 3, 1, 1), (2, 3, 1, 1), (2, 7, 1, 3), (1, 3, 2, 2), (3, 2, 1, 0),
    (2, 1, 1, 0)])
def test_overlapped_tiles_compute_the_same(step, kernel, dilation, pad):
    """The C2D template: outputs N H/h W/w O/o h w o, inputs unfolded so that tiles meet 1:1."""
    size = 26
    p = conv(4, 8, size, kernel, step, dilation, pad)
    points = static_shape(p.shape("y"))[2]
    tile = max(t for t in (2, 3, 4, 5) if points % t == 0) if any(
        points % t == 0 for t in (2, 3, 4, 5)) else 1
    inner = Layout((Split(1, (-1, 4)), Split(3, (-1, tile)), Split(5, (-1, tile)),
                    Reorder((0, 3, 5, 1, 4, 6, 2))))
    prims = [Pad(d, pad, pad) for d in (2, 3)] if pad else []
    prims += [unfold_for_tile(2, tile, kernel, step, dilation),
              unfold_for_tile(4, tile, kernel, step, dilation), Reorder((0, 2, 4, 3, 5, 1))]
    new = check(p, {"x": Layout(tuple(prims)), "s": inner, "y": inner})
    assert not divisions(new)  # the tile of the input is the tile of the output
    assert "where" not in show(new.producer["s"].body)  # padding is in memory


def test_ragged_channels_are_padded_and_hold_zeros():
    p = conv(6, 10, 6, 3)
    ragged = Layout((Pad(1, 0, 2), Split(1, (-1, 4)), Reorder((0, 1, 3, 4, 2))))
    new = check(p, {"x": ragged, "s": ragged, "y": ragged})
    assert static_shape(new.shape("s")) == (2, 3, 4, 4, 4)
    feeds = random_inputs(p, extents(p)[0])
    out = evaluate(new, {"x": ragged.apply(feeds["x"])})["y"]
    assert not out[:, 2, :, :, 2:].any()


def test_windows_that_do_not_fit_their_tiles_are_refused():
    p = conv(2, 2, 20, 3)
    with pytest.raises(ScheduleError, match="layout of x, read by s.*need stride 4 for size 6"):
        relayout(p, {"x": Layout((Unfold(2, 6, 3),))})
    relayout(p, {"x": Layout((Unfold(2, 6, 4),))})
    with pytest.raises(ScheduleError, match=r"reads up to 1 before.*Pad\(dim=2, before=1"):
        relayout(conv(2, 2, 20, 3, pad=1), {"x": Layout((Unfold(2, 6, 4),))})


def test_what_cannot_be_laid_out_says_why():
    m = Maker()
    m.input("x", 4, 6)
    i, j = ax("i", 4), ax("j", 6)
    m.step("top", (i,), m.ref("x", i, j), (j,), "max")
    p = m.done("top")
    with pytest.raises(ScheduleError, match="empty value of its fold"):
        relayout(p, {"top": Layout((Pad(0, 0, 2),))})
    with pytest.raises(ScheduleError, match="no buffer 'z'"):
        relayout(p, {"z": BLOCKED})
    with pytest.raises(ScheduleError, match="layout of x: .*multiply to 6"):
        relayout(p, {"x": Layout((Split(1, (2, 4)),))})


# ---------------------------------------------------------------- as a rewrite of a Schedule

def applied(program, *items):
    return apply_rewrites(program, items)


@pytest.mark.parametrize("name,copy", [("x", False), ("s", False), ("s", True), ("y", False),
                                       ("k", False)])
def test_the_rule_keeps_inputs_and_outputs(name, copy):
    p = conv(4, 8, 9, 3)
    layout = BLOCKED if name != "k" else Layout((Reorder((2, 3, 1, 0)),))
    new = applied(p, layout_rewrite(name, layout, copy))
    assert check_program(new) == []
    feeds = random_inputs(p, extents(p)[0])
    np.testing.assert_allclose(evaluate(new, feeds)["y"], evaluate(p, feeds)["y"], rtol=1e-5)
    assert ("s_stored" in new.buffers) == (name == "s" and copy)
    stored = {"x": "x_stored", "y": "y_stored"}.get(name, f"{name}_stored" if copy else name)
    assert len(new.shape(stored)) == (4 if name == "k" else 5)


@pytest.mark.parametrize("parameters,words", [
    ({}, "primitives and copy"), ({"primitives": (), "x": 1}, "primitives and copy"),
    ({"primitives": (("split", 1, (3, 5)),)}, "multiply to 8"),
    ({"primitives": (("spilt", 1, (3, 5)),)}, "unknown primitive"),
    ({"primitives": (), "copy": 2}, "copy is 0 or 1")])
def test_faulty_parameters_are_named(parameters, words):
    with pytest.raises(ScheduleError, match=words):
        applied(conv(4, 8, 9, 3), ("layout", "s", parameters))


def test_an_axis_keeps_its_name_apart_from_the_reductions():
    m = Maker()
    m.input("x", 4, 8)
    m.step("y", (ax("r", 8),), m.ref("x", ax("r_0", 4), ax("r", 8)), (ax("r_0", 4),), "sum")
    p = m.done("y")
    new = relayout(p, {"y": Layout((Split(0, (-1, 4)),))})
    assert check_program(new) == [] and Axis("r_0_", Const(2)) in new.producer["y"].axes
