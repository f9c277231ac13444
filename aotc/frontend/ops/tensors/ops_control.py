"""If, and what all control flow shares.  A sub-graph is built in place, its inputs bound to Vals.

A condition that is known while compiling chooses its branch.  Where it is data, the branches become
a region, of which one runs; where they are a few elements' arithmetic, both are computed and one
is picked."""

from collections import abc
from functools import partial

from aotc.errors import AotcError, ModelError, UnsupportedError
from aotc.frontend.building.bodies import attempt, branch, run_and_undo
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.values import Absent, Result, Sequence, Val, Value
from aotc.frontend.counted_branches import choose_counted, run_one_with_room, tensors_of
from aotc.frontend.graph import Body, Node, shorten
from aotc.frontend.loops.rounds import counts_rounds
from aotc.frontend.ops.tensors.ops_shape import concat
from aotc.frontend.readings import choose_reading, list_deciding, negate_condition
from aotc.frontend.refusals import Refusal, Undecided, check_supported, refuse_unknown
from aotc.ir.expr import Const, Expr, Load, Sym, Where, loads, substitute, walk
from aotc.ir.program import Branch, Compute
from aotc.ir.simplify import simplify

FEW = 64  # nodes of all rounds together, up to which a loop is unrolled
TRIED = 13  # values of the symbols at which two extents are compared
SLIGHT = 4  # steps of both branches: fewer and simple ones are not worth a branch


class Slight(UnsupportedError):
    """Branches that are computed more cheaply than chosen."""


@op("If")
def if_op(node: Node, b: Builder) -> Result:
    cond = condition(b, b.input(0))
    branches = [node.attr(k) for k in ("then_branch", "else_branch")]
    known = b.scalar(cond)
    if known is not None:
        body = branches[0 if known else 1]
        check_supported(b.graph, body.nodes)
        return results(b.inline(body, (), made=node.outputs))
    _check_branches(b, cond, branches)
    if len(branches[0].outputs) != len(branches[1].outputs):
        raise b.bad("branches with {} and {} outputs".format(*(len(x.outputs) for x in branches)))
    holds = element(b, b.known(cond))
    if loads(holds) or counts_rounds(holds, b.turns):
        return results(_by_data(b, cond, branches))
    if node.outputs[0] not in b.graph.readings:
        try:
            return results(_by_data(b, cond, branches))
        except Undecided:
            raise
        except (UnsupportedError, ModelError) as err:
            fault = err
        refusal = fault if isinstance(fault, Refusal) else _of_one_rank(b, holds, str(fault))
    else:
        refusal = _of_one_rank(b, holds, "other extents")
    run, = choose_reading(b, {(0,): [holds], (1,): [negate_condition(holds)]},
                          "the branch runs that the rest of the model takes", refusal)
    return results(b.inline(branches[run], ()))


def _check_branches(b: Builder, cond: Val, branches: abc.Sequence[Body]) -> None:
    """UnsupportedError for operators without an implementation; where those of one branch have
    one, what makes it the only one is proposed."""
    try:
        check_supported(b.graph, [n for body in branches for n in body.nodes])
    except UnsupportedError as err:
        if all(refuse_unknown(b.graph, body.nodes) for body in branches):
            raise
        raise b.unsupported(f"branches of which only one compiles: {err}",
                            _settled(b, cond)) from None


def _of_one_rank(b: Builder, holds: Expr, what: str) -> Refusal:
    return b.unsupported(f"branches of which extents decide which runs: {what}",
                         _pinned(b, holds))


def _pinned(b: Builder, holds: Expr) -> str:
    names = list_deciding(b, [holds])
    return "pin the dimensions that decide it: " + ", ".join(f"--dim {n}=EXTENT" for n in names)


def _by_data(b: Builder, cond: Val, branches: abc.Sequence[Body]) -> abc.Sequence[Value]:
    """The results of a branch that is chosen while running; where both do not compile together,
    what makes one the only one is proposed."""
    try:
        return _either_way(b, cond, branches)
    except Undecided:
        raise
    except (UnsupportedError, ModelError) as err:
        advice = _settled(b, cond)
        if not b.known.is_data(cond) or advice in str(err):
            raise
        raise b.unsupported("branches for a condition that is data, which do not compile together: "
                            f"{err}", advice) from None


def _either_way(b: Builder, cond: Val, branches: abc.Sequence[Body]) -> abc.Sequence[Value]:
    chosen = attempt(b, lambda: _one_runs(b, cond, branches))
    if isinstance(chosen, AotcError) and _other_extents(b, branches):
        runs = [partial(b.inline, body, ()) for body in branches]
        chosen = attempt(b, lambda: run_one_with_room(b, cond, runs))
    return _both_run(b, cond, branches) if isinstance(chosen, AotcError) else chosen


def _other_extents(b: Builder, branches: abc.Sequence[Body]) -> bool:
    """True if branches give a result along an axis other numbers of the same extents, which no call
    makes equal in general."""
    made = [m for body in branches if (m := run_and_undo(b, partial(
        tensors_of, b, partial(b.inline, body, ())))) is not None]
    return len(made) == 2 and any(
        _symbols(d) & _symbols(e) and d != e and not isinstance(simplify(d - e), Const)
        or _differ(d, e)
        for x, y in zip(*made) if x.rank == y.rank for d, e in zip(x.shape, y.shape))


