"""Regions while a Program is built: steps that are gathered as a body of their own.

A body is built by the same Builder in the same way; its inputs are buffers, so that nothing of what
changes from round to round is known.  Where that is too little (a shape that depends on the
round, a list that grows), ``attempt`` takes everything back and the caller unrolls.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from aotc.errors import AotcError, ModelError, UnsupportedError
from aotc.frontend.building.symbolic import Limit
from aotc.frontend.building.values import Val, Value
from aotc.frontend.graph import shorten, show_type
from aotc.frontend.loops.cuts import cut
from aotc.frontend.loops.rounds import Turn, count_if_some
from aotc.frontend.refusals import Undecided
from aotc.ir.dtypes import INDEX
from aotc.ir.expr import Const, Expr, Shape, Sym, show, walk
from aotc.ir.program import Branch, Entry, Loop, Program, State, Step, update
from aotc.ir.simplify import are_equal, simplify, upper

if TYPE_CHECKING:
    from aotc.frontend.building.builder import Builder

T = TypeVar("T")
MOST_ROUNDS = 1 << 40  # of a loop without a bound
MOST_UNROLLED = 256  # rounds: unrolled code grows with every one


@dataclass(frozen=True)
class Ends:
    """How a loop may end before its last round.  ``count``: the rounds wanted (one i64);
    ``going``: whether there is one at all (one bool); ``ran``: that the number of rounds is asked
    for; ``whole``: that none of these ends it: all rounds run."""

    count: Val | None = None
    going: Val | None = None
    ran: bool = False
    whole: bool = True


# (states after a round, its stacked results, one bool: whether there is another, None: always)
Made = tuple[Sequence[Val], Sequence[Val], Val | None]
Round = Callable[[Expr, Sequence[Val], Sequence[Val]], Made]


def attempt(b: "Builder", run: Callable[[], T],
            faults: type[AotcError] = UnsupportedError) -> T | AotcError:
    """``run()``; the fault of the type ``faults`` for which it cannot be a region, if it cannot:
    all that it did is undone."""
    before = _kept(b)
    try:
        return run()
    except Undecided:
        raise
    except faults as err:
        _back(b, before)
        return err


def run_and_undo(b: "Builder", run: Callable[[], T]) -> T | None:
    """What ``run()`` finds, all that it did undone; None if it is refused."""
    before = _kept(b)
    try:
        return run()
    except (UnsupportedError, ModelError):
        return None
    finally:
        _back(b, before)


def _kept(b: "Builder") -> dict[int, dict[str, Any]]:
    return {id(o): {k: _copy(v) for k, v in vars(o).items()} for o in _parts(b)}


def _back(b: "Builder", before: dict[int, dict[str, Any]]) -> None:
    for o in _parts(b):
        vars(o).clear()
        vars(o).update(before[id(o)])


def _parts(b: "Builder") -> tuple[Any, ...]:
    return b, b.known, b.joins, b.names


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, (dict, list, set)) else value


def loop(b: "Builder", tag: str, trip: Expr, states: Sequence[Val], slices: Sequence[tuple[Val,
         bool]], stacks: Sequence[bool], run: Round, ends: Ends = Ends(),
         outs: Sequence[int | None] = ()) -> tuple[tuple[Val, ...], tuple[Val, ...], Val | None]:
    """Append a Loop: (last states, stacks, the number of rounds if ``ends`` ask for it).

    ``slices``: (tensor, backward), cut along their first axis; ``stacks``: one bool per stacked
    result, backward.  ``run(round, states, slices)`` builds one round.  ``outs``: which outputs of
    the node the states and stacks are (None: none).  UnsupportedError if states change
    their shape or dtype, or shapes depend on the round."""
    most, given = upper(simplify(trip)), len(states)
    turn = Sym(b.names.claim(f"{b.node.label}_round", extent=True), 0,
               None if most is None else max(0, most - 1))
    b.turns[turn] = Turn(count_if_some(simplify(trip)), ends.whole)
    befores = [b.body_input(v.shape, v.dtype, f"{tag}_state{k}") for k, v in enumerate(states)]
    parts = [b.body_input(v.shape[1:], v.dtype, f"{tag}_in{k}") for k, (v, _) in enumerate(slices)]
    with b.body(turn) as steps:
        afters, made, again = run(turn, befores, parts)
        if again is not None:  # a state of its own, which no round reads
            befores.append(b.body_input((), "bool", f"{tag}_on"))
            afters = [*afters, b.map((), lambda _: b.at(again, (Const(0),) * again.rank), [again],
                                     f"{tag}_again")]
            states = [*states, ends.going or b.const(np.array(True))]
        for old, new in zip(states, afters):
            if new.dtype != old.dtype or not _same(old.shape, new.shape):
                raise refuse_varying(b, f"a loop that changes {old} into {new}")
        ends_in = _outputs(b, afters, f"{tag}_next")
        shown = _outputs(b, made, f"{tag}_out", [v.buffer for v in ends_in])
    _demand_even(b, steps, turn)
    _note_ends(b, b.left)
    cuts = cut(b, steps, [v.buffer for v in (*befores, *parts)], turn, f"{tag}_in")
    outs = [*outs, *[None] * (given + len(made) - len(outs))]
    places = [*outs[:given], *[None] * (len(states) - given)]
    lasts = [b.room(v.shape, v.dtype, f"last{k}", out)
             for k, (v, out) in enumerate(zip(states, places))]
    spares = [b.room(v.shape, v.dtype, f"spare{k}", None) for k, v in enumerate(states)]
    wholes = [b.room((trip, *v.shape), v.dtype, f"all{k}", out)
              for k, (v, out) in enumerate(zip(shown, outs[given:]))]
    ran = b.room((), INDEX, "ran", None) if ends.ran else None
    inner = _program(b, tag, steps, [*(v.buffer for v in (*befores, *parts)),
                                     *(c.part for c in cuts)],
                     [v.buffer for v in (*ends_in, *shown)], turn)
    b.append(Loop(
        b.names.claim(f"{b.node.label}_{tag}"), inner, simplify(trip), turn,
        tuple(State(b.buffer(s), x.buffer, y.buffer, last.buffer, spare.buffer)
              for s, x, y, last, spare in zip(states, befores, ends_in, lasts, spares)),
        (*(Entry(b.buffer(v), p.buffer, back) for (v, back), p in zip(slices, parts)),
         *(Entry(b.buffer(c.whole), c.part, c.backward) for c in cuts)),
        tuple(Entry(w.buffer, p.buffer, back) for w, p, back in zip(wholes, shown, stacks)),
        b.buffer(ends.count) if ends.count is not None else "",
        b.buffer(ends.going) if ends.going is not None else "",
        ends_in[-1].buffer if again is not None else "",
        ran.buffer if ran is not None else "", b.origin))
    return tuple(lasts[:given]), tuple(wholes), ran


def branch(b: "Builder", cond: Val, runs: Sequence[Callable[[], Sequence[Value]]],
           outs: Sequence[int]) -> tuple[Val, ...]:
    """Append a Branch on ``cond``, one bool: the Vals of its results.  ``runs``: build the body for
    true and for false.  UnsupportedError if they make different shapes or dtypes."""
    bodies, made, ends = [], list[list[Val]](), list[list[Limit]]()
    for run, tag in zip(runs, ("then", "else")):
        b.chosen += 1
        with b.body() as steps:
            vals = [b.as_tensor(v) for v in run()]
            own = _outputs(b, vals, tag)
        b.chosen -= 1
        made.append(own)
        ends.append(b.left)
        bodies.append((tag, steps, own))
    for x, y in zip(*made, strict=True):
        if x.dtype != y.dtype or not _same(x.shape, y.shape):
            raise b.unsupported(f"branches that make {x} and {y}", "make them alike")
    _note_ends(b, _either_end(*ends))
    rooms = tuple(b.room(v.shape, v.dtype, f"either{k}", out)
                  for k, (v, out) in enumerate(zip(made[0], outs)))
    one, two = (_program(b, tag, steps, [], [v.buffer for v in own], None)
                for tag, steps, own in bodies)
    b.append(Branch(b.names.claim(f"{b.node.label}_branch"), b.buffer(cond), (one, two),
                    tuple(v.buffer for v in rooms), b.origin))
    return rooms


def _note_ends(b: "Builder", ends: Iterable[Limit]) -> None:
    """Enter ends of ranges that a body implies of where it stands."""
    (b.ends if b.in_body else b.limits).extend(ends)


def _either_end(one: Sequence[Limit], two: Sequence[Limit]) -> Iterator[Limit]:
    """The ends of ranges that both of two bodies imply, of which one runs: the wider ones."""
    def joined(limits: Sequence[Limit], sym: Sym) -> tuple[int | None, int | None]:
        los = [x.lo for x in limits if x.sym == sym and x.lo is not None]
        his = [x.hi for x in limits if x.sym == sym and x.hi is not None]
        return max(los, default=None), min(his, default=None)
    for limit in {x.sym: x for x in one}.values():
        (lo, hi), (other_lo, other_hi) = (joined(x, limit.sym) for x in (one, two))
        lo = None if lo is None or other_lo is None else min(lo, other_lo)
        hi = None if hi is None or other_hi is None else max(hi, other_hi)
        if lo is not None or hi is not None:
            yield replace(limit, lo=lo, hi=hi)


def _outputs(b: "Builder", vals: Iterable[Val], tag: str, taken: Iterable[str] = ()) -> list[Val]:
    """The Vals as outputs of the body being built: each in a buffer of its own."""
    out, used = [], set(taken)
    for k, v in enumerate(vals):
        out.append(b.body_output(v, f"{tag}{k}", used))
        used.add(out[-1].buffer)
    return out


def _same(a: Shape, b: Shape) -> bool:
    return len(a) == len(b) and all(map(are_equal, a, b))


def _demand_even(b: "Builder", steps: Iterable[Step], turn: Sym) -> None:
    """UnsupportedError where a shape, or what must hold at entry, depends on the round."""
    for s in steps:
        for o in s.outs:
            if any(turn in walk(d) for d in b.buffers[o].shape):
                made = show_type((b.buffers[o].dtype, b.buffers[o].shape))
                raise refuse_varying(b, f"{', '.join(map(shorten, s.origin))} makes {made}, of "
                                     "which the round decides the extents,")
    for e in (*b.checks, *(e for p in b.equal for e in p)):
        if turn in walk(e):
            raise refuse_varying(b, f"a rule of extents that depends on the round, {show(e)},")


def refuse_varying(b: "Builder", what: str) -> UnsupportedError:
    """For a body that is no region: ``what`` it does that differs from round to round in more than
    values."""
    return b.unsupported(what, "keep what a round makes of one shape, or make the number of rounds "
                         f"a constant of at most {MOST_UNROLLED}")


def _program(b: "Builder", name: str, steps: Sequence[Step], inputs: Sequence[str],
             outputs: Sequence[str], turn: Sym | None) -> Program:
    """The body with these steps; what it reads of the Program around it are inputs, too."""
    made = {o for s in steps for o in s.outs}
    read = dict.fromkeys(i for s in steps for i in s.inputs if i not in made)
    captured = [i for i in read if i not in b.consts and i not in inputs]
    roles = {**dict.fromkeys((*inputs, *captured), "input"), **dict.fromkeys(outputs, "output")}
    buffers = {n: replace(b.buffers[n], role=roles.get(n, b.buffers[n].role), onnx="")
               for n in dict.fromkeys((*inputs, *read, *made))}
    consts = {n: b.consts[n] for n in read if n in b.consts}
    syms = (*b.graph.syms, *b.rounds, *([turn] if turn is not None else ()))
    return update(Program(name, (*inputs, *captured), tuple(outputs), buffers, consts,
                          tuple(steps), syms))


__all__ = ["MOST_UNROLLED", "Ends", "attempt", "branch", "run_and_undo", "loop", "refuse_varying"]
