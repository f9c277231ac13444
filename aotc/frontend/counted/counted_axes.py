"""Any operator along axes of which data says how many elements there are
(``frontend/counted_tensors.py``).
Its function builds it for an extent that a symbol stands for, as along a free dimension.
In what it made the symbol becomes the number of elements that there are where its value counts, and
the room for them where memory is laid out.  Folds leave out what lies behind the number, places
that depend on it stay inside, and an extent of a result that the symbol decides is a number of
elements itself."""

from collections.abc import Callable
from dataclasses import replace

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import expect, reads_data
from aotc.frontend.building.known import choose_element, follow_loads
from aotc.frontend.building.values import Index, Result, Val, Value
from aotc.frontend.counted.counted_steps import Unbounded, Written
from aotc.frontend.graph import Node, shorten
from aotc.frontend.ops.numeric.ops_math import quotient
from aotc.frontend.refusals import Refusal
from aotc.frontend.row_values import Row
from aotc.ir.expr import (
    Binary,
    Const,
    Expr,
    Sym,
    Where,
    any_holds,
    compare,
    leaves,
    loads,
    maximum,
    minimum,
    rewrite,
    substitute,
    walk,
)
from aotc.ir.program import Step
from aotc.ir.simplify import are_equal, simplify, upper

Call = Callable[[Node, Builder], Result]
ZERO, ONE = Const(0), Const(1)
# operators whose extents are sums of numbers that data says, in which terms cancel: symbols first
EXACT = frozenset({"Pad"})
_FEW = 16  # elements of a parameter: extents of a shape, twice
INSTEAD = ("element-wise operators, sums, products, convolutions, pools, norms, recurrent layers "
           "and what moves elements may follow: write it as those, or cut the model in front of it")


def build_along_axes(node: Node, b: Builder, call: Call, shapes: bool = False) -> Result:
    """The node's Vals, whose numbers of elements are entered; ``shapes``: only those are wanted,
    and nothing is computed.  UnsupportedError where its operator does not take a free extent there,
    or what it makes is no tensor expression."""
    symbols = _Symbols(b)
    inner = symbols.renamed(node)
    steps, checks, counts = len(b.steps), set(b.checks), len(b.counts)
    limits, equal = len(b.limits), set(b.equal)
    b.node = inner
    try:
        made = call(inner, b)
    except Refusal as err:
        b.node = node
        raise symbols.refused(err.what, err.instead) from None
    b.node = node
    written = Written(b, symbols.numbers, symbols.rooms)
    new, b.steps[steps:] = b.steps[steps:], []
    b.limits[limits:] = [x for x in b.limits[limits:] if x.sym.name not in symbols.names]
    for pair in set(b.equal) - equal:
        if any(symbols.used(e) for e in pair):
            del b.equal[pair]
    rules = [(c, b.checks.pop(c)) for c in list(b.checks) if c not in checks and symbols.used(c)]
    try:
        b.counts[counts:] = [(total, written.room(extent), maker)
                             for total, extent, maker in b.counts[counts:]]
        for cond, why in rules:
            symbols.demand(cond, why, written)
        for step in written.steps(new):
            if shapes:
                _dropped(b, step)
            else:
                b.append(step)
        vals = made if isinstance(made, tuple) else (made,)
        out = tuple(symbols.entered(node, k, v, written) for k, v in enumerate(vals))
    except Unbounded as err:
        raise symbols.refused(str(err), INSTEAD) from None
    if isinstance(made, tuple):
        return out
    assert out[0] is not None, node
    return out[0]


