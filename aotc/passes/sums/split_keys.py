"""Rewrite rule ``split_keys``: a sum of what exps weigh, and theirs, in parts of its terms.

    ["split_keys", "matmul_sum", {"parts": 4}]

    g[m]    = max(j) x[m, j]
    t[m]    = sum(j) exp(x[m, j] - g[m])
    y[m, n] = sum(j) exp(x[m, j] - g[m]) / t[m] * v[j, n]

becomes, with up to E terms in each part s, of which j = s*E + k,

    g_parts[s, m]    = max(k) x[m, j]
    t_parts[s, m]    = sum(k) exp(x[m, j] - g_parts[s, m])
    y_parts[s, m, n] = sum(k) exp(x[m, j] - g_parts[s, m]) * v[j, n]
    g[m]             = max(s) g_parts[s, m]
    t[m]             = sum(s) exp(g_parts[s, m] - g[m]) * t_parts[s, m]
    y[m, n]          = (sum(s) exp(g_parts[s, m] - g[m]) * y_parts[s, m, n]) / t[m]

The exps of a part without a number above -inf are 0, not NaN, so that it adds nothing.  Where few
rows weigh many terms, as in decoders, the parts keep workers busy.  Rows that share what they
weigh, such as heads of a group that has one of keys and values (``v[h // 4, j, n]``), get an axis
of their own, by which they are rows of one product; with one part they get nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from aotc.errors import ScheduleError
from aotc.ir.category import factor_pairs
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Load,
    Shape,
    Unary,
    Var,
    Where,
    axes_of,
    children,
    compare,
    loads,
    rewrite,
    substitute,
    walk,
)
from aotc.ir.numbers.narrow import strip_rounding
from aotc.ir.program import Buffer, Compute, Program, Step, free_name, update
from aotc.ir.simplify import proves, simplify, upper
from aotc.passes.inline import inline_all

RULE = "split_keys"
GRAIN = 128  # terms of which a part has a multiple: those that kernels take at a time
MOST = 128  # parts
_NONE = Const(-inf, "f32")
_BETWEEN = 24  # computes between a product of weights and what they are made of


@dataclass(frozen=True)
class Weighed:
    """The sum over ``key`` of ``weights`` times ``values``: weights are linear in ``power``,
    exp(``x`` - ``greatest``), and depend on ``total``, the sum of that, if there is one, and on
    what else there is of a row, such as whether a mask leaves it any term.  shared: an axis of rows
    of which so many neighbours read the same values."""

    weights: Expr
    values: Expr
    power: Expr
    x: Expr
    greatest: Load
    total: Load | None
    key: Axis
    shared: tuple[Axis, int] | None


def match_weighed(program: Program, c: Compute) -> Weighed | None:
    """What a compute weighs by exps, or None."""
    if len(c.outs) != 1 or c.fold != "sum" or len(c.raxes) != 1 or c.acc_dtype != "f32" or not (
            isinstance(c.body, Binary) and c.body.op == "mul"):
        return None
    maps = _maps_between(program, c)
    for weights, values in ((c.body.a, c.body.b), (c.body.b, c.body.a)):
        found = _weighed(program, c, strip_rounding(_inlined(weights, maps)), values, maps)
        if found is not None:
            return found
    return None


def weighed_products(program: Program) -> frozenset[str]:
    """Names of the products that are sums of what exps weigh, or that these exps are made of."""
    known: dict[str, frozenset[str]] = program.known("weighed products")
    if not known:
        out = set()
        for c in program.steps:
            found = match_weighed(program, c) if isinstance(c, Compute) else None
            if found is not None:
                out |= {c.outs[0]}.union(n.buffer for n in loads(found.x))
        known[""] = frozenset(out)
    return known[""]


def useful_parts(found: Weighed) -> tuple[int, ...]:
    """Numbers of parts to choose from, the fewest first: those of 2^n times ``GRAIN`` terms each,
    where it is known how many there are, or else doubled; one where rows share values."""
    terms, least = upper(found.key.extent), 1 if found.shared is not None else 2
    sizes = (1 << n for n in range(MOST.bit_length()))
    parts = sizes if terms is None or not isinstance(found.key.extent, Const) else (
        -(-terms // (GRAIN * n)) for n in sizes)
    return tuple(sorted({n for n in parts if least <= n <= MOST}.union({1} if least == 1 else ())))


def _each(terms: Expr, parts: int) -> Any:
    """Terms of a part: a multiple of ``GRAIN``, if there are several."""
    by = parts * GRAIN
    return simplify((terms + (by - 1)) // by * GRAIN) if parts > 1 else terms


# ---------------------------------------------------------------- what is found

def _maps_between(program: Program, c: Compute) -> dict[str, Compute]:
    """The maps on the ways to a compute from products."""
    todo, seen, found = list(c.inputs), dict[str, Compute](), dict[str, bool]()
    while todo and len(seen) <= _BETWEEN:
        step = program.producer.get(todo.pop())
        if not isinstance(step, Compute) or step.out in seen:
            continue
        seen[step.out] = step
        found[step.out] = bool(factor_pairs(step.axes, step.raxes, step.fold, step.body))
        todo += () if found[step.out] else step.inputs
    for name in sorted(seen, key=program.position.__getitem__):
        found[name] = found[name] or any(found.get(b, False) for b in seen[name].inputs)
    return {n: s for n, s in seen.items() if found[n] and s.fold == "none" and len(s.outs) == 1}


def _inlined(e: Expr, maps: Mapping[str, Compute]) -> Expr:
    """An expression with the elements of maps in it."""
    while any(n.buffer in maps for n in loads(e)):
        e = inline_all(e, maps)
    return simplify(e)


def _weighed(program: Program, c: Compute, weights: Expr, values: Expr,
             maps: Mapping[str, Compute]) -> Weighed | None:
    """The same of one of two factors."""
    key, = c.raxes
    powers = dict.fromkeys(n for n in walk(weights) if isinstance(n, Unary) and n.op == "exp" and (
        key in axes_of(n)))
    if len(powers) != 1 or key not in axes_of(values) or weights.dtype != "f32":
        return None
    power, = powers
    if not (isinstance(power.x, Binary) and power.x.op == "sub" and isinstance(power.x.b, Load)):
        return None
    x, greatest = power.x.a, power.x.b
    if not _folds(program, greatest, "max", x, key, maps):
        return None
    totals = dict.fromkeys(n for n in loads(weights) if n not in (greatest, *loads(power)) and (
        _folds(program, n, "sum", power, key, maps)))
    if len(totals) > 1:
        return None
    total = next(iter(totals), None)
    if key in axes_of(greatest) or not is_scaled(weights, power, key):
        return None
    shared = _shared(c, _source(program, values), weights)
    return Weighed(weights, values, power, x, greatest, total, key, shared)


def _folds(program: Program, at: Load, fold: str, e: Expr, key: Axis,
           maps: Mapping[str, Compute]) -> bool:
    """True if a Load is the fold of an expression along the key."""
    c = program.producer.get(at.buffer)
    if not isinstance(c, Compute) or c.fold != fold or len(c.raxes) != 1 or len(c.outs) != 1 or (
            simplify(c.raxes[0].extent) != simplify(key.extent)):
        return False
    body = substitute(_inlined(c.body, maps), {**dict(zip(c.axes, at.index)), c.raxes[0]: key})
    return simplify(body) == simplify(e)


def is_scaled(e: Expr, x: Expr, key: Axis) -> bool:
    """True for ``x``, times or over what neither has it nor the key, or 0 where such a condition
    says so."""
    while e != x:
        match e:
            case Binary("mul" | "div", a, b):
                inner, other = (a, b) if x in set(walk(a)) else (b, a)
                if e.op == "div" and inner is b:
                    return False
            case Where(other, Const(0), inner) | Where(other, inner, Const(0)):
                pass
            case _:
                return False
        if x in set(walk(other)) or key in axes_of(other):
            return False
        e = inner
    return True


def _source(program: Program, e: Expr) -> Expr:
    """An expression with what moves and conversions make taken from where they read it."""
    while True:
        steps = [program.producer.get(n.buffer) for n in loads(e)]
        maps = {s.out: s for s in steps if isinstance(s, Compute) and s.fold == "none" and (
            len(s.loads) == len(s.outs) == 1)}
        if not maps:
            return simplify(e)
        e = inline_all(e, maps)


def _shared(c: Compute, values: Expr, weights: Expr) -> tuple[Axis, int] | None:
    """The axis of rows of which neighbours read the same values: those say ``axis // number``."""
    for axis in c.axes:
        found = {find_divisor(i, axis) for n in loads(values) for i in n.index} - {0}
        count = found.pop() if len(found) == 1 else None
        if count and isinstance(axis.extent, Const) and axis.extent.value % count == 0 and (
                axis in axes_of(weights)):
            return axis, count
    return None


