"""What can be tuned by itself: the sites of a scheduled Program.

    settled, found = sites(program, schedule, target)

A site is the groups that share a compute before rewriting: one group mostly, two where a rewrite
made a copy (``unfold``).  Its ``piece`` is a Program of its own, with the tensors that cross its
border as inputs and outputs, so that it can be decided, built and timed without the rest.  Equal
sites (same expressions, shapes, layouts, decisions; names do not count) have equal keys and are
tuned once.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from aotc.errors import ScheduleError
from aotc.ir.expr import Expr, Load, Sym, rewrite, show, walk
from aotc.ir.layout import LayoutJson
from aotc.ir.program import Buffer, Compute, Program, Rewrite, Step
from aotc.ir.schedule import Group, Schedule
from aotc.passes.precision.rounding_table import ROUNDING
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.independent_parts import LOCAL, owners
from aotc.target.base import Target

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Site:
    """``groups``: as the untuned Schedule has them, in order; ``rewrites``: those of the Schedule
    that make this site's computes; ``piece``: its Program before them; ``layouts``: {buffer:
    primitives} of every buffer it touches; ``fixed``: buffers whose layout others share; ``key``:
    equal for equal sites."""

    groups: tuple[Group, ...]
    rewrites: tuple[Rewrite, ...]
    piece: Program
    layouts: dict[str, LayoutJson]
    fixed: frozenset[str]
    key: str

    @property
    def name(self) -> str:
        return self.groups[0].name

    @property
    def computes(self) -> tuple[str, ...]:
        """Names of its computes before rewriting."""
        return tuple(s.outs[0] for s in self.piece.steps)


def sites(program: Program, schedule: Schedule,
          target: Target) -> tuple[tuple[Rewrite, ...], tuple[Site, ...]]:
    """(rewrites that are settled, tuple of Site).

    program: as it was before the Schedule's rewrites.  Rewrites that reach across groups are
    settled: pieces are parts of the Program after them; groups that are library calls are no site.
    target: its name is part of the keys.
    """
    program, settled, local = _split_rewrites(program, schedule.rewrites)
    owner = owners(program, local)
    parts = _joined(program, schedule.groups, owner)
    found = []
    for groups in parts:
        computes = {owner[c] for g in groups for c in g.computes}
        found.append(_site(program, schedule, target, groups, computes,
                           tuple(r for r in local if owner.get(r[1], r[1]) in computes)))
    return settled, tuple(found)


def _split_rewrites(program: Program, rewrites: Sequence[Rewrite]
                   ) -> tuple[Program, tuple[Rewrite, ...], tuple[Rewrite, ...]]:
    """(Program, rewrites applied to it, those left for the sites)."""
    settled = tuple(r for r in rewrites if r[0] not in LOCAL)
    local = tuple(r for r in rewrites if r[0] in LOCAL)
    if not settled:
        return program, (), local
    if any(r[0] in ROUNDING for r in settled):  # of what all the others have made
        return replace(apply_rewrites(program, rewrites), rewrites=()), tuple(rewrites), ()
    try:
        start = replace(apply_rewrites(program, settled), rewrites=())
        apply_rewrites(start, local)
    except ScheduleError:  # they need each other in the Schedule's order
        start, settled, local = apply_rewrites(program, rewrites), tuple(rewrites), ()
    return replace(start, rewrites=()), settled, local


def _joined(program: Program, groups: Sequence[Group],
            owner: Mapping[str, str]) -> list[list[Group]]:
    """Groups that share a compute before rewriting, as lists in the Schedule's order."""
    calls = {s.outs[0] for s in program.steps if not isinstance(s, Compute)}
    parts: list[tuple[set[str], list[Group]]] = []
    for g in groups:
        if calls.intersection(g.computes):
            continue
        mine = {owner[c] for c in g.computes}
        touching = [p for p in parts if p[0] & mine]
        rest = [p for p in parts if not p[0] & mine]
        members = [x for p in touching for x in p[1]] + [g]
        parts = rest + [(mine.union(*(p[0] for p in touching)), members)]
    place = {g.name: i for i, g in enumerate(groups)}
    return sorted(([*sorted(p[1], key=lambda g: place[g.name])] for p in parts),
                  key=lambda gs: place[gs[0].name])