class _Symbols:
    """The symbols that stand for the numbers of elements among a node's inputs."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.of: dict[int, Sym] = {}  # number of Builder.counts -> its symbol
        self.numbers: dict[Sym, Expr] = {}
        self.rooms: dict[Sym, Expr] = {}

    @property
    def names(self) -> set[str]:
        return {s.name for s in self.numbers}

    def used(self, e: Expr) -> bool:
        return not leaves(e).isdisjoint(self.numbers)

    def symbol(self, start: int) -> Sym:
        if start not in self.of:
            total, room, maker = self.b.counts[start]
            sym = Sym(f"elements_{start}_of_{maker.label}", 0, upper(room))
            self.of[start] = sym
            self.numbers[sym], self.rooms[sym] = self.b.load(total, ()), room
        return self.of[start]

    def refused(self, what: str, instead: str) -> Exception:
        """The refusal of the current node, which names those that the numbers come from."""
        makers = dict.fromkeys(self.b.counts[start][2] for start in self.of)
        names = " and ".join(f"{shorten(n.label)!r} ({n.op})" for n in makers)
        return self.b.unsupported(f"it needs to know how many elements {names} gives, which data "
                                  f"says: {what}", instead)

    def renamed(self, node: Node) -> Node:
        """The node, its inputs with symbols in the place of numbers of elements."""
        b, names = self.b, {}
        for i in dict.fromkeys(node.inputs):
            v = b.env[i] if i else None
            seen = self.seen(i, v) if isinstance(v, Val) else v
            if seen is not v and seen is not None:
                names[i] = f"{i}_along_{node.outputs[0]}"
                b.env[names[i]] = seen
        return replace(node, inputs=tuple(names.get(i, i) for i in node.inputs))

    def seen(self, tensor: str, v: Val) -> Val:
        rows = self.b.rows.get(tensor, ())
        if rows:
            for r in rows:
                v = extend_to_room(self.b, v, r)
            shape = list(v.shape)
            for r in rows:
                shape[r.axis] = self.symbol(r.start)
            return replace(v, shape=tuple(shape))
        return self.parameter(v)

    def parameter(self, v: Val) -> Val:
        """Small integers, or what they are as floats, that tell numbers of elements: told by
        symbols."""
        if v.array is not None or v.size is None or v.size > _FEW or v.rank > 1:
            return v
        points: list[Index] = [()] if v.rank == 0 else [(Const(k),) for k in range(v.size)]
        told = [self.told(self.b.at(v, p)) for p in points]
        values = [e for e in told if e is not None]
        if len(values) < len(told) or not any(map(self.used, values)):
            return v
        return Val(v.shape, v.dtype, name=v.name, stored=v.stored,
                   fn=lambda index: choose_element(values, index[0] if index else ZERO))

    def told(self, e: Expr) -> Expr | None:
        """An element with symbols in the place of numbers of elements; None if other data is in
        it."""
        starts = {self.b.load(t, ()): k for k, (t, *_) in enumerate(self.b.counts)}
        for source in (e, follow_loads(self.b, e)):
            known: dict[Expr, int] = {n: starts[n] for n in loads(source) if n in starts}
            known |= {n: self.b.said[n] for n in walk(source) if n in self.b.said}
            found = simplify(rewrite(source, _floored, {
                n: self.symbol(k) for n, k in known.items()}))
            if not reads_data(found):
                return found
        return None

    def demand(self, cond: Expr, why: str, written: Written) -> None:
        """The rule that a condition holds for the elements that there are; none ask for nothing."""
        none = [compare("eq", self.numbers[s], ZERO) for s in self.numbers if s in leaves(cond)]
        held = any_holds([written.value(cond), *none])
        assert held is not None, cond
        what = why.split(": ", 1)[1].rsplit(": ", 1)[0] if ": " in why else why
        expect(self.b, [(Where(held, ONE, ZERO), ONE)],
               f"{what}, of the elements that there are (1: it holds), it is")

    def entered(self, node: Node, k: int, v: Value | None, written: Written) -> Value | None:
        """A result, with rows where numbers of elements are extents of it."""
        b = self.b
        if not isinstance(v, Val):
            return v
        wide = b.wide.get(v)
        out = written.val(v)
        if wide is not None:
            b.wide[out] = written.val(wide)
        tensor = node.outputs[k] if k < len(node.outputs) else ""
        for axis, d in enumerate(v.shape):
            if self.used(d) and tensor:
                start = self.number(d, out.shape[axis], node)
                b.rows[tensor] = (*b.rows.get(tensor, ()), Row(tensor, axis, start, False))
        return out

    def number(self, extent: Expr, room: Expr, node: Node) -> int:
        """The place among ``Builder.counts`` of a number of elements that an extent says."""
        b = self.b
        own = {s: start for start, s in self.of.items()}
        if isinstance(extent, Sym):
            return own[extent]
        roots = {s: b.derived.get(start, self.numbers[s]) for s, start in own.items()}
        key = simplify(substitute(extent, roots))
        known = next((start for start, (total, *_) in enumerate(b.counts)
                      if key == b.derived.get(start, b.load(total, ()))), None)
        if known is not None and are_equal(b.counts[known][1], room):
            return known
        number = substitute(extent, self.numbers)
        total = b.compute((), maximum(minimum(number, room), ZERO), tag="count")
        b.derived[len(b.counts)] = key
        first = next(start for s, start in own.items() if s in leaves(extent))
        b.counts.append((total, room, b.counts[first][2]))
        return len(b.counts) - 1


def _dropped(b: Builder, step: Step) -> None:
    """Forget a step that nothing reads, and its names."""
    for out in step.outs:
        del b.buffers[out]
        b.known.maker.pop(out, None)
        b.names.taken.discard(out.lower())


def extend_to_room(b: Builder, v: Val, row: Row) -> Val:
    """``v`` with all the room along an axis that there is for its elements."""
    room, own = b.counts[row.start][1], v.shape[row.axis]
    if are_equal(own, room):
        return v
    zero = Const(False if v.dtype == "bool" else 0, v.dtype)
    return b.map((*v.shape[:row.axis], room, *v.shape[row.axis + 1:]), lambda i: Where(
        compare("lt", i[row.axis], own), b.at(v, i), zero), [v], "room")


def _floored(e: Expr) -> Expr | None:
    """A quotient that truncates in floor divisions, which bounds are known of."""
    return quotient(e.a, e.b) if isinstance(e, Binary) and e.op == "div" else None


def has_numbers(b: Builder, node: Node) -> bool:
    """True if numbers of elements are extents or small integers among a node's inputs."""
    if any(i in b.rows for i in node.inputs):
        return True
    symbols = _Symbols(b)
    vals = [b.env[i] for i in node.inputs if i]
    return any(isinstance(v, Val) and symbols.parameter(v) is not v for v in vals)


__all__ = ["EXACT", "Call", "build_along_axes", "has_numbers", "extend_to_room"]