def find_divisor(e: Expr, axis: Axis) -> int | None:
    """n, of an index that has an axis as ``axis // n`` alone; 0 of one that has it not, None of
    others."""
    if axis not in axes_of(e):
        return 0
    if isinstance(e, Binary) and e.op == "floordiv" and e.a == axis and isinstance(e.b, Const):
        return int(e.b.value)
    found = {find_divisor(x, axis) for x in children(e) if axis in axes_of(x)}
    return found.pop() if len(found) == 1 else None


# ---------------------------------------------------------------- the rule

def candidates(program: Program) -> tuple[str, ...]:
    """Names of the computes that the rule fits, in program order."""
    return tuple(s.out for s in program.steps
                 if isinstance(s, Compute) and match_weighed(program, s) is not None)


def faults_of(program: Program, name: str, parameters: Mapping[str, Any]) -> list[str]:
    """What speaks against the rule for the compute that writes ``name``."""
    where, c = f"rewrites: {RULE} {name}", program.producer.get(name)
    found = match_weighed(program, c) if isinstance(c, Compute) and c.out == name else None
    if found is None:
        legal = ", ".join(candidates(program)) or "no compute of this program"
        return [f"{where}: no sum of what exps of differences to their greatest weigh; choose from "
                f"{legal}"]
    parts, least = parameters.get("parts"), 1 if found.shared is not None else 2
    if set(parameters) != {"parts"} or type(parts) is not int or not least <= parts <= MOST:
        return [f"{where}: parameters are {{\"parts\": an integer in {least}..{MOST}}}"]
    return []


