"""Loops: regions, or unrolled where the rounds are few or differ in more than values.

Unrolled, a Loop whose number of rounds is data runs as many rounds as its declared results have,
and picks what each round leaves."""

from collections import abc
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from aotc.errors import AotcError
from aotc.frontend.building.bodies import (
    MOST_ROUNDS,
    MOST_UNROLLED,
    Ends,
    Made,
    attempt,
    loop,
    refuse_varying,
    run_and_undo,
)
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import (
    Count,
    clear_behind,
    expect,
    expected_shape,
    flag_any,
    reads_data,
    room,
    tell_count,
)
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import cast
from aotc.frontend.building.values import Index, Result, Sequence, Val, Value
from aotc.frontend.counted_branches import inline_round_counted
from aotc.frontend.graph import Body, Node
from aotc.frontend.loops.counting import Counted, checks_of_floats, find_counted, make_state
from aotc.frontend.loops.growing import (
    NONE,
    Growth,
    growth,
    inline_growing,
    lengthen_states,
    with_room,
)
from aotc.frontend.loops.grown_lists import Grown, gather_lists
from aotc.frontend.ops.tensors.ops_control import (
    FEW,
    condition,
    element,
    pick,
    results,
    stack,
)
from aotc.frontend.ops.tensors.ops_sequence import joined
from aotc.frontend.ops.tensors.ops_shape import concat
from aotc.frontend.ops.tensors.ops_slice import INT_MAX
from aotc.frontend.ranges import most_of
from aotc.frontend.refusals import Refusal
from aotc.ir.dtypes import INDEX
from aotc.ir.expr import Binary, Const, Expr, Unary, Where, compare, maximum, minimum
from aotc.ir.simplify import are_equal, simplify


@dataclass(frozen=True)
class LoopRounds:
    """How a loop goes: ``steps`` rounds; ``known``: all of them run, else ``count`` and the
    conditions say at run time which do."""

    steps: int
    known: bool
    count: Val | None = None


@dataclass(frozen=True)
class LoopFacts:
    """A Loop as the node says it, and what its body counts.  ``alive``: whether there is a first
    round; ``most``: the most rounds there can be, an index expression, None where nothing says
    that; ``asked``: data say how many are wanted; ``found``: what the body counts; ``done``:
    rounds that have run before these."""

    body: Body
    count: Val | None
    alive: Val
    states: abc.Sequence[Value]
    most: Expr | None
    asked: bool
    found: Counted
    done: int = 0

    @property
    def gathers(self) -> bool:
        return len(self.body.outputs) > 1 + len(self.states)

    @property
    def listed(self) -> bool:
        """True if a state is a list of tensors."""
        return any(isinstance(v, Sequence) for v in self.states)

    @property
    def whole(self) -> bool:
        """True if no data say how many rounds run."""
        return self.most is not None and not self.asked and not self.found.data and (
            self.found.first is not None)

    @property
    def few(self) -> bool:
        """True for rounds that are better unrolled."""
        most = self.most if isinstance(self.most, Const) and not self.asked else None
        return most is not None and most.value * len(self.body.nodes) <= FEW


@op("Loop")
def loop_op(node: Node, b: Builder) -> Result:
    grown, lists = gather_lists(b, node), None
    if grown is not None:
        lists = attempt(b, lambda: _with_lists(b, node, grown))
        if not isinstance(lists, AotcError):
            return results(lists)
    plan = _planned(b, node.attr("body"))
    made = attempt(b, lambda: _unrolled(b, plan)) if plan.few else None
    if made is not None and not isinstance(made, AotcError):
        return results(made)
    region = attempt(b, lambda: _region(b, plan))
    if not isinstance(region, AotcError):
        return results(region)
    if made is None:
        made = attempt(b, lambda: _unrolled(b, plan))
    if isinstance(made, AotcError):
        # what the body does; that it was unrolled next says nothing, but of lists, which are
        # always unrolled
        if not plan.listed:
            raise region
        raise lists if isinstance(lists, AotcError) and not plan.few else made
    return results(made)


