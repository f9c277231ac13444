"""Extents of model inputs: constants, named symbols, arithmetic on names, and their ranges."""

import ast
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import count

from aotc.errors import ModelError
from aotc.frontend.building.symbolic import Limit
from aotc.frontend.graph import DimRange, shorten
from aotc.frontend.read.identifiers import Names
from aotc.ir.expr import Const, Expr, Shape, Sym, rewrite
from aotc.ir.simplify import simplify

BATCH, OTHER = 64, 2048  # the largest extents that decisions reckon with where no range is given
_BATCH = re.compile(r"batch|^(n|b|bs|bsz)$|num_?(samples|images)", re.IGNORECASE)
_ARITH: dict[type[ast.operator], Callable[[Expr, Expr], Expr]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv}


Input = tuple[str, str, tuple[int | str | None, ...]]  # name, dtype, extents as the model has them
# an extent, the ends of a range, or the extents that there are
Range = int | tuple[int, int] | Set[int]
Given = Mapping[str, Range]  # dimension -> what the user says of it


@dataclass(frozen=True, init=False)
class Dims:
    """``ranges``: a DimRange per symbol; ``shapes``: {input: tuple of index expressions}."""

    ranges: tuple[DimRange, ...]
    shapes: tuple[tuple[str, Shape], ...]

    def __init__(self, inputs: Sequence[Input], given: Given) -> None:
        names = Names()
        symbols: dict[str, Expr] = {}
        ranges: dict[str, DimRange | None] = {}
        plain = _plain_names(inputs)
        named = {d for _, _, dims in inputs for d in dims if isinstance(d, str)}
        fresh = (f"d{k}" for k in count() if f"d{k}" not in named)
        shapes = []
        for tensor, _, dims in inputs:
            shape: list[Expr] = []
            for axis, d in enumerate(dims):
                own = f"{tensor}:{axis}"  # an axis that the user tells apart from its namesakes
                if own in given and own not in named:
                    if isinstance(d, int) and _given(own, given[own]) != (d, d, ()):
                        raise ModelError(f"dimension {shorten(own)!r} is {d} in the model, it "
                                         f"cannot be {given[own]!r}")
                    d = own
                    plain.discard(own)
                if isinstance(d, int):
                    shape.append(Const(d))
                    continue
                key = next(fresh) if d is None else d
                parsed = _parse(d, plain) if d is not None and d not in plain else None
                for part in sorted(parsed[1]) if parsed else (key,):
                    onnx = "" if d is None else part
                    _symbol(part, onnx, given, names, symbols, ranges)
                shape.append(parsed[0](symbols) if parsed else symbols[key])
            shapes.append((tensor, tuple(map(simplify, shape))))
        unknown = set(given) - set(symbols)
        if unknown:
            raise ModelError(f"the model has no dimension {shorten(sorted(map(str, unknown))[0])!r}"
                             f"; it has {', '.join(sorted(map(shorten, symbols))) or 'none'}")
        object.__setattr__(self, "ranges", tuple(r for r in ranges.values() if r is not None))
        object.__setattr__(self, "shapes", tuple(shapes))

    @cached_property
    def _shape_of(self) -> dict[str, Shape]:
        return dict(self.shapes)

    def shape(self, tensor: str) -> Shape:
        return self._shape_of[tensor]

    def narrow(self, limits: Iterable[Limit], equal: Mapping[tuple[Expr, Expr], str],
               empty: Collection[str] = ()) -> "Dims":
        """Dims with the symbols' ranges cut to ``limits``, and nameless symbols that ``equal``
        ({(a, b): node}) forces to be the same made one.  empty: names of symbols that may be 0
        where no range is given."""
        table = {r.sym.name: _from_zero(r) if r.sym.name in empty else r for r in self.ranges}
        for limit in limits:
            name = limit.sym.name
            table[name] = _cut(table[name], limit)
        swap: dict[Expr, Sym] = {r.sym: table[r.sym.name].sym for r in self.ranges}
        for (a, b), _ in equal.items():
            drop = next((s for s in (b, a) if isinstance(s, Sym) and not table[s.name].onnx
                         and table[s.name].source != "given"), None)
            keep = a if drop == b else b
            if drop is not None and isinstance(keep, Sym) and drop in swap and keep in swap \
                    and swap[drop].name == drop.name and swap[keep].name == keep.name \
                    and keep != drop:
                swap[drop] = swap[keep]
        return self._swapped(swap, table)

    def _swapped(self, swap: Mapping[Expr, Sym], table: Mapping[str, DimRange]) -> "Dims":
        out = object.__new__(Dims)
        kept = {s.name for s in swap.values()}
        object.__setattr__(out, "ranges", tuple(table[r.sym.name] for r in self.ranges
                                                if r.sym.name in kept))
        object.__setattr__(out, "shapes", tuple(
            (t, tuple(simplify(rewrite(d, swap.get)) for d in shape)) for t, shape in self.shapes))
        return out


