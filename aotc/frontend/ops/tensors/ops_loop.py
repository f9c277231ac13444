"""Loops: regions, or unrolled where the rounds are few or differ in more than values.

Unrolled, a Loop whose number of rounds is data runs as many rounds as its declared results have,
and picks what each round leaves."""

from collections import abc
from dataclasses import dataclass

import numpy as np

from aotc.frontend.building.bodies import MOST_ROUNDS, Ends, Made, Varies, attempt, loop
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import Count, cleared, expect, loaded, room, some, told
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import cast
from aotc.frontend.building.values import Index, Result, Sequence, Val, Value
from aotc.frontend.graph import Body, Node
from aotc.frontend.ops.tensors.ops_control import (
    FEW,
    MAX_STEPS,
    condition,
    element,
    pick,
    results,
    stack,
)
from aotc.ir.dtypes import INDEX
from aotc.ir.expr import Binary, Const, Expr, Unary, compare, maximum
from aotc.ir.program import static_shape
from aotc.ir.simplify import simplify


@dataclass(frozen=True)
class Rounds:
    """How a loop goes: ``steps`` rounds; ``known``: all of them run, else ``count`` and the
    conditions say at run time which do."""

    steps: int
    known: bool
    count: Val | None = None


@op("Loop")
def loop_op(node: Node, b: Builder) -> Result:
    body = node.attr("body")
    count, alive = b.arg(0), b.arg(1)
    state = [b.env[i] for i in node.inputs[2:]]
    if len(body.outputs) < 1 + len(state) or len(body.inputs) != 2 + len(state):
        raise b.bad("the body's inputs and outputs do not fit the loop's")
    alive = condition(b, alive or b.const(np.array(True)))
    known = None if count is None else b.scalar(count)
    few = known is not None and known * len(body.nodes) <= FEW or b.scalar(alive) is False
    made = None if few else attempt(b, lambda: _in_rounds(b, body, count, alive, state))
    return results(_unrolled(b, body, count, alive, state) if made is None else made)


def _in_rounds(b: Builder, body: Body, count: Val | None, alive: Val,
               state: abc.Sequence[Value]) -> list[Value]:
    """The Loop's results as those of a region."""
    if any(isinstance(v, Sequence) for v in state):
        raise Varies("a loop that carries a sequence")
    states, gathers = [b.as_tensor(v) for v in state], len(body.outputs) > 1 + len(state)
    wanted = None if count is None else b.elements(b.known(count))[0]
    data = wanted is None or loaded(wanted)
    known = None if wanted is None or data else simplify(maximum(wanted, Const(0)))
    found = _room(b, len(state), known) if gathers else None
    trip = known or (found.extent if found else b.declared(_gathered(b, len(state)))[0]
                     if gathers else Const(MOST_ROUNDS))
    early: list[bool] = []

    def one(turn: Expr, before: abc.Sequence[Val], parts: abc.Sequence[Val]) -> Made:
        outs = b.inline(body, (b.value((), lambda _: turn), b.const(np.array(True)), *before))
        again = condition(b, outs[0])
        ends_early = not b.scalar(again)
        if count is None and not ends_early:
            raise Varies("a loop without an end")
        early.append(ends_early)
        if gathers and ends_early and not data and found is None:
            raise Varies("a loop whose condition decides how much it gathers")
        vals = [b.as_tensor(v) for v in outs[1:]]
        return vals[:len(states)], vals[len(states):], again if ends_early else None
    ends = Ends(b.map((), lambda _: cast(INDEX, element(b, count)), [count], "count")
                if data and count is not None else None,
                None if b.scalar(alive) else alive, gathers)
    outs = [k if o else None for k, o in enumerate(b.node.outputs)]
    lasts, wholes, ran = loop(b, "loop", trip, states, [], [False] * (len(body.outputs) - 1 - len(
        states)), one, ends, outs)
    if ran is not None and found is not None and (data or early[-1]):
        told(b, ran, found)
        wholes = tuple(cleared(b, found, v, 0, f"there{k}") for k, v in enumerate(wholes))
    elif ran is not None:
        expect(b, [(b.at(ran, ()), trip)],
               f"the data must give the declared {trip} rounds; of this the data gives")
    return [*lasts, *wholes]


def _room(b: Builder, states: int, most: Expr | None) -> Count | None:
    """Room for what rounds make, ``most`` rounds if that is known."""
    return room(b, [(k, 0) for k, o in enumerate(b.node.outputs) if k >= states and o], most)


def _gathered(b: Builder, states: int) -> int:
    """The first output that stacks what rounds make."""
    return next(k for k, o in enumerate(b.node.outputs) if k >= states and o)


