"""Products of a loop that no state goes into, as one product over all rounds before the loop.

A round that multiplies its entry of an input by weights (W x of a recurrent layer) meets all the
weights for a few rows; before the loop the weights serve the rows of every round, and work items
the workers.
"""

from collections.abc import Mapping
from dataclasses import replace

from aotc.ir.category import category
from aotc.ir.expr import Axis, Expr, Guarded, Load, axes_of, rewrite, walk
from aotc.ir.program import Buffer, Compute, Entry, Loop, Program, Step, free_name, update


def hoist_products(program: Program) -> Program:
    """The Program whose loops keep the products that depend on states.  Only of loops that run all
    their rounds, whatever data say: others might never want the product."""
    steps: list[Step] = []
    made = program
    for s in program.steps:
        if isinstance(s, Loop) and not (s.count or s.going or s.again):
            found = _Hoist(made, s)
            made, s = found.outer, found.loop
            steps += found.before
        steps.append(s)
    return program if made is program else update(made, steps=tuple(steps))


class _Hoist:
    """One loop taken apart: ``before``, the computes that go before it, their buffers and constants
    in ``outer``, and ``loop``, the rest."""

    def __init__(self, outer: Program, loop: Loop) -> None:
        self.outer, self.loop, self.before = outer, loop, list[Compute]()
        self.entries = {e.part: e for e in loop.slices}
        self.free = self._free()
        chosen = [c for c in self.free.values() if self._is_product(c)]
        chosen = [c for c in chosen if c.out not in loop.body.outputs and self._names_fit(c)]
        if chosen:
            self._move({c.out for c in chosen})

    def _free(self) -> dict[str, Compute]:
        """{buffer: its compute} of what the body computes from entries, constants and what lies
        outside, the same whatever the rounds before it did."""
        body, free = self.loop.body, dict[str, Compute]()
        known = {*body.consts, *self.loop.captured, *self.entries}
        for c in body.steps:
            if not isinstance(c, Compute) or len(c.outs) > 1 or not known.issuperset(c.inputs):
                continue
            if not any(isinstance(n, Guarded) or n == self.loop.round for n in _nodes(c)):
                free[c.out] = c
                known.add(c.out)
        return free

    def _is_product(self, c: Compute) -> bool:
        """True if it multiplies and sums something of a round's own."""
        return category(c.axes, c.raxes, c.fold, c.body) in ("contraction", "dot") and bool(
            self._own(c))

    def _own(self, c: Compute) -> bool:
        """True if the compute reads entries, itself or through others."""
        return any(i in self.entries or i in self.free and self._own(self.free[i])
                   for i in c.inputs)

    def _with_sources(self, c: Compute) -> dict[str, Compute]:
        """The compute behind all that it is made from inside."""
        found: dict[str, Compute] = {}
        for i in c.inputs:
            if i in self.free:
                found |= self._with_sources(self.free[i])
        return found | {c.out: c}

    def _names_fit(self, c: Compute) -> bool:
        """True if the constants that it needs can be the outer Program's."""
        needed = {i for s in self._with_sources(c).values() for i in s.inputs}
        consts, outer = self.loop.body.consts, self.outer
        return all(outer.consts.get(n) is consts[n] or n not in outer.buffers
                   for n in needed if n in consts)

    def _move(self, chosen: set[str]) -> None:
        body = self.loop.body
        moved: dict[str, Compute] = {}
        for out in chosen:
            moved |= self._with_sources(self.free[out])
        order = [c for c in self.free.values() if c.out in moved]
        names = {c.out: free_name(self.outer.buffers, f"{c.out}_rounds") for c in order}
        taken = {i: body.consts[i] for c in order for i in c.inputs if i in body.consts}
        buffers = {n: body.buffers[n] for n in taken} | self.outer.buffers
        for c in order:
            rounds = (self.loop.trip,) if self._own(c) else ()
            buffers[names[c.out]] = Buffer(
                names[c.out], (*rounds, *body.shape(c.out)), body.dtype(c.out))
            self.before.append(self._over_rounds(c, names))
        self.outer = replace(self.outer, buffers=buffers,
                             consts={**taken, **self.outer.consts})
        self.loop = self._without(chosen, names)

    def _over_rounds(self, c: Compute, names: Mapping[str, str]) -> Compute:
        """The compute for all rounds at once, in the order of their numbers; as it is where no
        round has entries of its own in it."""
        used = {a.name for n in _nodes(c) for a in axes_of(n)} | {a.name for a in c.axes + c.raxes}
        label = next(n for n in ("t", *(f"t{i}" for i in range(len(used) + 1))) if n not in used)
        turn = Axis(label, self.loop.trip)

        def node(e: Expr) -> Expr | None:
            if not isinstance(e, Load):
                return None
            index = tuple(rewrite(i, node, {}) for i in e.index)
            if e.buffer in names:
                rounds = (turn,) if self._own(self.free[e.buffer]) else ()
                return Load(names[e.buffer], (*rounds, *index), e.dtype)
            entry = self.entries.get(e.buffer)
            if entry is None:
                return Load(e.buffer, index, e.dtype)
            at = self.loop.trip - 1 - turn if entry.backward else turn
            return Load(entry.whole, (at, *index), e.dtype)

        axes = (turn, *c.axes) if self._own(c) else c.axes
        return replace(c, outs=(names[c.out],), axes=axes, body=rewrite(c.body, node, {}))

    def _without(self, chosen: set[str], names: Mapping[str, str]) -> Loop:
        """The loop that reads its entries of what was moved."""
        body, loop = self.loop.body, self.loop
        new = update(body, steps=tuple(s for s in body.steps if not chosen & {*s.outs}),
                     inputs=(*body.inputs, *sorted(chosen)), buffers=body.buffers | {
                         n: replace(body.buffers[n], role="input") for n in chosen})
        slices = (*loop.slices, *(Entry(names[n], n) for n in sorted(chosen)))
        read = {i for s in new.steps for i in s.inputs} | {*new.outputs}
        states = {s.before for s in loop.states}
        kept = tuple(i for i in new.inputs if i in read or i in states)
        return replace(loop, body=update(new, inputs=kept),
                       slices=tuple(e for e in slices if e.part in kept))


def _nodes(c: Compute) -> list[Expr]:
    return [n for e in (c.body, *(a.extent for a in c.axes + c.raxes)) for n in walk(e)]


__all__ = ["hoist_products"]
