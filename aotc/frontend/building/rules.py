"""Rules: what operators demand of extents and indices, and the messages where that does not hold.

A demand is proved while compiling, refused, or becomes a Check at entry; what data decides becomes
a ``Guarded`` value, whose fault names the node.
"""

from dataclasses import replace
from weakref import proxy

from aotc.errors import ModelError
from aotc.frontend.building import symbolic
from aotc.frontend.building.broadcast import WHY as BROADCAST
from aotc.frontend.building.broadcast import Joins
from aotc.frontend.building.declared import reads_data
from aotc.frontend.building.rational import truncate_while_exact
from aotc.frontend.building.symbolic import Limit
from aotc.frontend.building.values import Val, Value
from aotc.frontend.graph import Graph, Node, shorten
from aotc.frontend.loops import rounds
from aotc.frontend.refusals import Refusal
from aotc.frontend.row_values import Found, Row
from aotc.ir.dtypes import is_float
from aotc.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    ExprLike,
    Load,
    Shape,
    Sym,
    Where,
    as_expr,
    axes_of,
    check_index,
    compare,
    rewrite,
    walk,
)
from aotc.ir.simplify import proves, simplify

INSIDE = "index must lie inside the table"
OUTSIDE = Node("", "", (), (), {})  # the current node while none is being built


