"""What rounds read of tensors around their loop at places that the round says: where each takes an
entry of its own, along any axis, forward, backward or from somewhere else on, that is an input of
the body, cut for each round.  All other places are held inside their tensor."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aotc.frontend.building.extents import reads
from aotc.frontend.building.symbolic import worst_case
from aotc.frontend.building.values import Index, Val
from aotc.frontend.loops.rounds import Turns, counts_rounds, require_in_rounds
from aotc.ir.expr import (
    Const,
    Expr,
    Guarded,
    Load,
    Sym,
    axes_of,
    check_index,
    children,
    compare,
    contains,
    maximum,
    minimum,
    substitute,
    walk,
    with_children,
)
from aotc.ir.program import Branch, Buffer, Compute, Loop, Program, Step, update
from aotc.ir.simplify import are_equal, lower, proves, simplify, split_linear
from aotc.passes.regions import all_steps

if TYPE_CHECKING:  # which needs what this module is for
    from aotc.frontend.building.builder import Builder

WHY = "what a round reads must lie inside the tensor"
Key = tuple[str, int, Expr]  # a tensor, an axis of it, and the place along it in a round


@dataclass(frozen=True)
class Cut:
    """An input of the body, ``part``, that is an entry of ``whole`` in each round."""

    whole: Val
    part: str
    backward: bool = False


def cut(b: "Builder", steps: list[Step], own: Iterable[str], turn: Sym, tag: str) -> list[Cut]:
    """Change the steps of a loop's body, which ``turn`` counts, so that they read what each round
    takes of a tensor outside as an input of their own: those inputs.  ``own``: the buffers that the
    body is given already."""
    inner = all_steps(steps)
    inputs = {n for s in inner if isinstance(s, Loop)
              for n in (*(x.before for x in s.states), *(x.part for x in s.slices))}
    made = inputs.union(own, *(s.outs for s in inner),
                        *(p.outputs for s in inner if isinstance(s, (Loop, Branch))
                          for p in s.bodies))
    cuts = _Cuts(b, turn, made, tag)
    steps[:] = [cuts.step(s) for s in steps]
    return cuts.made


class _Cuts:
    """The cuts of one loop, as they are found."""

    def __init__(self, b: "Builder", turn: Sym, inside: set[str], tag: str) -> None:
        self.b, self.turn, self.inside, self.tag = b, turn, inside, tag
        self.turns: Turns = {**b.around(), turn: b.turns[turn]}
        self.parts: dict[Key, str] = {}
        self.made: list[Cut] = []

    def step(self, s: Step) -> Step:
        if isinstance(s, Compute):
            body = self.expr(s.body, s.origin)
            return s if body is s.body else replace(s, body=body)
        if isinstance(s, Loop):
            return replace(s, body=self.program(s.body))
        if isinstance(s, Branch):
            one, two = map(self.program, s.bodies)
            return replace(s, bodies=(one, two))
        return s

    def program(self, p: Program) -> Program:
        """A region's body inside of this one."""
        steps = tuple(map(self.step, p.steps))
        if all(a is b for a, b in zip(steps, p.steps)):
            return p
        read = dict.fromkeys(i for s in steps for i in s.inputs)
        parts = [c.part for c in self.made if c.part in read and c.part not in p.inputs]
        kept = tuple(i for i in p.inputs if i in read or i in self.inside)
        return update(p, steps=steps, inputs=(*kept, *parts), buffers=p.buffers | {
            n: self.b.buffers[n] for n in parts})

    def expr(self, e: Expr, origin: Sequence[str]) -> Expr:
        if not counts_rounds(e, {self.turn: self.turns[self.turn]}):
            return e
        plain = {load for load, guarded in reads(e, None) if guarded is None}
        known: dict[Expr, Expr] = {}

        def made(n: Expr) -> Expr:
            if n not in known:
                kids = [made(k) for k in children(n)]
                new = with_children(n, kids) if kids else n
                known[n] = self.load(new, n in plain, origin) if isinstance(new, Load) else new
            return known[n]
        return made(e)

    def load(self, load: Load, plain: bool, origin: Sequence[str]) -> Expr:
        shape = self.b.buffers[load.buffer].shape
        index = list(load.index)
        moving = [k for k, i in enumerate(index) if contains(i, self.turn)
                  and not any(isinstance(n, (Load, Guarded)) for n in walk(i))]
        proved = {k: self.proved(index[k], shape[k]) for k in moving}
        if load.buffer not in self.inside:
            for k in moving:
                place = self.own_entry(index[k])
                if proved[k] and place is not None:
                    part = self.part((load.buffer, k, place))
                    return self.load(Load(part, (*index[:k], *index[k + 1:]), load.dtype), plain,
                                     origin)
        for k in moving:
            if proved[k] or plain:
                index[k] = self.held(index[k], shape[k], proved[k], origin)
        return Load(load.buffer, tuple(index), load.dtype)

    def proved(self, i: Expr, n: Expr) -> bool:
        """True if an index lies inside in all rounds that there can be, or a call is refused."""
        conds = (require_in_rounds(compare("ge", i, Const(0)), self.turns),
                 require_in_rounds(compare("lt", i, n), self.turns))
        return all(c is not None and (proves(c) or c in self.b.checks) for c in conds)

    def own_entry(self, i: Expr) -> Expr | None:
        """The place of a round's own entry; None if an index is another one: rounds read the same,
        or several."""
        i = simplify(substitute(i, {a: Const(0) for a in axes_of(i) if a.extent == Const(1)}))
        parts = None if axes_of(i) else split_linear(i, self.turn)
        return i if parts is not None and isinstance(parts[0], Const) and parts[0].value else None

    def part(self, key: Key) -> str:
        """The input of the body that is the entry of a tensor in each round."""
        if key not in self.parts:
            buffer, axis, place = key
            outer = self.b.buffers[buffer]
            name = self.b.names.claim(f"{buffer}_{self.tag}")
            self.b.buffers[name] = Buffer(
                name, (*outer.shape[:axis], *outer.shape[axis + 1:]), outer.dtype, "input")
            self.parts[key] = name
            self.made.append(self.entries(key, name))
        return self.parts[key]

    def entries(self, key: Key, name: str) -> Cut:
        """A tensor whose entries along the first axis are those of the rounds."""
        buffer, axis, place = key
        outer, trip = self.b.buffers[buffer], self.turns[self.turn].trip
        whole = Val(outer.shape, outer.dtype, buffer=buffer)
        last = simplify(trip - 1 - self.turn)
        if axis == 0 and place == self.turn:
            return Cut(whole, name)
        if axis == 0 and are_equal(place, last) and are_equal(outer.shape[0], trip):
            return Cut(whole, name, True)

        def source(i: Index) -> Index:
            at = simplify(substitute(place, {self.turn: i[0]}))
            return (*i[1:axis + 1], at, *i[axis + 1:])
        rest = (*outer.shape[:axis], *outer.shape[axis + 1:])
        axes = self.b.axes((trip, *rest))
        return Cut(self.b.compute(axes, self.b.load(whole, source(axes)), tag=name), name)

    def held(self, i: Expr, n: Expr, proved: bool, origin: Sequence[str]) -> Expr:
        """An index that is inside of an extent whatever the symbol of the round is."""
        if proves(compare("ge", i, Const(0))) and proves(compare("lt", i, n)):
            return i
        base = simplify(substitute(i, {a: Const(0) for a in axes_of(i)}))
        rest = simplify(i - base)
        span = worst_case(rest)
        if proved and span is not None and not contains(rest, self.turn) and proves(
                compare("ge", rest, Const(0))) and proves(compare("lt", span, n)):
            base = minimum(base, simplify(n - 1 - span))
            low = lower(base)
            return simplify((base if low is not None and low >= 0 else maximum(base, Const(0)))
                            + rest)
        return check_index(i, n, f"{', '.join(origin)}: {WHY}")


__all__ = ["Cut", "cut"]
