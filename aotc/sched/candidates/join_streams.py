"""Of step ``groups`` of ``decide``: products whose rows are weights made of another product's sums,
which together become one group that streams where that is predicted to take less time."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from aotc.errors import ScheduleError
from aotc.ir.dtypes import HALVES
from aotc.ir.expr import Load, loads
from aotc.ir.numbers.narrow import stored_half, strip_rounding, widen_half
from aotc.ir.program import Compute, Program
from aotc.ir.schedule import REGISTER, STREAM, Group
from aotc.sched.choose.connect import register_groups
from aotc.sched.cost.stream_cost import stream_rows, stream_seconds
from aotc.sched.judge.judge import Judge
from aotc.sched.model.size import estimate_volume
from aotc.sched.model.stages import contraction_factors, expand
from aotc.sched.model.tilegraph import order_groups, stored_outputs
from aotc.sched.rows.stream_stages import find_stream, is_stream, stream_factors
from aotc.target.base import Target
from aotc.target.kernel_rows import ProductRow

MOST = 24  # computes between two products, those that masks are made of among them


def join_streams(program: Program, target: Target, groups: Sequence[Group]) -> tuple[Group, ...]:
    """The groups with those joined that stream together."""
    if not target.rows("stream"):
        return tuple(groups)
    found = {g.name: g for g in groups}
    owner = {c: g.name for g in groups for c in g.computes}
    judge: Judge | None = None
    for step in program.steps:
        if not isinstance(step, Compute):
            continue
        for source in _sources(program, step):
            joined = _joined(program, source, step, found, owner, target)
            if joined is None:
                continue
            judge = judge or Judge(program, target, groups)
            if _pays(judge, joined, [found[n] for n in _parts(joined, owner)]):
                for name in _parts(joined, owner):
                    del found[name]
                found[joined.name] = joined
                owner |= dict.fromkeys(joined.computes, joined.name)
                break
    return order_groups(program, list(found.values()))


def stream_computes(program: Program, target: Target) -> frozenset[str]:
    """The computes of a Program's groups that would stream."""
    if not target.rows("stream"):
        return frozenset()
    return frozenset(c for g in join_streams(program, target, register_groups(program))
                     if is_stream(g) for c in g.computes)


def possible_streams(program: Program, target: Target, groups: Sequence[Group]
                     ) -> Iterator[tuple[Group, tuple[Group, ...]]]:
    """(a group that could stream, those that it is made of), for each product of a Program that
    could end one, whatever it takes."""
    found = {g.name: g for g in groups}
    owner = {c: g.name for g in groups for c in g.computes}
    for step in program.steps:
        joined = (_joined(program, s, step, found, owner, target) for s in _sources(
            program, step)) if isinstance(step, Compute) else ()
        first = next((g for g in joined if g is not None), None)
        if first is not None:
            yield first, tuple(found[n] for n in _parts(first, owner))


def _parts(group: Group, owner: Mapping[str, str]) -> tuple[str, ...]:
    """The groups whose computes a group has."""
    return tuple(dict.fromkeys(owner[c] for c in group.computes))


def _sources(program: Program, last: Compute) -> Iterator[Compute]:
    """The products that the rows of a product are made of, by computes that are none."""
    f = stream_factors(program, last)
    todo = [] if f is None else [n.buffer for n in loads(f.a)]
    seen: dict[str, None] = {}
    while todo and len(seen) <= MOST:
        step = program.producer.get(todo.pop())
        if not isinstance(step, Compute) or step.out in seen:
            continue
        seen[step.out] = None
        if contraction_factors(program, step) is not None:
            yield step
        else:
            todo += step.inputs


def _joined(program: Program, source: Compute, last: Compute, groups: Mapping[str, Group],
            owner: Mapping[str, str], target: Target) -> Group | None:
    """The group of all that lies between two products, with both; None if it does not stream."""
    inside = _between(program, source, last)
    greatest = [c for c in inside if c.fold == "max"]
    if len(greatest) != 1 or any(not isinstance(c.fold, str) for c in inside):
        return None
    inside += [c for c in program.consumers[greatest[0].out] if isinstance(c, Compute)
               and c.fold == "sum" and c not in inside and c is not last
               and c.raxes == last.raxes]  # totals that are stored
    names = dict.fromkeys(owner[c.out] for c in inside)
    members = dict.fromkeys(c for n in names for c in groups[n].computes)
    rounding = _has_one_tile(program, target, last)
    members |= dict.fromkeys(_conversions(program, (source, last), members, owner, groups,
                                          rounding))
    computes = tuple(sorted(members, key=program.position.__getitem__))
    made = {o for c in computes for o in program.producer[c].outs}
    score = [b for b in greatest[0].inputs if b in {c.out for c in inside}]
    passing = {*score, *(c.out for c in inside if c.fold in ("max", "sum") and c not in (
        source, last))}
    connect = {b: STREAM if b in passing else REGISTER for c in computes
               for b in program.producer[c].inputs if b in made}
    group = Group(groups[owner[last.out]].name, computes, stored_outputs(program, computes),
                  last.out, connect)
    try:
        found = find_stream(program, group)
    except ScheduleError:
        return None
    return group if found is not None and {*group.outputs} == {*found.outputs} else None


def _between(program: Program, source: Compute, last: Compute) -> list[Compute]:
    """The computes on the ways from one to another, with both, in order."""
    behind, inside = {source.out}, [source]
    for step in program.steps[program.position[source.out] + 1:program.position[last.out] + 1]:
        if isinstance(step, Compute) and not behind.isdisjoint(step.inputs):
            behind.add(step.outs[0])
            inside.append(step)
    before = {last.out}
    kept = []
    for step in reversed(inside):
        if step.outs[0] in before:
            before |= set(step.inputs)
            kept.append(step)
    return kept[::-1]


def _has_one_tile(program: Program, target: Target, last: Compute) -> bool:
    """True if all rows of a stream usually are in one tile, so that each key is read once."""
    f, rows = stream_factors(program, last), target.rows("stream")
    most = max((u.tile.mr for u in rows if isinstance(u, ProductRow)), default=0)
    return f is not None and estimate_volume(a.extent for a in f.m) <= most


def _conversions(program: Program, products: Collection[Compute], members: Collection[str],
                 owner: Mapping[str, str], groups: Mapping[str, Group],
                 rounding: bool) -> Iterator[str]:
    """Groups of maps that do nothing but move and convert what the products read, perhaps
    ``rounding`` it, and that nobody else reads."""
    for b in dict.fromkeys(b for c in products for b in c.inputs if b in owner):
        group = groups[owner[b]]
        maps = {c: s for c in group.computes if isinstance(s := program.producer[c], Compute)
                and s.fold == "none"}
        if group.outputs != (b,) or {*maps} != {*group.computes} or not (
                {r.outs[0] for r in program.consumers[b]} <= {*members}):
            continue
        body = expand(maps[b].body, maps)
        rounded = strip_rounding(widen_half(body) if body.dtype in HALVES else body)
        if isinstance(body, Load) or isinstance(stored_half(body), Load) or (
                rounding and isinstance(rounded, Load)):
            yield from group.computes


def _pays(judge: Judge, joined: Group, parts: Sequence[Group]) -> bool:
    """True if a group that streams is predicted to take less time than its parts."""
    found = find_stream(judge.program, joined)
    assert found is not None, joined.name
    rows = stream_rows(judge.program, judge.target, found)
    return rows is not None and stream_seconds(judge.target.machine, found, rows) < sum(
        judge.verdict(g).seconds for g in parts)


__all__ = ["join_streams", "possible_streams", "stream_computes"]
