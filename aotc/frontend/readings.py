"""Results whose rank extents decide: of a Squeeze without axes, where an extent may be 1, and of an
If on extents whose branches make different shapes.  A Program has one rank per tensor: the one
that the rest of the model takes holds for all calls, and extents for which the model means another
are a fault."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from aotc.errors import ModelError, UnsupportedError
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import flag_any
from aotc.frontend.building.symbolic import Limit, limit_of, show_condition
from aotc.frontend.graph import Graph, shorten
from aotc.frontend.refusals import Refusal, Undecided, parts_of
from aotc.ir.conditions import conjuncts
from aotc.ir.expr import Binary, Const, Expr, Guarded, Sym, Unary, compare, walk
from aotc.ir.simplify import lower, simplify, upper

Reading = tuple[int, ...]  # the axes that a Squeeze removes; (the number of a branch,)
Ranks = Mapping[str, tuple[int | str | None, ...]]  # tensor -> its declared extents, None: any
MOST_BUILDS = 64  # that are tried for one model
_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}


# ---------------------------------------------------------------- one node

def choose_reading(b: Builder, options: Mapping[Reading, Sequence[Expr]], why: str,
                   refusal: Refusal) -> Reading:
    """Which of the ``options`` ({reading of the node's result: the conditions on extents under
    which the model means it}) holds for all calls; Undecided where that is not known."""
    found = b.graph.readings.get(b.node.outputs[0])
    if found is None or found not in options:
        raise Undecided(refusal, b.node, tuple(options))
    b.read.add(b.node.outputs[0])
    for cond in options[found]:
        assume(b, cond, why)
    return found


def assume(b: Builder, cond: Expr, why: str) -> None:
    """Demand a condition on extents: at entry, and inside of a region where its body runs.  Ranges
    that are not given become those in which it holds."""
    cond = simplify(cond)
    if cond == Const(False, "bool"):
        raise b.bad(f"{why}: that holds for no extents")
    if isinstance(cond, Const) or cond in b.assumed:
        return
    if b.in_body:
        b.compute((), Guarded("expected", flag_any([cond]), Const(1), b.rule(
            f"{why}, whether {show_condition(cond)} is")), tag="rule")
    else:
        b.check(cond, why)
    b.assumed = b.assumed | {cond}
    if b.trial:
        why = f"{why}, node {shorten(b.node.label)!r}"
        into = b.ends if b.in_body else b.limits
        into += [replace(x, why=why, firm=False) for x in _limits(cond)]


def _limits(cond: Expr) -> Iterator[Limit]:
    """The ends of ranges that a condition implies."""
    for part in conjuncts(cond):
        if not isinstance(part, Binary):
            continue
        ops: tuple[str, ...] = (part.op,)
        if part.op == "eq":
            ops = ("le", "ge")
        elif part.op == "ne":  # which narrows a range at its ends
            off = simplify(part.a - part.b)
            ops = ("gt",) if lower(off) == 0 else ("lt",) if upper(off) == 0 else ()
        found = (limit_of(simplify(compare(op, part.a, part.b))) for op in ops)
        yield from (x for x in found if x is not None)


def negate_condition(cond: Expr) -> Expr:
    """The condition that another one does not hold."""
    if isinstance(cond, Unary) and cond.op == "not":
        return cond.x
    if isinstance(cond, Binary) and cond.op in ("and", "or"):
        return Binary("or" if cond.op == "and" else "and", negate_condition(cond.a),
                      negate_condition(cond.b))
    if isinstance(cond, Binary) and cond.op in _OPPOSITE:
        return compare(_OPPOSITE[cond.op], cond.a, cond.b)
    return Unary("not", cond)


def list_deciding(b: Builder, exprs: Sequence[Expr]) -> list[str]:
    """Names of the dimensions in expressions, as the user knows them."""
    syms = {s for e in exprs for s in walk(e) if isinstance(s, Sym)}
    return [shorten(r.onnx or r.sym.name) for r in b.graph.dims if r.sym in syms]


# ---------------------------------------------------------------- the whole model

def decide_readings(graph: Graph, error: UnsupportedError, build: Callable[[Graph], Builder],
                    declared: Sequence[Ranks]) -> Graph:
    """The Graph with the readings that hold, where ``error`` was raised because they are not known;
    the same object if nothing says which.  ``build``: a trial build that ends at the first node
    that is refused; ``declared``: what the model states of tensors, the surest last: a reading that
    contradicts it is none, unless all do."""
    if not any(isinstance(p, Undecided) for p in parts_of(error)):
        return graph
    for ranks in (*declared, {}):
        search = _Search(build)
        search.run(replace(graph, ranks=dict(ranks)))
        if search.found:
            chosen = _common(search.likeliest())
            return replace(graph, readings=chosen) if chosen != graph.readings else graph
    return graph


class _Search:
    """All readings with which a model builds."""

    def __init__(self, build: Callable[[Graph], Builder]) -> None:
        self.build, self.left = build, MOST_BUILDS
        self.found: list[tuple[dict[str, Reading], int]] = []  # readings, places beyond the first

    def run(self, graph: Graph) -> None:
        self.left -= 1
        if self.left < 0:
            return
        try:
            made = self.build(graph)
        except Undecided as err:
            for reading in err.readings:
                self.run(replace(graph, readings={**graph.readings, err.result: reading}))
        except (UnsupportedError, ModelError, ValueError):
            return
        else:
            used = {k: v for k, v in graph.readings.items() if k in made.read}
            if all(used != other for other, _ in self.found):
                self.found.append((used, made.beyond))

    def likeliest(self) -> list[dict[str, Reading]]:
        """Those that take the fewest elements at fixed places, beyond the first one, from axes of
        any extent: what is taken by its number has a fixed place."""
        least = min(n for _, n in self.found)
        return [used for used, n in self.found if n == least]


def _common(found: Sequence[dict[str, Reading]]) -> dict[str, Reading]:
    """What all of them have."""
    first, *rest = found
    return {k: v for k, v in first.items() if all(r.get(k) == v for r in rest)}
