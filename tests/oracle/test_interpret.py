"""Schedules executed literally say what the Program says; broken ones are caught."""

import random
from dataclasses import replace

import numpy as np
import pytest

from aotc.errors import InterpreterError
from aotc.ir.expr import Axis, Const, Load, Sym, Unary, Where, all_hold, compare, maximum
from aotc.ir.layout import Fuse, Layout, Pad, Reorder, Split, Unfold
from aotc.ir.program import Buffer, Compute, LibCall, Program, make_const, update
from aotc.ir.schedule import Group, Schedule, Slot
from aotc.ir.stage_choice import StageChoice
from aotc.oracle.check_program import check_program
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret

RNG = np.random.default_rng(5)


def ax(name, n):
    return Axis(name, n if not isinstance(n, int) else Const(n))


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def load(buffer, *index):
    return Load(buffer, tuple(index), "f32")


def program(steps, x, consts, outputs, syms=()):
    bufs = {"x": Buffer("x", tuple(d if not isinstance(d, int) else Const(d) for d in x), "f32",
                        "input")}
    bufs |= {n: make_const(n, a) for n, a in consts.items()}
    for s in steps:
        for o in s.outs:
            bufs[o] = Buffer(o, tuple(a.extent for a in s.axes), s.body.dtype,
                             "output" if o in outputs else "temp")
    p = Program("p", ("x",), tuple(outputs), bufs, consts, tuple(steps), syms)
    assert check_program(p) == []
    return p


def agree(p, schedule, x, exact=True):
    """evaluate and interpret, forwards and backwards, give the same outputs."""
    want = evaluate(p, {"x": x})
    for backwards in (False, True):
        got = interpret(p, schedule, {"x": x}, backwards=backwards)
        for name in want:
            if exact:
                np.testing.assert_array_equal(got[name], want[name])
            else:
                np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-5)


def schedule(*groups, **fields):
    return Schedule("test", groups, **fields)


# ---------------------------------------------------------------- programs