def _cut(r: DimRange, limit: Limit) -> DimRange:
    """A DimRange within a Limit; ModelError if a range the user gave is not."""
    lo, hi = limit.lo, limit.hi
    ends = [end for end in (r.sym.hi, hi) if end is not None]
    new = (max(r.sym.lo, lo or 0), min(ends, default=None))
    if new == (r.sym.lo, r.sym.hi) or not limit.firm and (r.source == "given" or _empty(new)):
        return r
    if _empty(new) or r.source == "given":
        allowed = (f"at least {lo}" if hi is None else f"at most {hi}" if lo is None
                   else f"only {lo}")
        raise ModelError(f"dimension {shorten(r.onnx or r.sym.name)!r} is given as "
                         f"{r.sym.range}, but the model allows {allowed}: {limit.why}")
    return DimRange(Sym(r.sym.name, *new, r.sym.likely), r.onnx, "derived", limit.why, r.only)


def _from_zero(r: DimRange) -> DimRange:
    if r.source != "default" or not r.sym.lo:
        return r
    sym = Sym(r.sym.name, 0, r.sym.hi, r.sym.likely)
    return DimRange(sym, r.onnx, r.source, f"{r.why}; concatenated, so it may be empty")


def _empty(ends: tuple[int, int | None]) -> bool:
    return ends[1] is not None and ends[0] > ends[1]


def _plain_names(inputs: Sequence[Input]) -> set[str]:
    """Dimension names that stand alone somewhere: the ones arithmetic may refer to."""
    return {d for _, _, dims in inputs for d in dims if isinstance(d, str) and d.isidentifier()}


def _symbol(key: str, onnx: str, given: Given, names: Names, symbols: dict[str, Expr],
            ranges: dict[str, DimRange | None]) -> None:
    """Enter one dimension name; a pinned one becomes a Const."""
    if key in symbols:
        return
    if key in given:
        lo, hi, only = _given(key, given[key])
        if lo == hi:
            symbols[key], ranges[key] = Const(lo), None
            return
        sym, source, why = Sym(names.claim(key, keep_case=True, extent=True), lo, hi), "given", ""
    else:
        only = ()
        batch = _BATCH.search(key)
        sym = Sym(names.claim(key, keep_case=True, extent=True), 1, None, BATCH if batch else OTHER)
        source, why = "default", "a batch" if batch else "no range given"
    symbols[key], ranges[key] = sym, DimRange(sym, onnx, source, why, only)


def _given(key: str, value: Range) -> tuple[int, int, tuple[int, ...]]:
    """(lowest, highest, those that there are: () for all) of what the user says."""
    if isinstance(value, Set):
        if not value or not all(map(_extent, value)):
            raise ModelError(f"dimension {shorten(str(key))!r}: {value!r} is no set of extents, "
                             "each 0 or more")
        only = tuple(sorted(value))
        return only[0], only[-1], () if len(only) == 1 else only
    pair = value if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2 or not all(map(_extent, pair)) or pair[0] > pair[1]:
        raise ModelError(f"dimension {shorten(str(key))!r}: {value!r} is neither an extent nor a "
                         "range (lo, hi) with 0 <= lo <= hi, nor a set of extents")
    return pair[0], pair[1], ()


def _extent(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _parse(text: str,
           plain: set[str]) -> tuple[Callable[[Mapping[str, Expr]], Expr], set[str]] | None:
    """(function from symbols to an expression, names used) of a dimension like ``2*seq + 1``;
    None if it is no arithmetic on names that stand alone elsewhere."""
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    ok = all(isinstance(n, (ast.BinOp, ast.Name, ast.expr_context, ast.operator))
             or isinstance(n, ast.Constant) and type(n.value) is int for n in ast.walk(tree))
    if not ok or not names or not names <= plain or not isinstance(tree, ast.BinOp) or any(
            type(n.op) not in _ARITH for n in ast.walk(tree) if isinstance(n, ast.BinOp)):
        return None
    return lambda symbols: _arithmetic(tree, symbols), names


def _arithmetic(node: ast.expr, symbols: Mapping[str, Expr]) -> Expr:
    if isinstance(node, ast.Constant):
        return Const(node.value)
    if isinstance(node, ast.Name):
        return symbols[node.id]
    assert isinstance(node, ast.BinOp), node
    left, right = _arithmetic(node.left, symbols), _arithmetic(node.right, symbols)
    return _ARITH[type(node.op)](left, right)


