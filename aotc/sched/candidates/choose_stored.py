"""Rewrites ``store``: which of the tensors that a model declares f16 or bf16 are stored so.

Asked when the groups are known: what stays inside a kernel stays f32, in registers or near them.
Of tensors that go from kernel to kernel, half the bytes are written, kept and read.  Who reads an
element once converts what it loads; in a kernel whose products or windows read elements again and
again, a stage converts what a work item reads of the tensor (but threads that share a work item:
each converts what it loads).  A tensor stays f32 where the kernels
that make and read it are predicted to take longer together, by more than ``Tuning.slack``; where
the target has no instruction that converts, or of bf16 no products that read it, all do.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import isfinite

from aotc.ir.category import category
from aotc.ir.program import Compute, Program, Rewrite
from aotc.ir.schedule import REGISTER, Group
from aotc.passes.precision.store_halves import WIDE, candidates, store_rewrite
from aotc.passes.rewrites import apply_rewrites
from aotc.passes.winograd import stages_of_forms
from aotc.sched.judge.judge import Judge
from aotc.sched.rows.settled_choices import inherit
from aotc.sched.rows.useful_targets import stores_halves
from aotc.target.base import Target

ONCE = ("map", "move", "reduction")  # categories that read no element again and again


def choose_stored(program: Program, target: Target, groups: Sequence[Group],
                  rewrites: Sequence[Rewrite]) -> tuple[tuple[Rewrite, ...], tuple[Group, ...]]:
    """(the rewrites ``store``, the groups of the Program with them).  rewrites: those that
    ``program`` has; groups: its own."""
    owner = {c: g.name for g in groups for c in g.computes}
    machine = target.machine
    touched = _stored(program, target, groups, owner) if (
        machine.threads or not machine.managed) else {}
    if not touched:
        return (), tuple(groups)
    before = _seconds(Judge(program, target, groups), groups)
    while touched:
        halves = tuple(store_rewrite(b, _copies(program, target, b, owner),
                                     program.buffers[b].declared) for b in touched)
        made = apply_rewrites(program, (*rewrites, *halves))
        inherit(made, program, target)
        found = _regrouped(program, made, groups, owner, target.machine.homes[0].name)
        judge = Judge(made, target, found)
        after = _seconds(judge, found)
        kept = {b: names for b, names in touched.items()
                if _pays(names, before, after, target.tuning.slack)}
        if len(kept) == len(touched):
            return halves, tuple(g if g in groups else judge.finished(g) for g in found)
        touched = kept
    return (), tuple(groups)


def _stored(program: Program, target: Target, groups: Sequence[Group],
            owner: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """{tensor that may be stored as it is declared: names of the groups that make and read it}, but
    those with stages of Winograd forms, and what its own kernel reads again and again."""
    forms = {owner[stage] for stage in stages_of_forms(program)}
    outputs = {b for g in groups for b in g.outputs}
    found = {}
    for b in (b for b in candidates(program)
              if stores_halves(target, program.buffers[b].declared)):
        readers = program.consumers[b]
        names = dict.fromkeys(owner[s.outs[0]] for s in (program.producer[b], *readers))
        copies = _copies(program, target, b, owner)
        again = [c for own in copies for c in own if owner[c] == owner[b]]
        if b in outputs and forms.isdisjoint(names) and not again:
            found[b] = tuple(names)
    return found


def _reads_once(c: Compute) -> bool:
    """True for a compute that reads no element again and again."""
    return category(c.axes, c.raxes, c.fold, c.body) in ONCE


def _copies(program: Program, target: Target, buffer: str,
            owner: Mapping[str, str]) -> list[list[str]]:
    """The computes that need a copy in f32, since they read a tensor again and again, by the group
    that they are in."""
    found: dict[str, list[str]] = {}
    if target.machine.threads:
        return []
    for s in program.consumers[buffer]:
        if isinstance(s, Compute) and not _reads_once(s):
            found.setdefault(owner[s.outs[0]], []).append(s.outs[0])
    return list(found.values())


def _regrouped(program: Program, made: Program, groups: Sequence[Group],
               owner: Mapping[str, str], home: str) -> tuple[Group, ...]:
    """The groups of ``program`` with the computes that rewrites have added to it: what rounds a
    fold is at its end, what makes a copy in f32 is a stage of the kernel that reads it, its tile in
    the memory ``home``."""
    found = {g.name: g for g in groups}
    for s in made.steps:
        if s.outs[0] in program.producer:
            continue
        new, copied = s.outs[0], made.dtype(s.outs[0]) == WIDE
        source, = s.inputs
        name = owner[made.consumers[new][0].outs[0]] if copied else owner[source]
        g = found[name]
        computes = tuple(sorted((*g.computes, new), key=made.position.__getitem__))
        connect = {new: home} if copied else {source: REGISTER} | (
            {new: g.connect[source]} if source in g.connect else {})
        outputs = tuple(new if not copied and o == source else o for o in g.outputs)
        found[name] = replace(g, computes=computes, outputs=outputs, tile={}, parallel=(), run={},
                              connect={**g.connect, **connect}).with_reuses({})
    return tuple(found.values())


def _seconds(judge: Judge, groups: Sequence[Group]) -> dict[str, float]:
    """{group: predicted seconds}, infinite if it cannot be a kernel."""
    return {g.name: judge.verdict(g).seconds for g in groups}


def _pays(names: Collection[str], before: Mapping[str, float], after: Mapping[str, float],
          slack: float) -> bool:
    """True if groups take no longer than before, but for a share that says nothing."""
    old, new = (sum(seconds[n] for n in names) for seconds in (before, after))
    return isfinite(old) and new <= old * (1 + slack)


__all__ = ["choose_stored"]