def piece(program: Program, computes: Collection[str]) -> Program:
    """The Program of some computes alone: what they read from outside are its inputs, what is
    read outside its outputs; buffers keep their roles."""
    steps = tuple(s for s in program.steps if s.outs[0] in computes)
    made = {o: None for s in steps for o in s.outs}
    read = dict.fromkeys(b for s in steps for b in s.inputs if b not in made)
    inside = {s.outs[0] for s in steps}
    outputs = tuple(o for o in made if o in program.outputs or any(
        s.outs[0] not in inside for s in program.consumers.get(o, ())))
    names = {*read, *made}
    syms = _symbols(steps, [program.buffers[n] for n in names])
    return Program(program.name, tuple(b for b in read if b not in program.consts), outputs,
                   {n: program.buffers[n] for n in program.buffers if n in names},
                   {n: a for n, a in program.consts.items() if n in read}, steps,
                   tuple(s for s in program.syms if s in syms))


def _symbols(steps: Iterable[Step], buffers: Iterable[Buffer]) -> set[Sym]:
    exprs = [d for b in buffers for d in b.shape]
    for s in steps:
        assert isinstance(s, Compute), s  # library calls are in no site
        exprs += [a.extent for a in s.axes + s.raxes] + [s.body]
    return {n for e in exprs for n in walk(e) if isinstance(n, Sym)}


def _site(program: Program, schedule: Schedule, target: Target, groups: Sequence[Group],
          computes: Collection[str], rewrites: tuple[Rewrite, ...]) -> Site:
    part = piece(program, computes)
    after = apply_rewrites(part, rewrites)
    border = set(part.inputs) | set(part.outputs)
    shared = {c for c in part.consts if any(
        s.outs[0] not in computes for s in program.consumers.get(c, ()))}
    layouts = {b: x for b, x in schedule.layouts.items() if b in after.buffers}
    key = signature(after, groups, layouts, target, part)
    return Site(tuple(groups), rewrites, part, layouts, frozenset(border | shared), key)


def signature(program: Program, groups: Iterable[Group], layouts: Mapping[str, LayoutJson],
              target: Target, before: Program) -> str:
    """Hex SHA-256 of everything that decides a site's time, without the names of its buffers."""
    names = number_buffers(program, "$")
    plain = rename_buffers(program, names)
    text = [target.name, str(plain), str(rename_buffers(before, number_buffers(before, "$")))]
    text += [f"{b.name} {b.role}" for b in plain.buffers.values()]
    text += [f"{a.name} {show(a.extent)}" for s in plain.steps
             if isinstance(s, Compute) for a in s.axes + s.raxes]
    text += [str(sorted((k, str(v)) for k, v in vars(rename_group(g, names, "g")).items()
                        if k != "why")) for g in groups]
    text += [f"{names[b]}: {x}" for b, x in sorted(layouts.items(), key=lambda x: names[x[0]])]
    return hashlib.sha256("\n".join(text).encode()).hexdigest()


# ---------------------------------------------------------------- names

def number_buffers(program: Program, prefix: str) -> dict[str, str]:
    """{buffer: prefix + its number}: inputs first, then as steps read and write them."""
    order = dict.fromkeys(program.inputs)
    for s in program.steps:
        order.update(dict.fromkeys(s.inputs + s.outs))
    order.update(dict.fromkeys(program.buffers))
    return {b: f"{prefix}{i}" for i, b in enumerate(order)}


def rename_buffers(program: Program, names: Mapping[str, str]) -> Program:
    """The Program with its buffers renamed and without the names of the model it came from."""
    def visit(n: Expr) -> Expr | None:
        return Load(names[n.buffer], n.index, n.dtype) if isinstance(n, Load) else None

    def step(s: Step) -> Compute:
        assert isinstance(s, Compute), s  # library calls are in no site
        fold = s.fold if isinstance(s.fold, str) else replace(
            s.fold, init=tuple(rewrite(e, visit) for e in s.fold.init),
            update=tuple(rewrite(e, visit) for e in s.fold.update))
        return Compute(tuple(names[o] for o in s.outs), s.axes, s.raxes, fold,
                       rewrite(s.body, visit), s.acc)

    return Program("piece", tuple(names[b] for b in program.inputs),
                   tuple(names[b] for b in program.outputs),
                   {names[n]: replace(b, name=names[n], onnx="")
                    for n, b in program.buffers.items()},
                   {names[n]: a for n, a in program.consts.items()},
                   tuple(map(step, program.steps)), program.syms)


def rename_group(group: Group, names: Mapping[str, str], name: str) -> Group:
    """A Group called ``name`` over renamed buffers."""
    def keys(table: Mapping[str, T]) -> dict[str, T]:
        return {names[k]: v for k, v in table.items()}

    return replace(group, name=name, computes=tuple(names[c] for c in group.computes),
                   outputs=tuple(names[o] for o in group.outputs), anchor=names[group.anchor],
                   connect=keys(group.connect), choices=keys(group.choices), why="")


__all__ = ["Site", "number_buffers", "piece", "rename_buffers", "rename_group",
           "signature", "sites"]