def rewrite_weighed(program: Program, name: str, parameters: Mapping[str, Any]) -> Program:
    """The Program with the sum of the compute that writes ``name`` in parts.  ScheduleError if it
    does not match."""
    faults = faults_of(program, name, parameters)
    c = program.producer[name]
    found = match_weighed(program, c) if isinstance(c, Compute) else None
    if faults or not isinstance(c, Compute) or found is None:
        raise ScheduleError(faults)
    made = _Made(program, c, found, parameters["parts"])
    own = made.steps()
    steps: list[Step] = []
    for step in program.steps:
        steps += own if step is c else [step]
    return update(program, steps=tuple(steps), buffers={
        **program.buffers, **{o: made.buffer(s) for s in own for o in s.outs if s.out != name}})


class _Made:
    """The computes that a sum becomes."""

    def __init__(self, program: Program, c: Compute, found: Weighed, parts: int) -> None:
        self.program, self.c, self.found, self.parts = program, c, found, parts
        self.part = Axis(self._free("part"), Const(parts))
        self.key = Axis(found.key.name, _each(found.key.extent, parts))
        place = self.part * self.key.extent + self.key if parts > 1 else self.key
        self.digits: dict[Axis, Shape] = {}
        self.inside: dict[Expr, Expr] = {found.key: place}
        if found.shared is not None:
            axis, count = found.shared
            assert isinstance(axis.extent, Const), axis
            group = Axis(self._free(f"{axis.name}_group"), Const(axis.extent.value // count))
            each = Axis(self._free(f"{axis.name}_each"), Const(count))
            self.digits[axis] = group, each
            self.inside[axis] = group * count + each
        there = compare("lt", place, found.key.extent)
        self.there = None if proves(there) else there
        # a row of a sum that is no sum of exps has no part in it
        self.rows = tuple(a for a in c.axes if a in axes_of(found.power) or a not in axes_of(
            found.values))

    def _free(self, name: str) -> str:
        taken = {a.name for a in (*self.c.axes, *self.c.raxes)}
        return free_name(taken, name)

    def _axes(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        """Axes of what is made in parts."""
        own = tuple(x for a in axes for x in self.digits.get(a, (a,)) if isinstance(x, Axis))
        return (self.part, *own) if self.parts > 1 else own

    def _at(self, axes: tuple[Axis, ...]) -> Shape:
        """Where the axes of the whole are in what is made in parts."""
        out: list[Expr] = [self.part] if self.parts > 1 else []
        for a in axes:
            count = self.found.shared[1] if self.found.shared is not None else 1
            out += [a // count, a % count] if a in self.digits else [a]
        return tuple(map(simplify, out))

    def _here(self, e: Expr, missing: Const) -> Expr:
        """An expression of the key's term in a part; ``missing`` behind the last one."""
        e = simplify(substitute(e, self.inside))
        return e if self.there is None else Where(self.there, e, missing)

    def steps(self) -> list[Compute]:
        """In order."""
        c, found, whole = self.c, self.found, self.parts == 1
        rows, (k,) = self._axes(self.rows), (self.key,)
        names = {what: free_name(self.program.buffers, f"{c.out}_{what}" + "_parts" * (not whole))
                 for what in ("greatest", "total", "sums")}
        x = self._here(found.x, _NONE)
        greatest = Load(names["greatest"], rows, "f32")
        power = Unary("exp", x - (greatest if whole else find_base(greatest)))

        def made(what: str, axes: tuple[Axis, ...], fold: str, body: Expr) -> Compute:
            return Compute((names[what],), axes, (k,), fold, body, origin=c.origin)
        total = made("total", rows, "sum", power)
        weights = self._whole(power, Load(total.out, rows, "f32")) if whole else power
        product = weights * self._here(found.values, Const(0.0, "f32"))
        parted = [made("greatest", rows, "max", x), total,
                  made("sums", self._axes(c.axes), "sum", product)]
        if whole:
            sums = Load(names["sums"], self._at(c.axes), "f32")
            return [*parted, replace(c, raxes=(), fold="none", body=sums, acc="")]
        return parted + self._joined(names)

    def _whole(self, power: Expr, total: Load) -> Expr:
        """The weights of all terms in one part."""
        e, t = Var("power", "f32"), Var("total", "f32")
        out = substitute(self._weights(e, t), self.inside)
        return simplify(substitute(out, {e: power, t: total}))

    def _weights(self, power: Expr, total: Expr) -> Expr:
        """The weights with others in place of their exp and of its sum."""
        known = {self.found.power: power}
        if self.found.total is not None:
            known[self.found.total] = total
        return rewrite(self.found.weights, lambda n: known.get(n))

    def _joined(self, names: Mapping[str, str]) -> list[Compute]:
        """The parts become one."""
        c, s = self.c, (self.part,)
        at = self._at(self.rows)
        parted = {n: Load(b, at, "f32") for n, b in names.items()}
        greatest, total = (free_name(self.program.buffers, f"{c.out}_{n}")
                           for n in ("greatest", "total"))
        share = Unary("exp", parted["greatest"] - find_base(Load(greatest, self.rows, "f32")))
        sums = Load(names["sums"], self._at(c.axes), "f32")
        joined = free_name(self.program.buffers, f"{c.out}_joined")
        y = self._weights(Load(joined, c.axes, "f32"), Load(total, self.rows, "f32"))
        return [Compute((greatest,), self.rows, s, "max", parted["greatest"], origin=c.origin),
                Compute((total,), self.rows, s, "sum", share * parted["total"], origin=c.origin),
                Compute((joined,), c.axes, s, "sum", share * sums, origin=c.origin),
                replace(c, raxes=(), fold="none", body=y, acc="")]

    def buffer(self, c: Compute) -> Buffer:
        """Of one of them."""
        return Buffer(c.out, tuple(a.extent for a in c.axes), "f32", "temp")


def find_base(greatest: Expr) -> Expr:
    """What is taken off numbers whose greatest is given: 0 where all are -inf."""
    return Where(Binary("eq", greatest, _NONE), Const(0.0, "f32"), greatest)


__all__ = ["GRAIN", "RULE", "Weighed", "candidates", "faults_of", "find_base", "find_divisor",
           "is_scaled", "match_weighed", "rewrite_weighed", "useful_parts",
           "weighed_products"]
