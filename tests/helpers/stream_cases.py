"""Cases of rows of streams: attention with a mask, each row as that of the scores and as that of
the values, beside every compute in a kernel of its own."""

from dataclasses import replace

from contraction_cases import TOLERANCE
from harness import Case
from row_pairs import Pair
from te_programs import Maker, ax

from aotc.ir.dtypes import TF32
from aotc.ir.expr import Cast, Const, Unary
from aotc.ir.numbers.narrow import round_tf32, widen_half
from aotc.ir.schedule import REGISTER, STREAM, Group
from aotc.sched import decide
from aotc.sched.choose.connect import register_groups
from aotc.sched.model.tilegraph import order_groups

PASSING = ("x", "greatest", "total")


def attention(rows, keys, size, columns, dtype):
    """y of q, k, v and a mask of keys, f32 that are rounded to a dtype first."""
    m, i, j, d, n = Maker(), ax("i", rows), ax("j", keys), ax("d", size), ax("n", columns)
    shapes = {"q": (i, d), "k": (j, d), "v": (j, n)}
    for name, axes in shapes.items():
        m.input(name, *(a.extent.value for a in axes))
        whole = m.ref(name, *axes)
        m.step(f"{name}r", axes, round_tf32(whole) if dtype == TF32 else Cast(dtype, whole))
    m.input("mask", keys)

    def operand(name):
        found = m.ref(f"{name}r", *shapes[name])
        return found if dtype == TF32 else widen_half(found)
    m.step("s", (i, j), operand("q") * operand("k"), (d,), "sum")
    m.step("x", (i, j), m.ref("s", i, j) * Const(0.2, "f32") + m.ref("mask", j))
    m.step("greatest", (i,), m.ref("x", i, j), (j,), "max")
    m.step("e", (i, j), Unary("exp", m.ref("x", i, j) - m.ref("greatest", i)))
    m.step("total", (i,), m.ref("e", i, j), (j,), "sum")
    m.step("p", (i, j), m.ref("e", i, j) / m.ref("total", i))
    m.step("y", (i, n), m.ref("p", i, j) * operand("v"), (j,), "sum")
    return m.done("y")


def on_rows(program, target, scores, values):
    """A Schedule in which the attention streams on two rows."""
    computes = ("s", "x", "greatest", "e", "total", "p", "y")
    group = Group("stream", computes, ("y",), "y", {
        b: STREAM if b in PASSING else REGISTER for b in computes[:-1]})
    others = [g for g in register_groups(program) if not {*g.computes} & {*computes}]
    found = decide(program, target, winograd=(), written=False,
                   groups=order_groups(program, [*others, group]))
    wanted = {"y": values.name, **dict.fromkeys(("s", "greatest", "total"), scores.name)}
    return replace(found, groups=tuple(replace(g, choices={
        s: replace(c, row=wanted[s]) for s, c in g.choices.items()}) if g.computes == computes
        else g for g in found.groups))


def stream_cases(row, target):
    others = [r for r in target.rows("stream") if r.a == row.a]
    partners = [(row, v) for v in others if v.steps == row.tile.nr][:1] + [
        (s, row) for s in others if s.tile.nr == row.steps][:1]
    for scores, values in partners:
        for n, (rows, keys) in enumerate(((1, 3), (70, scores.tile.nr), (130, 300))):
            program = attention(rows, keys, scores.steps - 3 * n, values.tile.nr - n, row.a)
            name = f"{rows} x {keys} on {scores.name}, {values.name}"
            yield Pair(Case(name, program, on_rows(program, target, scores, values),
                            tol=TOLERANCE[row.a]),
                       Case(f"{name} twin", program, decide(program, target, "none", ()),
                            tol=TOLERANCE[row.a]))


__all__ = ["stream_cases"]