def _with_lists(b: Builder, node: Node, grown: Grown) -> list[Value]:
    """The Loop's results as those of a region that gathers what lists get; UnsupportedError if it
    is better unrolled."""
    b.node = grown.node
    plan = _planned(b, grown.node.attr("body"))
    if plan.few:
        raise b.unsupported("few rounds", "unroll them")
    made = _region(b, plan)
    b.node = node
    own = iter(made[:len(plan.states)])
    rows = made[len(made) - len(grown.lists):]
    first = {k: b.env[node.inputs[2 + k]] for k in grown.lists}
    for k, v in first.items():
        if node.outputs[k] in b.rows and str(v) != str(Sequence(())):
            raise b.unsupported("a list that is not empty, which data say how many are appended to",
                                "begin with an empty one")
    lists = {k: joined(b, v, b.as_tensor(r)) for (k, v), r in zip(first.items(), rows)
             if isinstance(v, Sequence)}
    states = [lists[k] if k in lists else next(own) for k in range(len(node.inputs) - 2)]
    return [*states, *made[len(plan.states):len(made) - len(grown.lists)]]


def _planned(b: Builder, body: Body) -> LoopFacts:
    count, alive = b.arg(0), b.arg(1)
    states = [b.env[i] for i in b.node.inputs[2:]]
    if len(body.outputs) < 1 + len(states) or len(body.inputs) != 2 + len(states):
        raise b.bad("the body's inputs and outputs do not fit the loop's")
    alive = condition(b, alive or b.const(np.array(True)))
    wanted = None if count is None else b.elements(b.known(count))[0]
    asked = wanted is not None and reads_data(wanted)
    ends: list[Expr] = []
    if wanted is not None and not asked and not (
            isinstance(wanted, Const) and wanted.value >= INT_MAX):
        ends.append(simplify(maximum(wanted, Const(0))))
    lists = any(isinstance(v, Sequence) for v in states)
    found = Counted({}) if lists else find_counted(b, body, alive, [b.as_tensor(v) for v in states])
    ends += [] if found.rounds is None else [found.rounds]
    if wanted is not None and asked and (highest := most_of(b, wanted)) is not None:
        ends.append(highest)
    most = reduce(minimum, ends) if ends else None
    if most is not None and found.first is not None and found.rounds is None:
        most = Where(found.first, most, Const(0))
    return LoopFacts(body, count, alive, states, None if most is None else simplify(most), asked,
                     found)


def _region(b: Builder, plan: LoopFacts) -> list[Value]:
    """The Loop's results as those of a region; of the rounds behind the first one where that gives
    a state the shape that it keeps."""
    made = attempt(b, lambda: _in_rounds(b, plan))
    if not isinstance(made, AotcError):
        return made
    own = isinstance(made, Refusal) and made.label == b.node.label  # not a node's of the body
    if plan.listed or not own:
        raise made
    later = attempt(b, lambda: _behind_first(b, plan), AotcError) if plan.whole else made
    if not isinstance(later, AotcError):
        return later
    growing = run_and_undo(b, lambda: growth(b, plan.body, plan.states)) or NONE
    if not growing:
        raise made
    grown = attempt(b, lambda: _in_rounds(b, plan, growing))
    if not isinstance(grown, AotcError):
        return grown
    if plan.most is None and not plan.whole:
        raise grown  # which asks for a bound
    raise _both(b, made, grown)


def _both(b: Builder, made: AotcError, grown: AotcError) -> AotcError:
    """Why a state that grows is none, and what in the body does not go on with one that does."""
    if not isinstance(made, Refusal) or not isinstance(grown, Refusal):
        return made
    return b.unsupported(f"{made.what}; a state that grows by as much in each round is followed, "
                         f"but for node {grown.label!r} ({grown.op}): {grown.what}",
                         made.instead)


def _behind_first(b: Builder, plan: LoopFacts) -> list[Value]:
    """The Loop's results, its first round by itself; there must be one."""
    assert plan.most is not None, plan
    b.require("ge", plan.most, 1, "there is a round, which changes the shape of a state")
    found, n = plan.found, len(plan.states)
    states = [make_state(b.as_tensor(v), found.counters[k].start) if k in found.counters else v
              for k, v in enumerate(plan.states)]
    outs = inline_round_counted(b, plan.body, (b.const(np.array(0)), b.const(np.array(True)),
                                               *states),
                                "first")
    after = [b.as_tensor(v) for v in outs[1:]]
    rest = replace(plan, states=after[:n], most=simplify(plan.most - 1), done=1, found=replace(
        found, counters={k: replace(c, start=simplify(c.start + c.step))
                         for k, c in found.counters.items()}))
    made = _in_rounds(b, rest)
    rows = [b.move(v, (Const(1), *v.shape), lambda i: i[1:], f"first{k}")
            for k, v in enumerate(after[n:])]
    return [*made[:n], *(concat(b, [row, b.as_tensor(v)], 0, out=n + k)
                         for k, (row, v) in enumerate(zip(rows, made[n:])))]


