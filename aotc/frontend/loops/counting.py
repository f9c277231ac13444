"""What a Loop's body counts for itself: states that go up or down by the same number in each round
are arithmetic of the round's, and a condition on those is a number of rounds.  Exporters of
``while`` write a trip count without an end, counters, and a condition that compares them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx

from aotc.frontend.building.bodies import run_and_undo
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import reads_data
from aotc.frontend.building.rational import ratio
from aotc.frontend.building.symbolic import cast, tidy
from aotc.frontend.building.values import Val
from aotc.frontend.graph import Body, Node
from aotc.frontend.loops.rounds import Turn
from aotc.ir.dtypes import DTYPES, INDEX, is_float
from aotc.ir.expr import (
    Binary,
    Const,
    Expr,
    Sym,
    Unary,
    Var,
    Where,
    compare,
    leaves,
    maximum,
    minimum,
    substitute,
)
from aotc.ir.simplify import proves, simplify, split_linear

MOST_NODES = 64  # of a body that count
WHOLE = 1 << 24  # whole numbers up to this one are what they are in every float dtype that counts
_FLIPPED = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
_SHAPES = ("Shape", "Size")
_CONDITIONS = frozenset("And Or Xor Not Equal Less LessOrEqual Greater GreaterOrEqual".split())
BOOL = int(onnx.TensorProto.BOOL)


@dataclass(frozen=True)
class Counter:
    """A state that is ``start`` + ``step`` * round before each round."""

    start: Expr
    step: Expr

    def at(self, turn: Expr) -> Expr:
        return simplify(self.start + self.step * turn)


@dataclass(frozen=True)
class Counted:
    """``counters``: by number of the state; ``same``: states that no round changes; ``rounds``: the
    most that the conditions leave, an index expression, None where they leave any number;
    ``data``: whether data, too, may end the loop before that; ``first``: whether there is a first
    round, None where data say that."""

    counters: Mapping[int, Counter]
    same: frozenset[int] = frozenset()
    rounds: Expr | None = None
    data: bool = True
    first: Expr | None = None


def find_counted(b: Builder, body: Body, alive: Val, states: Sequence[Val]) -> Counted:
    """What the body of the Loop that is being built counts, whose states begin as ``states``;
    ``alive``: whether there is a first round."""
    light = _Light(b, body, states)
    same = frozenset(k for k in range(len(states))
                     if light.plain(body.outputs[1 + k]) == body.inputs[2 + k])
    counters = light.counters(same)
    first = _known(b, alive)
    parts, data = light.conditions(counters)
    rounds = _rounds(parts, light.turn, first)
    return Counted(counters, same, rounds, data, first)


class _Light:
    """The nodes of a body that compute with numbers known in each round: constants, extents, the
    round's own number and counters."""

    def __init__(self, b: Builder, body: Body, states: Sequence[Val]) -> None:
        self.b, self.body, self.states = b, body, states
        self.maker = {o: n for n in body.nodes for o in n.outputs if o}
        self.turn = Sym(f"~{b.node.label}_round", 0, None)

    def plain(self, name: str) -> str:
        """The tensor that a name stands for."""
        n = self.maker.get(name)
        while n is not None and not n.domain and (n.op == "Identity" or self.is_bool(n)):
            name = n.inputs[0]
            n = self.maker.get(name)
        return name

    def is_bool(self, n: Node) -> bool:
        """True for a Cast of a bool to one."""
        made = self.maker.get(n.inputs[0]) if n.op == "Cast" and n.attr("to") == BOOL else None
        return made is not None and made.op in _CONDITIONS

    def counters(self, same: frozenset[int]) -> dict[int, Counter]:
        starts = {k: e for k, v in enumerate(self.states)
                  if k not in same and (e := _number(self.b, v)) is not None}
        while starts:
            own = {k: Var(f"~state{k}") for k in starts}
            names = [self.body.outputs[1 + k] for k in starts]
            after = self.values(names, own)
            found = {}
            for k, name in zip(starts, names):
                e = after.get(name)
                whole = None if e is None else _whole(e)
                parts = None if whole is None else split_linear(whole, own[k])
                if parts is not None and parts[0] == Const(1) and not any(
                        isinstance(n, Var) or n == self.turn for n in leaves(parts[1])):
                    found[k] = Counter(starts[k], parts[1])
            if len(found) == len(starts):
                return found
            starts = {k: starts[k] for k in found}
        return {}

    def conditions(self, counters: Mapping[int, Counter]) -> tuple[list[Expr], bool]:
        """(conditions on the round and extents for there to be another one; whether there are
        others)."""
        names = list(self.parts(self.body.outputs[0]))
        values = self.values(names, {k: c.at(self.turn) for k, c in counters.items()})
        found = _unproved(e for e in map(values.get, names) if e is not None)
        unknown = [e for e in found if _end(e, self.turn) is None]
        return found, bool(unknown) or any(n not in values for n in names)

    def parts(self, name: str) -> Iterable[str]:
        """The tensors that must all hold for a condition."""
        name = self.plain(name)
        n = self.maker.get(name)
        if n is not None and n.op == "And" and not n.domain:
            for i in n.inputs:
                yield from self.parts(i)
        elif n is not None and n.op == "If" and self.never(n.attr("else_branch")):
            # ``a and b`` of TorchScript: b is looked at where a holds
            yield from self.parts(n.inputs[0])
            self.enter(n.attr("then_branch"))
            yield from self.parts(n.attr("then_branch").outputs[0])
        elif name != self.body.inputs[1]:  # which holds in a round that runs
            yield name

    def never(self, branch: Body) -> bool:
        """True for a branch whose one result is the constant false."""
        name = branch.outputs[0]
        for n in reversed(branch.nodes):
            if name in n.outputs and n.op == "Identity":
                name = n.inputs[0]
        held = branch.constants.get(name, self.body.constants.get(name))
        if held is not None:
            return held.size == 1 and not held.any()
        v = self.b.env.get(name) if name not in self.maker else None
        return isinstance(v, Val) and _known(self.b, v) == Const(False, "bool")

    def enter(self, branch: Body) -> None:
        """The nodes of a branch become some of the body."""
        self.body = replace(self.body, nodes=(*self.body.nodes, *branch.nodes),
                            constants={**self.body.constants, **branch.constants},
                            stored={**self.body.stored, **branch.stored})
        self.maker.update((o, n) for n in branch.nodes for o in n.outputs if o)

    def values(self, names: Sequence[str], own: Mapping[int, Expr]) -> dict[str, Expr]:
        """The tensors of one element that are known in each round, ``own`` being states' values:
        each by its name."""
        nodes = self.nodes(names, own)
        made = {o for n in nodes for o in n.outputs}
        known = {*self.body.inputs, *self.body.constants}
        asked = [n for n in dict.fromkeys(names) if n in made or n in known or (
            n not in self.maker and _light(self.b, n))]
        if len(nodes) > MOST_NODES or not asked:
            return {}
        small = replace(self.body, nodes=tuple(nodes), outputs=tuple(asked), types=())
        return run_and_undo(self.b, lambda: self.elements(small, own)) or {}

    def nodes(self, names: Iterable[str], own: Mapping[int, Expr]) -> list[Node]:
        """The nodes that the tensors are made of, of those that data decides nothing of."""
        b, body = self.b, self.body
        given = {body.inputs[0], body.inputs[1], *(body.inputs[2 + k] for k in own),
                 *body.constants}
        heavy = set(body.inputs) - given
        light: list[Node] = []
        for n in body.nodes:
            ins = [i for i in (*n.inputs, *n.captures) if i]
            if n.op in _SHAPES and not n.domain and ins[0] not in self.maker or all(
                    i in given or i not in heavy and i not in self.maker and _light(b, i)
                    for i in ins):
                light.append(n)
                given.update(n.outputs)
        needed, out = set(names), []
        for n in reversed(light):
            if needed.intersection(n.outputs):
                needed.update((*n.inputs, *n.captures))
                out.append(n)
        return out[::-1]

    def elements(self, small: Body, own: Mapping[int, Expr]) -> dict[str, Expr]:
        b = self.b
        b.turns[self.turn] = Turn(Const(1 << 40), False)
        with b.body(self.turn):
            vals = [b.value((), lambda _: self.turn), b.scalar_val(True, "bool")]
            for k, v in enumerate(self.states):
                vals.append(make_state(v, own[k]) if k in own else
                            b.body_input(v.shape, v.dtype, "seen"))
            outs = b.inline(small, vals, "counted")
            made = {name: _known(b, v) for name, v in zip(small.outputs, outs)
                    if isinstance(v, Val)}
        return {name: e for name, e in made.items() if e is not None}


