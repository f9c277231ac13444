"""States of a Loop that each round makes longer by as much: the tokens of a decoder, its caches.
They have room for all rounds, and are as long as the round says, which is a number of elements as
data gives others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from aotc.frontend.building.bodies import refuse_varying
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import Count, tell_count
from aotc.frontend.building.values import Index, Val, Value
from aotc.frontend.counted_branches import inline_round_counted
from aotc.frontend.graph import Body
from aotc.frontend.loops.rounds import Turn
from aotc.frontend.row_values import Row
from aotc.ir.expr import Const, Expr, Sym, Where, compare
from aotc.ir.program import Compute
from aotc.ir.simplify import are_equal, simplify


@dataclass(frozen=True)
class Growth:
    """A state is ``step`` longer along ``axis`` after each round; it begins with ``start``."""

    axis: int
    step: int
    start: Expr

    def at(self, turn: Expr) -> Expr:
        """Its extent before a round."""
        return simplify(self.start + turn * self.step)


NONE: Mapping[int, Growth] = MappingProxyType({})


def growth(b: Builder, body: Body, states: Sequence[Value]) -> dict[int, Growth]:
    """The states that a round makes longer, by number: what one round does, for a dry run."""
    turn = Sym(f"~{b.node.label}_grows", 0, None)
    b.turns[turn] = Turn(Const(1 << 40), False)
    vals = [b.as_tensor(v) for v in states]
    with b.body(turn):
        outs = b.inline(body, [b.value((), lambda _: turn), b.const(np.array(True)), *(
            b.body_input(v.shape, v.dtype, "grows") for v in vals)], "grows")
    found: dict[int, Growth] = {}
    for k, (old, new) in enumerate(zip(vals, outs[1:])):
        new = b.as_tensor(new)
        more = [(axis, simplify(e - d)) for axis, (d, e) in enumerate(zip(old.shape, new.shape))
                if not are_equal(d, e)]
        if len(more) == 1 and old.rank == new.rank:
            axis, by = more[0]
            if isinstance(by, Const) and by.value > 0:
                found[k] = Growth(axis, by.value, old.shape[axis])
    return found


def with_room(b: Builder, v: Val, g: Growth, trip: Expr, tag: str) -> Val:
    """How a state begins, with room for ``trip`` rounds, zero behind its own elements."""
    zero = Const(False if v.dtype == "bool" else 0, v.dtype)

    def body(i: Index) -> Expr:
        if g.start == Const(0):
            return zero
        return Where(compare("lt", i[g.axis], g.start), b.at(v, i), zero)
    shape = (*v.shape[:g.axis], g.at(trip), *v.shape[g.axis + 1:])
    return b.compute(b.axes(shape), body(b.axes(shape)), tag=tag)


def inline_growing(b: Builder, body: Body, vals: Sequence[Val], turn: Expr,
                   growing: Mapping[int, Growth]) -> Sequence[Value]:
    """The Vals of a round's outputs, its inputs being ``vals``; states that grow are as long as the
    round says, and are found so."""
    if not growing:
        return inline_round_counted(b, body, vals)
    states, numbers, rows = list(b.node.inputs[2:]), dict[int, Val](), b.rows
    b.rows = dict(rows)
    for k, g in growing.items():
        numbers[k] = b.compute((), g.at(turn), tag=f"length{k}")
        b.counts.append((numbers[k], vals[2 + k].shape[g.axis], b.node))
        states[k] = f"~{body.inputs[2 + k]}"
        b.rows[states[k]] = (Row(states[k], g.axis, len(b.counts) - 1),)
    made = [f"{o}_left" for o in body.outputs]
    outs = list(b.inline(body, vals, "", made, ("", "", *states)))
    left = [b.rows.get(name, ()) for name in made]
    b.rows = rows
    for k, g in growing.items():
        found, left[1 + k] = left[1 + k], ()
        if [r.axis for r in found] != [g.axis] or not _is_next(b, found[0], numbers[k], g):
            raise refuse_varying(b, f"a state that is {vals[2 + k]} in one round and not {g.step} "
                                 "longer in the next")
        outs[1 + k] = b.move(b.as_tensor(outs[1 + k]), vals[2 + k].shape, lambda i: i,
                             f"longer{k}")
    for name, found in zip(body.outputs, left):
        if found:
            raise refuse_varying(b, f"{name!r}, which is as long as a state that grows,")
    return outs


def _is_next(b: Builder, row: Row, number: Val, g: Growth) -> bool:
    """True if the number of a row is a state's number before the round and what it grows by."""
    total = b.counts[row.start][0]
    step = b.known.maker.get(total.buffer)
    return isinstance(step, Compute) and are_equal(step.body, b.load(number, ()) + g.step)


def lengthen_states(b: Builder, ran: Val, states: Sequence[Val], growing: Mapping[int, Growth],
                    count: Count | None, lasts: Mapping[int, Val]) -> dict[int, Val]:
    """The last states that grew, their lengths told where data say how many rounds ran."""
    out: dict[int, Val] = {}
    for k, g in growing.items():
        assert count is not None, g
        total = b.compute((), g.at(b.load(ran, ())), tag=f"length{k}")
        rows = ((b.node.outputs[k], g.axis),) if k < len(b.node.outputs) and (
            b.node.outputs[k]) else ()
        tell_count(b, total, replace(count, extent=lasts[k].shape[g.axis], rows=rows))
        out[k] = lasts[k]
    return out


__all__ = ["NONE", "Growth", "growth", "inline_growing", "lengthen_states", "with_room"]