def _in_rounds(b: Builder, plan: LoopFacts,
               growing: abc.Mapping[int, Growth] = NONE) -> list[Value]:
    """The Loop's results as those of a region; ``growing``: states that rounds make longer."""
    if plan.listed:
        raise refuse_varying(b, "a loop that carries a sequence")
    if plan.most is None and not plan.found.data and not plan.asked:
        raise b.unsupported("a loop without an end", "give it a number of rounds, or a condition "
                            "that the rounds change")
    states, found = [b.as_tensor(v) for v in plan.states], plan.found
    trip, count = _trip(b, plan, growing)
    starts = [with_room(b, v, growing[k], trip, f"start{k}") if k in growing else v
              for k, v in enumerate(states)]
    gone = found.same | (frozenset(found.counters) if plan.whole else frozenset())
    carried = [k for k in range(len(states)) if k not in gone]

    def one(turn: Expr, before: abc.Sequence[Val], parts: abc.Sequence[Val]) -> Made:
        given = dict(zip(carried, before))
        own = [make_state(v, found.counters[k].at(turn)) if k in found.counters else given.get(k, v)
               for k, v in enumerate(states)]
        number = b.value((), lambda _: turn + plan.done)
        outs = inline_growing(b, plan.body, [number, b.const(np.array(True)), *own], turn, growing)
        vals = [b.as_tensor(v) for v in outs[1:]]
        return ([vals[k] for k in carried], vals[len(states):],
                condition(b, outs[0]) if found.data else None)
    wanted = plan.count if plan.asked else None
    counted_by = not plan.whole and (plan.gathers or bool(growing))
    ends = Ends(None if wanted is None else b.map((), lambda _: cast(INDEX, element(b, wanted)),
                                                  [wanted], "count"),
                plan.alive if found.first is None else None, counted_by, plan.whole)
    checks_of_floats(b, states, found, trip)
    outs = [k if o and not (plan.done and k >= len(states)) else None
            for k, o in enumerate(b.node.outputs)]
    stacks = len(plan.body.outputs) - 1 - len(states)
    lasts, wholes, ran = loop(b, "loop", trip, [starts[k] for k in carried], [], [False] * stacks,
                              one, ends, [*(outs[k] for k in carried), *outs[len(states):]])
    left = dict(zip(carried, lasts))
    if ran is not None:
        ran = _limited(b, plan, ran)
        wholes = tuple(_told(b, plan, ran, trip, count, wholes))
        left.update(lengthen_states(b, ran, states, growing, count, left))
    return [*(left[k] if k in left else v if k in found.same else
              make_state(v, found.counters[k].at(trip)) for k, v in enumerate(states)), *wholes]