def _light(b: Builder, name: str) -> bool:
    """True for a tensor outside that data decides nothing of."""
    v = b.env.get(name)
    return isinstance(v, Val) and not b.known.is_data(v)


def make_state(v: Val, e: Expr) -> Val:
    """A state of one element like ``v`` with this value."""
    return Val(v.shape, v.dtype, fn=lambda index: cast(v.dtype, e))


def _known(b: Builder, v: Val) -> Expr | None:
    """The one element of a tensor as an expression of extents and rounds; None for data."""
    if v.size != 1:
        return None
    v = b.known(v)
    e = tidy(b.at(v, (Const(0),) * v.rank))
    return None if reads_data(e) else e


def _whole(e: Expr) -> Expr | None:
    """A number as an index expression; None for one that is not whole."""
    if is_float(e.dtype):
        parts = ratio(e)
        return parts[0] if parts is not None and parts[1] == Const(1) else None
    return simplify(cast(INDEX, e)) if DTYPES[e.dtype].kind in "iu" else None


def _number(b: Builder, v: Val) -> Expr | None:
    """Where a state of one element begins, as an index expression; None for data."""
    e = _known(b, v) if v.dtype != "bool" else None
    whole = None if e is None else _whole(e)
    return whole if whole is not None and not any(
        is_float(n.dtype) for n in leaves(whole)) else None