def conv(src, w, out, channels, features, size, stride=1):
    """3x3, padded by one, as a guarded contraction."""
    c, h, v = ax("c", features), ax("h", size // stride), ax("v", size // stride)
    k, i, j = ax("k", channels), ax("i", 3), ax("j", 3)
    y, z = h * stride + i - 1, v * stride + j - 1
    inside = all_hold([compare("ge", y, 0), compare("lt", y, size), compare("ge", z, 0),
                       compare("lt", z, size)])
    body = Where(inside, load(src, k, y, z), Const(0, "f32")) * load(w, c, k, i, j)
    return Compute((out,), (c, h, v), (k, i, j), "sum", body)


def pointwise(src, out, shape, fn):
    axes = tuple(ax(n, d) for n, d in zip("abc", shape))
    return Compute((out,), axes, (), "none", fn(load(src, *axes), *axes))


def relu(e, *_):
    return maximum(e, Const(0, "f32"))


def conv_conv(size=12):
    w, u = f32(4, 3, 3, 3), f32(5, 4, 3, 3)
    steps = [conv("x", "w", "t", 3, 4, size), pointwise("t", "r", (4, size, size), relu),
             conv("r", "u", "s", 4, 5, size), pointwise("s", "y", (5, size, size), relu)]
    return program(steps, (3, size, size), {"w": w, "u": u}, ("y",))


def depthwise_pointwise(size=10, c=6, f=8):
    k, h, v = ax("c", c), ax("h", size - 2), ax("v", size - 2)
    i, j = ax("i", 3), ax("j", 3)
    dw = Compute(("t",), (k, h, v), (i, j), "sum", load("x", k, h + i, v + j) * load("w", k, i, j))
    o, q = ax("o", f), ax("q", c)
    pw = Compute(("y",), (o, h, v), (q,), "sum", load("t", q, h, v) * load("u", o, q))
    return program([dw, pw], (c, size, size), {"w": f32(c, 3, 3), "u": f32(f, c)}, ("y",))


def attention(rows=9, keys=7, d=4):
    """matmul -> softmax (max, exp, sum, divide) -> matmul."""
    n = rows if not isinstance(rows, int) else Const(rows)
    i, j, k, o = ax("i", n), ax("j", keys), ax("k", d), ax("o", d)
    steps = [
        Compute(("s",), (i, j), (k,), "sum", load("x", i, k) * load("kt", k, j)),
        Compute(("m",), (i,), (j,), "max", load("s", i, j)),
        Compute(("e",), (i, j), (), "none", Unary("exp", load("s", i, j) - load("m", i))),
        Compute(("z",), (i,), (j,), "sum", load("e", i, j)),
        Compute(("p",), (i, j), (), "none", load("e", i, j) / load("z", i)),
        Compute(("y",), (i, o), (j,), "sum", load("p", i, j) * load("v", j, o))]
    syms = (n,) if isinstance(n, Sym) else ()
    return program(steps, (n, d), {"kt": f32(d, keys), "v": f32(keys, d)}, ("y",), syms)


def mlp(rows=10, width=6, layers=4):
    steps, consts, src = [], {}, "x"
    i, o, k = ax("i", rows), ax("o", width), ax("k", width)
    for n in range(layers):
        consts |= {f"w{n}": f32(width, width), f"b{n}": f32(width)}
        out = "y" if n == layers - 1 else f"h{n}"
        steps += [Compute((f"t{n}",), (i, o), (k,), "sum", load(src, i, k) * load(f"w{n}", k, o)),
                  Compute((out,), (i, o), (), "none",
                          relu(load(f"t{n}", i, o) + load(f"b{n}", o)))]
        src = out
    return program(steps, (rows, width), consts, ("y",))


def separate(p):
    """Every compute a group of its own, whole tiles."""
    return schedule(*(Group(f"g{n}", (s.out,), s.outs, s.out) for n, s in enumerate(p.steps)))


# ---------------------------------------------------------------- multi-stage groups

@pytest.mark.parametrize("tile", [(12, 12), (4, 4), (5, 3), (1, 12), (7, 1)])
def test_conv_into_conv(tile):
    p = conv_conv()
    g = Group("g", ("t", "r", "s", "y"), ("y",), "s", {"t": "register", "r": "L1",
                                                       "s": "register"},
              {"h": tile[0], "v": tile[1], "c": 2}, parallel=("h", "c"))
    agree(p, schedule(g), f32(3, 12, 12))


@pytest.mark.parametrize("tile", [2, 3, 8])
def test_depthwise_into_pointwise(tile):
    g = Group("g", ("t", "y"), ("y",), "y", {"t": "L1"}, {"h": tile, "o": 3}, parallel=("h",))
    agree(depthwise_pointwise(), schedule(g), f32(6, 10, 10))


LEVELS = {"s": "L1", "m": "L1", "e": "L1", "z": "L1", "p": "L1"}


@pytest.mark.parametrize("tile", [1, 4, 9])
@pytest.mark.parametrize("register", [(), ("p",), ("p", "e")])
def test_attention_in_one_group(tile, register):
    p = attention()
    connect = LEVELS | dict.fromkeys(register, "register")
    g = Group("g", tuple(s.out for s in p.steps), ("y",), "y", connect, {"i": tile})
    agree(p, schedule(g), f32(9, 4))


def test_attention_over_a_symbolic_number_of_rows():
    p = attention(Sym("n", 1, 64))
    g = Group("g", tuple(s.out for s in p.steps), ("y",), "y", LEVELS, {"i": 4})
    for rows in (1, 3, 4, 11):
        agree(p, schedule(g), f32(rows, 4))


@pytest.mark.parametrize("tile", [1, 3, 10])
def test_four_layer_mlp(tile):
    p = mlp()
    connect = {f"h{n}": "L1" for n in range(3)} | {f"t{n}": "register" for n in range(4)}
    g = Group("g", tuple(s.out for s in p.steps), ("y",), "t3", connect, {"i": tile})
    agree(p, schedule(g), f32(10, 6))
    cut = Group("a", ("t0", "h0", "t1", "h1"), ("h1",), "h1", connect, {"i": tile})
    rest = Group("b", ("t2", "h2", "t3", "y"), ("y",), "y", connect, {"i": 4, "o": 2})
    agree(p, schedule(cut, rest), f32(10, 6))


def test_reduction_split_folds_partial_results():
    p = mlp(layers=1)
    g = Group("g", ("t0", "y"), ("y",), "t0", {"t0": "register"}, {"i": 3},
              choices={"t0": StageChoice(split={"k": 4})})
    agree(p, schedule(g), f32(10, 6), exact=False)


def test_every_compute_alone():
    for p, x in ((conv_conv(), (3, 12, 12)), (attention(), (9, 4)), (mlp(), (10, 6))):
        agree(p, separate(p), f32(*x))


def test_epilogue_through_a_reshape_and_a_stored_side_output():
    i, o, k = ax("i", 6), ax("o", 8), ax("k", 5)
    a, b, c = ax("a", 6), ax("b", 2), ax("c", 4)
    steps = [Compute(("t",), (i, o), (k,), "sum", load("x", i, k) * load("w", k, o)),
             Compute(("u",), (i, o), (), "none", load("t", i, o) + load("b", o)),
             Compute(("y",), (b, a, c), (), "none", relu(load("u", a, b * 4 + c)))]
    p = program(steps, (6, 5), {"w": f32(5, 8), "b": f32(8)}, ("u", "y"))
    g = Group("g", ("t", "u", "y"), ("u", "y"), "t", {"t": "register", "u": "register"},
              {"i": 4, "o": 3})
    agree(p, schedule(g), f32(6, 5))
    agree(p, schedule(replace(g, anchor="y")), f32(6, 5))


def test_maps_that_share_a_frame():
    axes = ax("a", 5), ax("b", 7)
    steps = [Compute(("u",), axes, (), "none", load("x", *axes) * Const(2, "f32")),
             Compute(("y",), axes[::-1], (), "none", relu(load("u", *axes)))]
    p = program(steps, (5, 7), {}, ("u", "y"))
    g = Group("g", ("u", "y"), ("u", "y"), "y", {"u": "register"}, {"b": 2, "a": 2})
    agree(p, schedule(g), f32(5, 7))


def test_a_stored_map_waits_for_all_that_it_reads():
    """It is of the shape of what its sum is computed from, and belongs behind the sum."""
    i, j, r = ax("i", 5), ax("j", 3), ax("r", 3)
    t = load("e", i, j) / load("s", i)
    steps = [Compute(("e",), (i, j), (), "none", load("x", i, j) + load("x", i, j)),
             Compute(("s",), (i,), (r,), "sum", load("e", i, r)),
             Compute(("t",), (i, j), (), "none", t),
             Compute(("y",), (i, j), (), "none", Where(compare("lt", i, 1), load("t", i, j), relu(
                 load("t", i, j))))]
    p = program(steps, (5, 3), {}, ("t", "y"))
    g = Group("g", ("e", "s", "t", "y"), ("t", "y"), "y",
              {"e": "L1", "s": "L1", "t": "register"}, {"i": 5, "j": 1})
    agree(p, schedule(g), f32(5, 3))


# ---------------------------------------------------------------- random chains

def random_step(rng, out, sources, consts, size):
    """A compute over [size, size] that reads one or two earlier tensors in a random way."""
    a, b, r = ax("a", size), ax("b", size), ax("r", rng.choice((2, 3)))
    src = rng.choice(sources[-2:])
    kind = rng.choice(("map", "shift", "window", "matmul", "row", "transpose", "reshape"))
    if kind == "matmul":
        k = ax("k", size)
        name = f"c{out}"
        consts[name] = f32(size, size)
        return Compute((out,), (a, b), (k,), "sum", load(src, a, k) * load(name, k, b))
    if kind == "row":
        k = ax("k", size)
        return Compute((out,), (a, b), (k,), rng.choice(("max", "sum")), load(src, a, k))
    if kind == "transpose":
        return Compute((out,), (a, b), (), "none", relu(load(src, b, a)))
    if kind == "reshape":
        flat = (a * size + b) + rng.randint(0, 3)
        at = flat % (size * size)
        return Compute((out,), (a, b), (), "none", load(src, at // size, at % size))
    y = a + rng.randint(-2, 2)
    y = y + r * rng.choice((1, 2)) if kind == "window" else y
    body = Where(all_hold([compare("ge", y, 0), compare("lt", y, size)]), load(src, y, b),
                 Const(0.5, "f32"))
    body = body + load(rng.choice(sources), a, b) if kind == "map" else body
    if kind == "window":
        return Compute((out,), (a, b), (r,), rng.choice(("sum", "max")), body)
    return Compute((out,), (a, b), (), "none", body)


@pytest.mark.parametrize("seed", range(60))
def test_random_chains_in_one_group(seed):
    rng, size = random.Random(seed), random.Random(seed).randint(3, 9)
    steps, consts, names = [], {}, ["x"]
    for n in range(rng.randint(2, 6)):
        out = f"t{n}"
        steps.append(random_step(rng, out, names, consts, size))
        names.append(out)
    p = update(program(steps, (size, size), consts, (names[-1],)))
    connect = {}
    for s in p.steps[:-1]:
        level = rng.choice(("L1", "L2", "register") if s.fold == "none" else ("L1", "L2"))
        connect[s.out] = level
    tile = {n: rng.randint(1, size) for n in rng.sample("ab", rng.randint(0, 2))}
    g = Group("g", tuple(s.out for s in p.steps), p.outputs, p.outputs[0], connect, tile)
    agree(p, schedule(g), f32(size, size))


# ---------------------------------------------------------------- layouts and the arena

LAYOUTS = [Layout((Split(0, (2, 2)), Reorder((0, 2, 3, 1)))), Layout((Reorder((2, 0, 1)),)),
           Layout((Fuse(1, 2), Split(1, (-1, 9)))), Layout((Pad(1, 1, 2), Split(1, (5, 3)))),
           Layout((Unfold(2, 6, 4),))]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_stored_tensors_and_weights_under_layouts(layout):
    p = conv_conv()
    first = Group("a", ("t", "r"), ("r",), "t", {"t": "register"}, {"h": 5, "c": 3})
    second = Group("b", ("s", "y"), ("y",), "s", {"s": "register"}, {"h": 4, "v": 5})
    blocked = Layout((Split(0, (5, 1)), Reorder((0, 2, 3, 4, 1)))).to_json()
    s = schedule(first, second, layouts={"r": layout.to_json(), "u": blocked},
                 buffers={"r": Slot(0, 64)})
    agree(p, s, f32(3, 12, 12))


def arena_schedule(p, offsets):
    groups = [Group(f"g{n}", (f"t{n}", o), (o,), f"t{n}", {f"t{n}": "register"}, {"i": 4})
              for n, o in enumerate(("h0", "h1", "h2", "y"))]
    return schedule(*groups, buffers={b: Slot(0, at) for b, at in offsets.items()})


def test_arena_places_are_literal():
    p, x = mlp(), f32(10, 6)
    agree(p, arena_schedule(p, {"h0": 0, "h1": 256, "h2": 0}), x)
    want = evaluate(p, {"x": x})["y"]
    got = interpret(p, arena_schedule(p, {"h0": 0, "h1": 64, "h2": 320}), {"x": x})["y"]
    assert not np.array_equal(got, want)  # h0 and h1 overlap while both are live


# ---------------------------------------------------------------- what must not pass

def whole(p, **changes):
    return replace(Group("g", tuple(s.out for s in p.steps), ("y",), "y", {}), **changes)


def test_edge_without_a_level():
    with pytest.raises(InterpreterError, match="connect gives it no level"):
        interpret(depthwise_pointwise(), schedule(whole(depthwise_pointwise())),
                  {"x": f32(6, 10, 10)})


def test_tile_that_does_not_cover_the_output():
    p = attention()
    g = whole(p, connect=LEVELS, anchor="s", tile={"i": 4})
    with pytest.raises(InterpreterError, match="y does not follow"):
        interpret(p, schedule(g), {"x": f32(9, 4)})


def test_reading_more_of_the_anchor_than_its_tile_computes():
    """The anchor's tile is given, so a later stage that needs its neighbours must fail."""
    p = depthwise_pointwise()
    h = ax("h", 8)
    steps = [Compute(("t",), (h,), (), "none", relu(load("x", h))),
             Compute(("r",), (ax("g", 8),), (ax("j", 8),), "sum", load("t", ax("j", 8)))]
    p = program(steps, (8,), {}, ("t", "r"))
    g = Group("g", ("t", "r"), ("t", "r"), "t", {"t": "L1"}, {"h": 3})
    with pytest.raises(InterpreterError, match="r does not follow"):
        interpret(p, schedule(g), {"x": f32(8)})


def test_epilogue_that_reads_its_reduction_at_several_places():
    i, k = ax("i", 8), ax("k", 8)
    steps = [Compute(("t",), (i,), (k,), "sum", load("x", i, k)),
             Compute(("y",), (i,), (), "none", load("t", i) + load("t", Const(7) - i))]
    p = program(steps, (8, 8), {}, ("y",))
    g = Group("g", ("t", "y"), ("y",), "t", {"t": "register"}, {"i": 3})
    with pytest.raises(InterpreterError, match="several places"):
        interpret(p, schedule(g), {"x": f32(8, 8)})


def test_groups_in_the_wrong_order_and_parts_never_written():
    p = mlp(layers=2)
    a = Group("a", ("t0", "h0"), ("h0",), "h0", {"t0": "register"})
    b = Group("b", ("t1", "y"), ("y",), "y", {"t1": "register"})
    with pytest.raises(InterpreterError, match="h0 is read, but no earlier group"):
        interpret(p, schedule(b, a), {"x": f32(10, 6)})
    i = ax("i", 4)
    half = program([Compute(("t",), (ax("j", 8),), (), "none", load("x", ax("j", 8))),
                    Compute(("y",), (i,), (), "none", load("t", i))], (8,), {}, ("t", "y"))
    g = Group("g", ("t", "y"), ("t", "y"), "y", {"t": "register"})
    with pytest.raises(InterpreterError, match=r"4 elements of t are never written.*\[4\]"):
        interpret(half, schedule(g), {"x": f32(8)})


def test_a_library_call_among_computes():
    i = ax("i", 8)
    p = program([Compute(("t",), (i,), (), "none", load("x", i)),
                 Compute(("y",), (i,), (), "none", load("t", i))], (8,), {}, ("y",))
    p = replace(p, steps=(LibCall("any", (), ("x",), ("t",)), p.steps[1]))
    g = Group("g", ("t", "y"), ("y",), "y", {"t": "L1"})
    with pytest.raises(InterpreterError, match="t is a library call; make it a group of its own"):
        interpret(p, schedule(g), {"x": f32(8)})


def test_unknown_tile_axis():
    p = mlp(layers=1)
    g = Group("g", ("t0", "y"), ("y",), "t0", {"t0": "register"}, {"rows": 3})
    with pytest.raises(InterpreterError, match="rows.*axes are i, o"):
        interpret(p, schedule(g), {"x": f32(10, 6)})


@pytest.mark.parametrize("side", ["first", "last"])
def test_a_box_too_small_is_caught(side, monkeypatch):
    """If analysis of reads asked for one row less, the read beside the window must be an error."""
    from aotc.oracle import frames
    exact = frames.read_intervals

    def narrower(compute, ranges, shape):
        cut = {"first": lambda lo, last: (lo + 1, last), "last": lambda lo, last: (lo, last - 1)}
        return {b: tuple(cut[side](*d) if n == 1 else d for n, d in enumerate(dims))
                for b, dims in exact(compute, ranges, shape).items()}

    p = depthwise_pointwise()
    g = Group("g", ("t", "y"), ("y",), "y", {"t": "L1"}, {"h": 3})
    monkeypatch.setattr(frames, "read_intervals", narrower)
    with pytest.raises(InterpreterError, match="group g, tile .*index out of range"):
        interpret(p, schedule(g), {"x": f32(6, 10, 10)})