def _trip(b: Builder, plan: LoopFacts,
          growing: abc.Mapping[int, Growth]) -> tuple[Expr, Count | None]:
    """(the most rounds, room for what they make where data say how many run)."""
    n = len(plan.states)
    if growing and not plan.whole:
        k, g = next(iter(growing.items()))
        start = b.as_tensor(plan.states[k]).shape[g.axis]
        most = None if plan.most is None else simplify(start + plan.most * g.step)
        count = room(b, [(k, g.axis)], most)
        if count is None:
            raise b.unsupported(f"a state that each round makes longer by {g.step}, until data say "
                                "that it is long enough",
                                "make the number of rounds a constant" + b.asked.get(
                                    b.node.label, ""))
        return simplify(maximum((count.extent - start) // g.step, Const(0))), count
    if plan.gathers and not plan.whole:
        count = _room(b, n, plan.most)
        return count.extent if count else _stated(b, n), count
    return Const(MOST_ROUNDS) if plan.most is None else plan.most, None


def _told(b: Builder, plan: LoopFacts, ran: Val, trip: Expr, count: Count | None,
          wholes: abc.Sequence[Val]) -> abc.Sequence[Val]:
    """What rounds gather, where data say how many there are: the number is told, or has a rule."""
    if not plan.gathers:
        return wholes
    if count is None:
        expect(b, [(b.at(ran, ()), trip)],
               f"the data must give the declared {trip} rounds; of this the data gives")
        return wholes
    n = len(plan.states)
    rows = tuple((o, 0) for k, o in enumerate(b.node.outputs) if k >= n and o)
    count = replace(count, extent=trip, rows=rows)
    tell_count(b, ran, count)
    return [clear_behind(b, count, v, 0, f"there{k}") for k, v in enumerate(wholes)]


def _limited(b: Builder, plan: LoopFacts, ran: Val) -> Val:
    """The number of rounds that ran, or one more where more were wanted than there is room for."""
    most = plan.most
    return ran if most is None else b.map((), lambda _: minimum(b.at(ran, ()), most), [ran],
                                          "rounds")


def _room(b: Builder, states: int, most: Expr | None) -> Count | None:
    """Room for what rounds make, ``most`` rounds if that is known."""
    return room(b, [(k, 0) for k, o in enumerate(b.node.outputs) if k >= states and o], most)


def _stated(b: Builder, states: int) -> Expr:
    """The number of rows that the model declares of what rounds gather."""
    dims = expected_shape(b, b.node.outputs[_gathered(b, states)])
    if not dims:
        raise b.unsupported("a loop that data end, which gathers something in each round",
                            "declare the shape of what it gathers, or make the number of rounds a "
                            "constant" + b.asked.get(b.node.label, ""))
    return dims[0]


def _gathered(b: Builder, states: int) -> int:
    """The first output that stacks what rounds make."""
    return next(k for k, o in enumerate(b.node.outputs) if k >= states and o)


def _unrolled(b: Builder, plan: LoopFacts) -> list[Value]:
    body, alive, state = plan.body, plan.alive, plan.states
    most = plan.most if isinstance(plan.most, Const) and not plan.asked else None
    rounds = _rounds(b, plan.count if most is None else b.const(np.array(most.value)), alive,
                     len(state))
    gathered: list[list[Value]] = [[] for _ in body.outputs[1 + len(state):]]
    runs, step = None, 0
    while step < rounds.steps:
        if b.scalar(alive) is not None and not b.scalar(alive):
            break
        runs = None if rounds.known and b.scalar(alive) else _runs(b, alive, rounds, step, runs)
        outs = inline_round_counted(b, body, (b.const(np.array(step)), alive, *state),
                                    f"round{step}")
        state = [new if runs is None else _kept(b, runs, new, old, f"state{k}")
                 for k, (new, old) in enumerate(zip(outs[1:], state))]
        alive = condition(b, outs[0])
        for values, value in zip(gathered, outs[1 + len(state):]):
            values.append(value)
        step += 1
    if rounds.steps == MOST_UNROLLED + 1 and step > MOST_UNROLLED:
        raise b.unsupported(f"a loop of more than {MOST_UNROLLED} rounds", "shorten it")
    if gathered and not (rounds.known and runs is None):
        # after a known number of rounds there is no further one, whatever the condition
        fits = runs if rounds.known and runs else _fits(b, alive, rounds, step, runs)
        expect(b, [(flag_any([b.at(fits, ())]), Const(1))],
               f"the data must give the declared {step} rounds; of this the data gives")
    return [*state, *(_stacked(b, values, k + len(state), body, k)
                      for k, values in enumerate(gathered))]


def _rounds(b: Builder, count: Val | None, alive: Val, states: int) -> LoopRounds:
    """The Rounds of a Loop; UnsupportedError where nothing bounds them."""
    known = None if count is None else b.scalar(count)
    if known is not None:
        if known > MOST_UNROLLED and b.scalar(alive) is not False:
            raise b.unsupported(f"a loop of {known} rounds",
                                f"at most {MOST_UNROLLED} are unrolled")
        return LoopRounds(max(int(known), 0), True)
    if count is None:
        return LoopRounds(MOST_UNROLLED + 1, True)
    if len(b.node.outputs) <= states:
        whose = "is data" if b.known.is_data(count) else "depends on extents"
        raise b.unsupported(f"a loop whose number of rounds {whose} and that gathers nothing",
                            "make the number constant" + (
                                "" if whose == "is data" else ": pin the dimensions"))
    _room(b, states, None)  # a refusal then says that a bound would do
    steps = b.fixed(b.declared(_gathered(b, states))[0])
    if steps > MOST_UNROLLED:
        raise b.unsupported(f"a loop of {steps} rounds", f"at most {MOST_UNROLLED} are unrolled")
    return LoopRounds(steps, False, count)


def _runs(b: Builder, alive: Val, rounds: LoopRounds, step: int, before: Val | None) -> Val:
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
    if new.dtype != old.dtype or new.rank != old.rank or not all(map(are_equal, new.shape,
                                                                     old.shape)):
        raise b.unsupported(f"a loop that changes {old} into {new} in a round that may not run",
                            "make the number of rounds constant")
    return pick(b, runs, new, old, tag)


def _fits(b: Builder, alive: Val, rounds: LoopRounds, step: int, runs: Val | None) -> Val:
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