# ---------------------------------------------------------------- conditions

def _rounds(conds: Sequence[Expr], turn: Sym, first: Expr | None) -> Expr | None:
    """The most rounds while all conditions hold after each; ``first``: whether there is one, None
    if data say that.  None if the conditions leave any number."""
    found = [_end(c, turn) for c in conds]
    ends = [e for e in found if e is not None]
    if first == Const(False, "bool"):
        return Const(0)
    if not ends:
        return None
    end = ends[0]
    for other in ends[1:]:
        end = minimum(end, other)
    # as they were before the first round, where they are what decides that there is one
    before = [tidy(substitute(c, {turn: Const(-1)})) for c in conds]
    asked = set() if first is None else set(_unproved([first]))
    if len(ends) == len(found) and set(_unproved(before)) == asked:
        return simplify(maximum(end + 1, Const(0)))
    rounds = maximum(end, Const(0)) + 1
    return simplify(rounds if not asked or first is None else Where(first, rounds, Const(0)))


def _unproved(conds: Iterable[Expr]) -> list[Expr]:
    """The conditions that all of them are made of, without those that always hold."""
    out: list[Expr] = []
    for cond in conds:
        cond = simplify(cond)
        if isinstance(cond, Binary) and cond.op in _FLIPPED and DTYPES[cond.a.dtype].kind in "iu":
            cond = simplify(compare(cond.op, cast(INDEX, cond.a), cast(INDEX, cond.b)))
        x = cond.x if isinstance(cond, Unary) and cond.op == "not" else cond
        if isinstance(x, Binary) and x.op == ("and" if x is cond else "or"):
            out += _unproved([x.a, x.b] if x is cond else [Unary("not", x.a), Unary("not", x.b)])
        elif isinstance(x, Binary) and x is not cond and x.op in _FLIPPED:
            out += _unproved([compare(_FLIPPED[x.op], x.a, x.b)])
        elif isinstance(x, Unary) and x is not cond and x.op == "not":
            out += _unproved([x.x])
        elif not proves(cond):
            out.append(cond)
    return out


def _end(cond: Expr, turn: Sym) -> Expr | None:
    """The first round, counted from 0, after which a condition does not hold, if it holds up to it
    (below 0 as well as 0: after none); None if that cannot be said."""
    if isinstance(cond, Const):
        return None if cond.value else Const(0)
    return _compared(cond, turn) if isinstance(cond, Binary) and cond.a.dtype == INDEX else None


def _compared(cond: Binary, turn: Sym) -> Expr | None:
    a, b = (cond.b, cond.a) if cond.op in ("gt", "ge") else (cond.a, cond.b)
    # what must not be above 0, or must not be 0
    over = simplify(a - b + (1 if cond.op in ("lt", "gt") else 0))
    parts = split_linear(over, turn)
    if parts is None or not isinstance(parts[0], Const):
        return None
    step, rest = parts[0].value, parts[1]
    if cond.op == "ne":
        at = simplify(0 - rest if step > 0 else rest)
        return at if abs(step) == 1 and proves(compare("ge", at, Const(-1))) else None
    if cond.op not in ("lt", "le", "gt", "ge") or step <= 0:
        return None
    return simplify((0 - rest) // step + 1)


def checks_of_floats(b: Builder, states: Sequence[Val], found: Counted, trip: Expr) -> None:
    """Demand that counters in floats stay whole numbers."""
    for k, c in found.counters.items():
        if is_float(states[k].dtype):
            for e in (c.start, c.at(trip)):
                for sign in (1, -1):
                    b.require("le", e * sign, Const(WHOLE), "a counter in floats stays exact")


__all__ = ["Counted", "Counter", "checks_of_floats", "find_counted", "make_state"]
