"""Rewrite rule ``join_columns``: products that read the same rows become one, whose columns lie
side by side.

    ["join_columns", "q", {"with": ["k", "v"]}]

    q[m, n] = sum(r) x[m, r] * wq[r, n]         k, v alike

become, with the weights side by side as one constant,

    q_joined[m, n] = sum(r) x[m, r] * wqkv[r, n]

and so do the maps behind them, one after the other, as long as they differ only in constants along
the columns, such as biases, and in numbers, such as scales, which become constants along them. Who
read ``k`` reads its columns of what is joined, where they lie. Weights may be of any dtype and are
left as they are, so those in groups stay in their groups.

One product reads the rows once and has as many more work items, and one kernel less is started for
each that joins.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aotc.errors import ScheduleError
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import (
    Axis,
    Const,
    Expr,
    Load,
    axes_of,
    children,
    rewrite,
    substitute,
    walk,
    with_children,
)
from aotc.ir.program import (
    Buffer,
    Compute,
    Program,
    Step,
    free_name,
    is_rule,
    make_const,
    update,
    with_constant,
)
from aotc.ir.simplify import simplify
from aotc.passes.digits import static_extent

RULE = "join_columns"
LARGEST = 64  # nodes of a map whose numbers are looked at


@dataclass(frozen=True)
class Joined:
    """Computes that may be one.  ``program``: with all that they read; ``chains``: of each product
    itself and the maps behind it that join too, as many for all; ``at``: the dimension of the
    columns; ``columns``: of each."""

    program: Program
    chains: tuple[tuple[Compute, ...], ...]
    at: int
    columns: tuple[int, ...]

    @property
    def starts(self) -> tuple[int, ...]:
        """The first column of each."""
        return tuple(sum(self.columns[:i]) for i in range(len(self.columns)))


def match_columns(program: Program, names: Sequence[str]) -> Joined | None:
    """The computes ``names`` as one, or None."""
    made = [program.producer.get(n) for n in names]
    products = [c for c in made if isinstance(c, Compute) and c.fold == "sum" and c.raxes]
    if len(products) != len(names) or len(set(names)) != len(names) or len(names) < 2:
        return None
    for at in reversed(range(len(products[0].axes))):
        columns = _columns(program, products, at)
        if columns is not None:
            chains = [products]
            while more := _maps_behind(program, chains[-1]):
                with_all, more = _with_vectors(program, more, at)
                if _columns(with_all, more, at, [c.out for c in chains[-1]]) != columns:
                    break
                program = with_all
                chains.append(more)
            if not all(_may_move(program, c) for c in chains[-1]):
                return None
            return Joined(program, tuple(zip(*chains)), at, columns)
    return None


def join_alike(program: Program) -> Iterator[tuple[str, ...]]:
    """Names of products that may be one, all that there are of each kind, in program order."""
    found: dict[object, list[str]] = {}
    for c in program.steps:
        if isinstance(c, Compute) and c.fold == "sum" and c.raxes and len(c.outs) == 1:
            rows = tuple(n for n in c.inputs if n not in program.consts)
            kind = rows, len(c.axes), tuple(a.extent for a in c.raxes), c.body.dtype, c.acc
            found.setdefault(kind, []).append(c.out)
    for names in found.values():
        while len(names) > 1:
            fit = [names[0], *(n for n in names[1:] if match_columns(program, (names[0], n)))]
            if len(fit) > 1 and match_columns(program, fit) is not None:
                yield tuple(fit)
            names = [n for n in names[1:] if n not in fit]


def faults_of(program: Program, name: str, parameters: Mapping[str, Any]) -> list[str]:
    """What speaks against the rule for the compute that writes ``name``."""
    where, others = f"rewrites: {RULE} {name}", parameters.get("with")
    legal = [set(names) for names in join_alike(program)]
    mine = next((names - {name} for names in legal if name in names), set())
    if not mine:
        first = ", ".join(n for names in legal for n in sorted(names)) or (
            "no compute of this program")
        return [f"{where}: no sum beside others of the same rows by constants that hold its "
                f"columns in one dimension; choose from {first}"]
    if set(parameters) != {"with"} or not isinstance(others, (list, tuple)) or (
            match_columns(program, (name, *map(str, others))) is None):
        return [f"{where}: parameters are {{\"with\": some of {', '.join(sorted(mine))}}}"]
    return []


def rewrite_products(program: Program, name: str, parameters: Mapping[str, Any]) -> Program:
    """The Program with the products joined.  ScheduleError if they cannot be."""
    faults = faults_of(program, name, parameters)
    names = (name, *parameters.get("with", ()))
    found = None if faults else match_columns(program, names)
    if found is None:
        raise ScheduleError(faults)
    made, before, program = [], "", found.program
    for alike in zip(*found.chains):
        program, one = _join(program, alike, found, before)
        made.append(one)
        before = one.out
    gone = {c.out for chain in found.chains for c in chain}
    read = {chain[-1].out: start for chain, start in zip(found.chains, found.starts)}

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer not in read:
            return None
        index = list(node.index)
        index[found.at] = simplify(index[found.at] + read[node.buffer])
        return Load(before, tuple(index), node.dtype)

    first = min(program.position[n] for n in names)
    # what the maps read besides may be made behind the first product: the joined ones stand behind
    # all that does not read them
    steps: list[Step] = list(program.steps[:first])
    later: list[Step] = []
    for s in program.steps[first:]:
        if s.outs[0] in gone:
            continue
        changed = isinstance(s, Compute) and not read.keys().isdisjoint(s.inputs)
        after = changed or not {o for x in later for o in x.outs}.isdisjoint(s.inputs)
        if isinstance(s, Compute) and changed:
            s = replace(s, body=rewrite(s.body, visit))
        (later if after else steps).append(s)
    return update(program, steps=(*steps, *made, *later))


def _columns(program: Program, alike: Sequence[Compute], at: int,
             before: Sequence[str] = ()) -> tuple[int, ...] | None:
    """How many columns each compute has along dimension ``at``, if they are the same but for those
    and for constants along them; None if not.  before: what each may have for itself, read at its
    own place."""
    columns, known = [], None
    for i, c in enumerate(alike):
        if at >= len(c.axes) or len(c.outs) != 1 or not isinstance(c.axes[at].extent, Const):
            return None
        own = _general(program, c, at, before[i] if before else None)
        if own is None or known not in (None, own):
            return None
        known = own
        columns.append(static_extent(c.axes[at]))
    return tuple(columns)


def _general(program: Program, c: Compute, at: int, own: str | None) -> object:
    """What a compute has in common with those that it may join; None if it may join none."""
    column, names = c.axes[at], _plain_axes(c, at, Const(0))
    seen: list[tuple[object, ...]] = []
    wrong: list[Load] = []

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, Load):
            return None
        if node.buffer == own:
            if node.index != c.axes:
                wrong.append(node)
            return replace(node, buffer="~own")
        if not any(column in axes_of(i) for i in node.index):
            return None
        array = program.consts.get(node.buffer)
        dims = [d for d, i in enumerate(node.index) if column in axes_of(i)]
        if array is None or len(dims) != 1 or node.index[dims[0]] != column or (
                Const(array.shape[dims[0]]) != column.extent):
            wrong.append(node)
            return None
        shape = (*array.shape[:dims[0]], 0, *array.shape[dims[0] + 1:])
        if (node.buffer, dims[0]) not in [s[:2] for s in seen]:
            seen.append((node.buffer, dims[0], shape, program.dtype(node.buffer)))
        number = [s[:2] for s in seen].index((node.buffer, dims[0]))
        return replace(node, buffer=f"~{number}")

    body = rewrite(c.body, visit)
    if wrong or column in _outside_loads(body) or (own is None and not seen):
        return None
    extents = tuple(a.extent for d, a in enumerate(c.axes) if d != at)
    kinds = tuple(s[2:] for s in seen)
    declared = program.buffers[c.out].declared
    return (substitute(body, names), extents, tuple(r.extent for r in c.raxes), c.fold, c.acc,
            kinds, declared)


def _outside_loads(e: Expr) -> frozenset[Axis]:
    """Axes of an expression that count for more than places of tensors."""
    return frozenset(axes_of(rewrite(e, lambda n: Const(0, n.dtype) if isinstance(n, Load)
                                     else None)))


def _plain_axes(c: Compute, at: int, extent: Expr) -> dict[Expr, Expr]:
    """{axis: the same by a name that follows from its place}; the columns have ``extent``."""
    out: dict[Expr, Expr] = {a: Axis(f"~{d}", extent if d == at else a.extent)
                             for d, a in enumerate(c.axes)}
    return out | {r: Axis(f"~r{d}", r.extent) for d, r in enumerate(c.raxes)}


def _maps_behind(program: Program, alike: Sequence[Compute]) -> list[Compute]:
    """The maps over the same points, each of which alone reads one of the computes; none where one
    of those is read otherwise."""
    out = []
    for c in alike:
        readers = program.consumers.get(c.out, ())
        if len(readers) != 1 or c.out in program.results:
            return []
        s = readers[0]
        if not isinstance(s, Compute) or s.fold != "none" or len(s.outs) != 1 or is_rule(s) or (
                tuple(a.extent for a in s.axes) != tuple(a.extent for a in c.axes)):
            return []
        out.append(s)
    return out if len({s.out for s in out}) == len(out) else []


def _with_vectors(program: Program, alike: list[Compute],
                  at: int) -> tuple[Program, list[Compute]]:
    """(the Program with more constants, maps whose numbers are constants along the columns where
    they differ from one map to the other)."""
    found = [_numbers(c.body) for c in alike]
    if any(len(own) != len(found[0]) for own in found):
        return program, alike
    differ = [p for p, each in enumerate(zip(*found)) if len(set(each)) > 1]
    if any({own[p].dtype for own in found} not in ({"f32"}, {"i32"}) for p in differ) or (
            any(not isinstance(c.axes[at].extent, Const) for c in alike)):
        return program, alike
    out = []
    for c, own in zip(alike, found):
        vectors: dict[int, Expr] = {}
        for p in differ:
            array = np.full(static_extent(c.axes[at]), own[p].value, DTYPES[own[p].dtype].numpy)
            program, name = with_constant(program, f"{c.out}_number{p}", array)
            vectors[p] = Load(name, (c.axes[at],), own[p].dtype)
        out.append(replace(c, body=_with_numbers(c.body, vectors, [])) if differ else c)
    return program, out


def _numbers(e: Expr) -> list[Const]:
    """The numbers of an expression outside of places, in order; none of a large one."""
    found: list[Const] = []
    if sum(1 for _ in walk(e)) <= LARGEST:
        _with_numbers(e, {}, found)
    return found


def _with_numbers(e: Expr, instead: Mapping[int, Expr], seen: list[Const]) -> Expr:
    """The expression with others for numbers, which ``seen`` takes, by their place among them."""
    if isinstance(e, Const):
        seen.append(e)
        return instead.get(len(seen) - 1, e)
    kids = () if isinstance(e, (Load, Axis)) else children(e)
    return with_children(e, [_with_numbers(k, instead, seen) for k in kids]) if kids else e


def _may_move(program: Program, c: Compute) -> bool:
    """True if the elements of a tensor may lie elsewhere: expressions alone read it."""
    readers = program.consumers.get(c.out, ())
    return c.out not in program.results and bool(readers) and all(
        isinstance(s, Compute) and not is_rule(s) for s in readers)


def _join(program: Program, alike: Sequence[Compute], found: Joined,
          before: str) -> tuple[Program, Compute]:
    """The Program with the constants of ``alike`` side by side, and the compute that all are now;
    before: what it reads of the one in front of it."""
    first, at = alike[0], found.at
    column = Axis(first.axes[at].name, Const(sum(found.columns)))
    own = {c.out for chain in found.chains for c in chain}
    consts = [_along_columns(program, c, at) for c in alike]
    names: dict[tuple[str, int], str] = {}
    for number, (b, d) in enumerate(consts[0]):
        array = np.concatenate([program.consts[each[number][0]] for each in consts], axis=d)
        name = free_name(program.buffers, f"{b}_joined")
        buffer = replace(make_const(name, array, program.buffers[b].onnx), dtype=program.dtype(b))
        program = replace(program, consts={**program.consts, name: array},
                          buffers={**program.buffers, name: buffer})
        names[b, d] = name

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, Load):
            return None
        if node.buffer in own:
            return replace(node, buffer=before)
        d = next((d for d, i in enumerate(node.index) if first.axes[at] in axes_of(i)), None)
        return None if d is None else replace(node, buffer=names[node.buffer, d])

    body = substitute(rewrite(first.body, visit), {first.axes[at]: column})
    made = free_name(program.buffers, f"{first.out}_joined")
    shape = (*first.axes[:at], column, *first.axes[at + 1:])
    buffer = Buffer(made, tuple(a.extent for a in shape), program.dtype(first.out), "temp",
                    declared=program.buffers[first.out].declared)
    origin = tuple(dict.fromkeys(o for c in alike for o in c.origin))
    one = replace(first, outs=(made,), axes=shape, body=body, origin=origin)
    return replace(program, buffers={**program.buffers, made: buffer}), one


def _along_columns(program: Program, c: Compute, at: int) -> list[tuple[str, int]]:
    """(constant, its dimension of the columns) pairs of what a compute reads along them, in the
    order of the body."""
    return list(dict.fromkeys(
        (n.buffer, d) for n in c.loads if n.buffer in program.consts
        for d, i in enumerate(n.index) if c.axes[at] in axes_of(i)))


__all__ = ["RULE", "Joined", "faults_of", "join_alike", "match_columns", "rewrite_products"]