def _unrolled(b: Builder, body: Body, count: Val | None, alive: Val,
              state: abc.Sequence[Value]) -> list[Value]:
    rounds = _rounds(b, count, alive, len(state))
    gathered: list[list[Value]] = [[] for _ in body.outputs[1 + len(state):]]
    runs, step = None, 0
    while step < rounds.steps:
        if b.scalar(alive) is not None and not b.scalar(alive):
            break
        runs = None if rounds.known and b.scalar(alive) else _runs(b, alive, rounds, step, runs)
        outs = b.inline(body, (b.const(np.array(step)), alive, *state), f"round{step}")
        state = [new if runs is None else _kept(b, runs, new, old, f"state{k}")
                 for k, (new, old) in enumerate(zip(outs[1:], state))]
        alive = condition(b, outs[0])
        for values, value in zip(gathered, outs[1 + len(state):]):
            values.append(value)
        step += 1
    if rounds.steps == MAX_STEPS + 1 and step > MAX_STEPS:
        raise b.unsupported(f"a loop of more than {MAX_STEPS} rounds", "shorten it")
    if gathered and not (rounds.known and runs is None):
        # after a known number of rounds there is no further one, whatever the condition
        fits = runs if rounds.known and runs else _fits(b, alive, rounds, step, runs)
        expect(b, [(some([b.at(fits, ())]), Const(1))],
               f"the data must give the declared {step} rounds; of this the data gives")
    return [*state, *(_stacked(b, values, k + len(state), body, k)
                      for k, values in enumerate(gathered))]


def _rounds(b: Builder, count: Val | None, alive: Val, states: int) -> Rounds:
    """The Rounds of a Loop; UnsupportedError where nothing bounds them."""
    known = None if count is None else b.scalar(count)
    if known is not None:
        if known > MAX_STEPS and b.scalar(alive) is not False:
            raise b.unsupported(f"a loop of {known} rounds", f"at most {MAX_STEPS} are unrolled")
        return Rounds(max(int(known), 0), True)
    if count is None:
        return Rounds(MAX_STEPS + 1, True)
    if len(b.node.outputs) <= states:
        whose = "is data" if b.known.is_data(count) else "depends on extents"
        raise b.unsupported(f"a loop whose number of rounds {whose} and that gathers nothing",
                            "make the number constant" + (
                                "" if whose == "is data" else ": pin the dimensions"))
    _room(b, states, None)  # a refusal then says that a bound would do
    steps = b.fixed(b.declared(_gathered(b, states))[0])
    if steps > MAX_STEPS:
        raise b.unsupported(f"a loop of {steps} rounds", f"at most {MAX_STEPS} are unrolled")
    return Rounds(steps, False, count)


def _runs(b: Builder, alive: Val, rounds: Rounds, step: int, before: Val | None) -> Val:
    """A bool Val: round ``step`` runs."""
    sources = [v for v in (alive, rounds.count, before) if v is not None]

    def body(_: Index) -> Expr:
        e = element(b, alive)
        if rounds.count is not None:
            e = Binary("and", e, compare("gt", cast(INDEX, element(b, rounds.count)),
                                         Const(step)))
        return e if before is None else Binary("and", b.at(before, ()), e)
    return b.map((), body, sources, f"runs{step}")


def _kept(b: Builder, runs: Val, new: Value, old: Value, tag: str) -> Val:
    new, old = b.as_tensor(new), b.as_tensor(old)
    if new.dtype != old.dtype or static_shape(new.shape) != static_shape(old.shape):
        raise b.unsupported(f"a loop that changes {old} into {new} in a round that may not run",
                            "make the number of rounds constant")
    return pick(b, runs, new, old, tag)


def _fits(b: Builder, alive: Val, rounds: Rounds, step: int, runs: Val | None) -> Val:
    """A bool Val: exactly ``step`` rounds ran."""
    more = _runs(b, alive, rounds, step, runs)
    if runs is None:
        return b.map((), lambda _: Unary("not", b.at(more, ())), [more], "fits")
    return b.map((), lambda _: Binary("and", b.at(runs, ()), Unary("not", b.at(more, ()))),
                 [runs, more], "fits")


def _stacked(b: Builder, values: abc.Sequence[Value], out: int, body: Body, k: int) -> Val:
    """The rounds' values one after the other along a new first axis."""
    if not values:
        dtype, shape = body.types[out + 1]
        if dtype is None or shape is None:
            raise b.unsupported("a loop without rounds", "remove it")
        return b.const(np.zeros((0, *shape), dtype))
    return stack(b, values, 0, out)