def _one_runs(b: Builder, cond: Val, branches: abc.Sequence[Body]) -> tuple[Val, ...]:
    """The results of a region; Slight where that is not worth a branch."""
    before = len(b.steps)
    out = branch(b, cond, [partial(b.inline, body, ()) for body in branches],
                 range(len(branches[0].outputs)))
    made = [s for step in b.steps[before:] if isinstance(step, Branch)
            for body in step.bodies for s in body.steps]
    if len(made) <= SLIGHT and all(isinstance(s, Compute) and s.fold == "none" for s in made):
        raise Slight("branches of a few elements' arithmetic")
    return out


def _both_run(b: Builder, cond: Val, branches: abc.Sequence[Body]) -> list[Value]:
    names = [tuple(f"{o}_{side}" for o in b.node.outputs) for side in ("then", "else")]
    one, two = (b.inline(body, (), made=made) for body, made in zip(branches, names))
    return [choose_counted(b, cond, (x, y), tensors, k) if any(t in b.rows for t in tensors)
            else _either(b, cond, x, y, k)
            for k, (x, y, *tensors) in enumerate(zip(one, two, *names))]


def _either(b: Builder, cond: Val, one: Value, two: Value, out: int) -> Value:
    """One result of an If: of lists of one length each tensor."""
    if isinstance(one, Absent) and isinstance(two, Absent):
        return one
    lists = [v.vals for v in (one, two) if isinstance(v, Sequence)]
    if len(lists) == 2 and str(one) == str(two):
        return Sequence(tuple(_chosen(b, cond, x, y, f"either{out}_{j}", out)
                              for j, (x, y) in enumerate(zip(*lists))))
    if lists:
        raise b.unsupported(f"branches that give a {one} and a {two} for a condition that is data",
                            _settled(b, cond))
    return _chosen(b, cond, b.as_tensor(one), b.as_tensor(two), "", out)


def _chosen(b: Builder, cond: Val, x: Val, y: Val, tag: str, out: int) -> Val:
    if x.dtype != y.dtype or x.rank != y.rank or any(map(_differ, x.shape, y.shape)):
        kind = "is data" if b.known.is_data(cond) else "depends on extents"
        raise b.unsupported(f"branches that give {x} and {y} for a condition that {kind}",
                            _settled(b, cond))
    for d, e in zip(x.shape, y.shape):
        b.require("eq", d, e, "both branches of an If give the same shape")
    return pick(b, cond, x, y, tag, out)


def _differ(d: Expr, e: Expr) -> bool:
    """True if two extents are not the same: those that depend on the same symbols differ at one of
    a few values of them.  Extents of other symbols are a question for the call."""
    off = simplify(d - e)
    syms = sorted(_symbols(d) & _symbols(e), key=lambda s: s.name)
    if isinstance(off, Const) or _symbols(d) != _symbols(e):
        return isinstance(off, Const) and off.value != 0
    points = ({s: _value(s, TRIED * k + j) for j, s in enumerate(syms)} for k in range(TRIED))
    return any(simplify(substitute(off, p)) != Const(0) for p in points)


def _value(s: Sym, k: int) -> Const:
    return Const(s.lo + k if s.hi is None else min(s.lo + k, s.hi))


def _symbols(e: Expr) -> set[Sym]:
    return {n for n in walk(e) if isinstance(n, Sym)}


def condition(b: Builder, v: Value) -> Val:
    """A condition, which is one bool."""
    v = b.as_tensor(v)
    if v.dtype != "bool":
        raise b.bad(f"the condition must be one bool, it is {v}")
    for d in v.shape:
        b.require("eq", d, 1, "the condition is one bool")
    return v if v.size == 1 else Val((Const(1),) * v.rank, v.dtype, fn=lambda i: b.at(v, i))


def _settled(b: Builder, cond: Val) -> str:
    """What to do about a condition that is data: which inputs would settle it as constants."""
    if not b.known.is_data(cond):
        return _pinned(b, element(b, b.known(cond)))
    inputs = _sources(b, cond)
    if not inputs:
        return "make the condition constant"
    fixes = " ".join(f"--fix {shorten(i)}=VALUE" for i in inputs)
    keys = ", ".join(f"{i!r}: VALUE" for i in map(shorten, inputs))
    return (f"it depends on input {' and '.join(map(shorten, inputs))}: if that is a setting, make "
            f"it a constant with {fixes} (fix={{{keys}}})")


def _sources(b: Builder, v: Val) -> list[str]:
    """ONNX names of the model's inputs whose elements a Val depends on, in their order."""
    todo, seen = [n.buffer for n in walk(element(b, v)) if isinstance(n, Load)], set()
    made = {o: s for s in (*b.outside, *b.steps) for o in s.outs}
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += made[name].inputs if name in made else ()
    return [t.name for t in b.graph.inputs if b.preset[t.name] in seen]


def results(vals: abc.Sequence[Value]) -> Result:
    return tuple(vals) if len(vals) != 1 else vals[0]


def pick(b: Builder, cond: Val, x: Val, y: Val, tag: str = "", out: int = 0) -> Val:
    """``x`` where the bool ``cond`` of one element is true, else ``y`` (of the same shape)."""
    zero = (Const(0),) * cond.rank
    return b.map(x.shape, lambda i: Where(b.at(cond, zero), b.at(x, i), b.at(y, i)),
                 [cond, x, y], tag, out)


def element(b: Builder, v: Val) -> Expr:
    return b.at(v, (Const(0),) * v.rank)


def stack(b: Builder, values: abc.Sequence[Value], axis: int, out: int = 0) -> Val:
    """Tensors of one shape along a new axis."""
    def row(v: Val) -> Val:
        return Val(v.shape[:axis] + (Const(1),) + v.shape[axis:], v.dtype,
                   fn=lambda i: b.at(v, i[:axis] + i[axis + 1:]))
    return concat(b, [row(b.as_tensor(v)) for v in values], axis, "stacked", out)