class Rules:
    """Rules of one build.  ``node``: the one being built; ``env``: the tensors made so far;
    ``trial``: only shapes and limits are wanted."""

    def __init__(self, graph: Graph, trial: bool) -> None:
        self.graph, self.trial, self.node = graph, trial, OUTSIDE
        self.env: dict[str, Value] = {}
        self.checks: dict[Expr, str] = {}  # condition at entry -> why
        self.limits: list[Limit] = []  # of symbols, in a trial build
        self.equal: dict[tuple[Expr, Expr], str] = {}  # extents that must be equal -> the node
        self.partial = False  # what is built is shapes alone
        # a region's body is built; what has been assumed there; the ends of ranges that it implies,
        # and those of the body before
        self.in_body, self.assumed = False, frozenset[Expr]()
        self.ends, self.left = list[Limit](), list[Limit]()
        self.read: set[str] = set()  # results whose readings were asked for (``readings.py``)
        self.beyond = 0  # fixed places after the first that are read along symbolic extents
        self.bounded: set[str] = set()  # names of bounds that say something
        self.guessed = False  # there is room for numbers that nothing bounds
        self.asked: dict[str, str] = {}  # nodes that a bound would do for -> how to give it
        # what data counts: (their number [], room for so many, the node that they come from)
        self.counts: list[tuple[Val, Expr, Node]] = []
        # place in counts of a number that others determine -> it, of loads of what data says
        self.derived: dict[int, Expr] = {}
        self.said: dict[Expr, int] = {}  # what such a number was computed from -> its place
        self.rows: dict[str, tuple[Row, ...]] = {}  # tensor -> its axes that data counts
        self.met = Found()  # what the node being built makes of them
        self.rounds: tuple[Sym, ...] = ()  # of the loops around what is being built
        self.turns: dict[Sym, rounds.Turn] = {}  # what is known of the rounds of all loops
        self.chosen = 0  # branches around it, of which data choose one
        # without a circle: the constants of a build are let go with its last reference
        self.joins = Joins(proxy(self), graph.learnt)

    # ------------------------------------------------------------ messages

    def where(self) -> str:
        """The node being built, for messages: label, operator, opset, input types."""
        n = self.node
        return f"node {shorten(n.label)!r} ({n.domain + '.' if n.domain else ''}{n.op}, " \
               f"opset {n.opset}, inputs {self._types() or 'none'})"

    def _types(self) -> str:
        return ", ".join("none" if not i else str(self.env[i]) for i in self.node.inputs)

    def unsupported(self, what: str, instead: str) -> Refusal:
        """UnsupportedError for the current node: what, and what to do instead."""
        return Refusal(self.node, self._types(), what, instead)

    def bad(self, what: str) -> ModelError:
        """ModelError for the current node."""
        return ModelError(f"{self.where()}: {what}")

    @property
    def origin(self) -> tuple[str, ...]:
        return (self.node.origin or (self.node.label,)) if self.node is not OUTSIDE else ()

    # ------------------------------------------------------------ rules

    def require(self, op: str, a: ExprLike, b: ExprLike, why: str) -> bool:
        """Demand ``a op b`` for all values of symbols and axes: proved, or refused, or a Check at
        entry.  In the trial build a condition on one symbol also narrows that symbol's range.
        False if it depends on axes, or on rounds, in a way that no entry check can state."""
        cond = simplify(compare(op, as_expr(a), as_expr(b)))
        if self.rounds and rounds.counts_rounds(cond, self.turns):
            return self._in_all_rounds(cond, why)
        if not isinstance(cond, Const) and axes_of(cond):
            stated = symbolic.remove_axes(cond)
            if stated is None:
                return False
            cond = stated
        if cond in self.assumed:
            return True
        if isinstance(cond, Const):
            if not cond.value:
                demanded = symbolic.show_condition(Binary(op, as_expr(a), as_expr(b)))
                raise self.bad(f"{why}: {demanded} does not hold"
                               + _ranges(as_expr(a) - as_expr(b)))
            return True
        if self.trial:
            if why != BROADCAST:  # an extent that must be n there may also be 1
                self.note(cond, why)
            if op == "eq":
                self.equal.setdefault((as_expr(a), as_expr(b)), self.node.label)
        if op == "eq" and why != BROADCAST:
            self.joins.note_equal(simplify(as_expr(a)), simplify(as_expr(b)))
        self.check(cond, why)
        return True

    def _in_all_rounds(self, cond: Expr, why: str) -> bool:
        """Demand a condition in every round of the loops around.  UnsupportedError where
        that is none on extents alone."""
        stated = rounds.require_in_rounds(cond, self.around())
        if stated is None or not (proves(stated) or self.all_run):
            raise self.unsupported(
                f"{why}: {symbolic.show_condition(cond)}, which rounds of the loop decide",
                "make it hold whatever the round")
        self.check(stated, why)
        return True

    def around(self) -> dict[Sym, rounds.Turn]:
        """What is known of the rounds of the loops around, outer ones first."""
        return {s: self.turns[s] for s in self.rounds}

    def settled(self, e: Expr) -> Expr:
        """An index expression in the simplest form that is equal in all rounds around."""
        return rounds.simplify_in_rounds(e, self.around()) if self.rounds else e

    @property
    def all_run(self) -> bool:
        """True if what is being built runs in every round that the loops around may have."""
        return not self.chosen and all(t.whole for t in self.around().values())

    def check(self, cond: Expr, why: str) -> None:
        """Demand a condition on symbols at entry."""
        cond = simplify(cond)
        if cond == Const(False, "bool"):
            raise self.bad(f"{why}: they do for no extents")
        if cond != Const(True, "bool") and cond not in self.assumed:
            self.checks.setdefault(cond, f"{self.rule(why)}: {symbolic.show_condition(cond)}")

    def whole(self, e: Expr) -> Expr:
        """An index expression without float arithmetic on extents, which is exact or, where its
        numbers may grow too large for that, has a Check.  UnsupportedError where it rounds."""
        if reads_data(e) or not _rounding(e):
            return e
        made = rewrite(e, self._exact)
        if _rounding(made):
            raise self.unsupported("a shape, axis or size whose float arithmetic on extents rounds "
                                   "where integers do not", "pin the dimensions that it depends on")
        return simplify(made)

    def _exact(self, e: Expr) -> Expr | None:
        if not isinstance(e, Cast) or is_float(e.dtype) or not is_float(e.x.dtype):
            return None
        found = truncate_while_exact(e.x)
        if found is None:
            return None
        exact, conds = found
        for cond in conds:
            self.check(cond, "float arithmetic on extents stays exact")
        return symbolic.cast(e.dtype, exact)

    def inside(self, i: Expr, n: Expr, why: str = INSIDE) -> Expr:
        """Index ``i`` into an extent ``n``, negative counting from the end: the plain index if
        that can be proved or checked at entry, else wrapped and checked at run time."""
        i = simplify(i)
        if any(isinstance(e, Load) for e in walk(i)):
            return self.from_end(i, n, why)
        if self.rounds and (rounds.counts_rounds(i, self.turns) or
                            rounds.counts_rounds(n, self.turns)):
            return self._inside_of_rounds(i, n, why)
        if not proves(compare("ge", i, Const(0))):
            i = simplify(Where(compare("lt", i, Const(0)), i + n, i))
            if not self.require("ge", i, 0, why):
                return self.from_end(i, n, why)
        return i if self.require("lt", i, n, why) else self.checked(i, n, why)

    def _inside_of_rounds(self, i: Expr, n: Expr, why: str) -> Expr:
        """``require_inside`` of an index that rounds decide: those that run may be fewer than there
        can be, so that what is not proved is checked in each."""
        conds = rounds.require_inside(i, n, self.around())
        place = rounds.wrap_index(i, n, self.around())
        if conds is None or conds and not self.all_run:
            return self.checked(place, n, why)
        for cond in conds:
            self.check(cond, why)
        return place

    def checked(self, i: Expr, n: ExprLike, why: str = INSIDE) -> Expr:
        """Index ``i`` from data into an extent ``n``: outside is a fault that names this node."""
        return check_index(i, n, self.rule(why))

    def from_end(self, i: Expr, n: Expr, why: str = INSIDE) -> Expr:
        """``checked`` for an index that counts from the end where it is negative."""
        return self.checked(Where(compare("lt", i, Const(0)), i + n, i), n, why)

    def nonempty(self, extent: ExprLike, shape: Shape, what: str) -> None:
        """Demand at entry that an axis of this extent has an element to read, unless the result
        of this shape has none that reads it."""
        if proves(compare("ge", as_expr(extent), Const(1))):
            return
        if self.rounds:
            some = rounds.require_in_rounds(compare("ge", as_expr(extent), Const(1)), self.around())
            if some is not None and (proves(some) or self.all_run):
                self.check(some, f"there must be {what}")
                return
        size: Expr = Const(1)
        for d in shape:
            size = size * d
        size = simplify(size)
        why = f"there must be {what}"
        if isinstance(size, Const):
            if size.value:
                self.require("ge", extent, 1, why)
            return
        self.check(Binary("or", compare("le", size, Const(0)),
                          compare("ge", as_expr(extent), Const(1))), why)

    def rule(self, why: str) -> str:
        """What a fault says that breaks a rule of the current node."""
        return f"{shorten(self.node.label)} ({self.node.op}): {why}"

    @property
    def only_shapes(self) -> bool:
        """In the trial build: True, and nothing else may come of it."""
        self.partial = self.trial
        return self.trial

    def note(self, cond: Expr, why: str) -> None:
        """In the trial build: a condition that a default range of a symbol should satisfy."""
        solved = symbolic.limit_of(cond) if self.trial else None
        if solved is not None:
            why = f"{why}, node {shorten(self.node.label)!r}"
            self.limits.append(replace(solved, why=why))


def _rounding(e: Expr) -> bool:
    return any(is_float(n.dtype) for n in walk(e))


def _ranges(e: Expr) -> str:
    """The ranges of the symbols in ``e``, for a message that a wider one might not need."""
    syms = sorted({f"{s.name} in {s.range}" for s in walk(e) if isinstance(s, Sym)})
    return f" for any {', '.join(syms)}: state other extents if the model allows" if syms else ""
