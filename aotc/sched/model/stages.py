"""Stages of a group: its computes brought onto common axes.

A stage is one loop nest: at most one fold ("main") with everything connected to it at register
level inlined: producers into its body, elementwise consumers as its epilogue, rewritten onto the
main's axes by inverting their index maps.  Group -> tuple of Stage, in execution order.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from aotc.errors import ScheduleError
from aotc.ir.category import Axes, Factors, category, factor_pairs
from aotc.ir.expr import (
    Axis,
    Cast,
    Const,
    Expr,
    Load,
    Shape,
    Var,
    loads,
    rewrite,
    show,
    substitute,
)
from aotc.ir.indices.remap import invert_map
from aotc.ir.library import grows
from aotc.ir.program import Compute, Fold, Program, Whole
from aotc.ir.schedule import Group
from aotc.ir.simplify import are_equal, simplify
from aotc.target.base import Target

Uses = dict[tuple[str, str], Shape | None]  # (map, buffer) -> the one index that it reads it at


@dataclass(frozen=True)
class Output:
    """Element ``index`` (over the stage's axes) of ``buffer`` gets ``value`` (may use acc)."""

    buffer: str
    index: Shape
    value: Expr


@dataclass(frozen=True)
class Stage:
    """``name``: the main's first output, or for a map the last compute's.  ``acc``: one Var per
    state of the fold.  ``computes``: names of the computes it absorbs."""

    name: str
    axes: Axes
    raxes: Axes
    fold: str | Fold
    body: Expr
    acc: tuple[Var, ...]
    outputs: tuple[Output, ...]
    computes: tuple[str, ...]

    def exprs(self) -> tuple[Expr, ...]:
        """Every expression of the stage: the body of the fold and the outputs' values."""
        return ((self.body,) if self.fold != "none" else ()) + tuple(
            o.value for o in self.outputs)

    def loads(self) -> tuple[Load, ...]:
        return self._loads

    @cached_property
    def _loads(self) -> tuple[Load, ...]:
        return tuple(dict.fromkeys(n for e in self.exprs() for n in loads(e)))

    @cached_property
    def reads(self) -> frozenset[str]:
        """Names of the buffers it loads."""
        return frozenset(n.buffer for n in self._loads)

    @cached_property
    def buffers(self) -> tuple[str, ...]:
        """Names of the buffers it loads or stores, sorted."""
        return tuple(sorted(self.reads | {o.buffer for o in self.outputs}))

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.axes, self.raxes, self.fold, self.body, self.outputs))

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, object]:
        # hashes of texts differ from process to process: a pickle must not carry them
        return {k: v for k, v in self.__dict__.items() if k[0] != "_"}

    def __str__(self) -> str:
        lines = [f"stage {self.name}[{', '.join(a.name for a in self.axes)}]"]
        if self.fold != "none":
            red = ", ".join(a.name for a in self.raxes)
            lines.append(f"  acc = {self.fold}({red}) {show(self.body)}")
        for o in self.outputs:
            lines.append(f"  {o.buffer}[{', '.join(map(show, o.index))}] = {show(o.value)}")
        return "\n".join(lines)


def expand(expr: Expr, inline: Mapping[str, Compute]) -> Expr:
    """Inline register-connected producers until no Load of one is left.  ``inline``: buffer ->
    Compute."""
    if not inline:
        return expr

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer in inline:
            p = inline[node.buffer]
            return expand(substitute(p.body, dict(zip(p.axes, node.index))), inline)
        return None

    return rewrite(expr, visit)


def target_memo(program: Program, target: Target) -> dict[Hashable, Any]:
    """A dict of what has been found for stages of a Program on a target: keys are tuples of what it
    is, the stage, and what else it follows from."""
    known = program.known("target", id(target))
    known.setdefault("target", target)  # holding it keeps its id its own
    return known


def find_call(program: Program, group: Group) -> Whole | None:
    """The library call or region that ``group`` is (of several with new entries the first), None if
    it is made of computes.  ScheduleError if another one shares a kernel with something else."""
    calls = {c: s for c in group.computes if not isinstance(s := program.producer[c], Compute)}
    if not calls:
        return None
    if len(group.computes) > 1 and not all(map(grows, calls.values())):
        raise ScheduleError([f"group {group.name}: {', '.join(calls)} is a library call or a "
                             "region, which has a group of its own; take the others out"])
    return next(iter(calls.values()))


def group_stages(program: Program, group: Group) -> tuple[Stage, ...]:
    """The stages of ``group`` in execution order, () for a library call or a region.
    ScheduleError names every compute that cannot be connected as the group says, and what would
    be legal."""
    if find_call(program, group) is not None:
        return ()
    key = ("stages", group.computes, group.outputs, tuple(group.connect.items()))
    found: tuple[Stage, ...] | None = program.memo.get(key)
    if found is None:
        found = program.memo[key] = _group_stages(program, group)
    if not group.flat:
        return found
    known: dict[Hashable, tuple[Stage, ...]] = program.known("flat stages", *key)
    if (group.anchor, group.flat) not in known:
        known[group.anchor, group.flat] = tuple([count_as_one(
            s, group) if group.anchor in s.computes else s for s in found])
    return known[group.anchor, group.flat]


def count_as_one(stage: Stage, group: Group) -> Stage:
    """The Stage with the axes that its group counts through as one replaced by one axis, at the
    place of the innermost.  ScheduleError where it has no such axes."""
    axes = [next((a for a in stage.axes if a.name == n), None) for n in group.flat]
    own = [a for a in axes if a is not None]
    if len(own) < max(2, len(group.flat)) or own != [a for a in stage.axes if a in own]:
        raise ScheduleError(f"group {group.name}: flat {', '.join(group.flat)}; name two or more "
                            "axes of the anchor, outermost first: "
                            + ", ".join(a.name for a in stage.axes))
    whole = Axis(group.flat_axis, simplify(prod((a.extent for a in own), start=Const(1))))
    digits, left = dict[Expr, Expr](), Const(1)
    inner: Expr = left
    for a in reversed(own):
        at = whole // inner
        digits[a] = simplify(at if a is own[0] else at % a.extent)
        inner = inner * a.extent

    def here(e: Expr) -> Expr:
        return simplify(substitute(e, digits))

    outputs = tuple(Output(o.buffer, tuple(map(here, o.index)), here(o.value))
                    for o in stage.outputs)
    kept = tuple(whole if a is own[-1] else a for a in stage.axes if a is own[-1] or a not in own)
    return replace(stage, axes=kept, body=here(stage.body), outputs=outputs)


def computes_of(program: Program, group: Group) -> list[Compute]:
    """The computes of a group that is no library call and no region."""
    steps = [program.producer[c] for c in group.computes]
    return [s for s in steps if isinstance(s, Compute)]
def _group_stages(program: Program, group: Group) -> tuple[Stage, ...]:
    computes = computes_of(program, group)
    register = {b for b, level in group.connect.items() if level == "register"}
    stored = set(group.outputs) | {b for b, level in group.connect.items() if level != "register"}
    folds = {c.out: c for c in computes if c.fold != "none"}
    inline = {c.out: c for c in computes if c.fold == "none" and c.out in register}
    mains: dict[str, list[Compute]] = {f: [] for f in folds}
    maps: list[tuple[Compute, Expr]] = []
    faults: list[str] = []
    for c in computes:
        if c.out in folds:
            if not isinstance(c.fold, str) or c.out in stored:
                mains[c.out].append(c)
            continue
        if c.out not in stored:
            continue
        body = expand(c.body, inline)
        used = [f for f in folds if f in register and any(n.buffer == f for n in loads(body))]
        if len(used) > 1:
            faults.append(f"group {group.name}: {c.out} joins the reductions {', '.join(used)} at "
                          "register level; keep all but one of them in scratch")
        elif used:
            mains[used[0]].append(c)
        else:
            maps.append((c, body))
    stages = [_fold_stage(group, folds[f], outs, inline, stored, faults)
              for f, outs in mains.items()]
    stages += _map_stages(maps, inline)
    axes = {o: c.axes for c in computes for o in c.outs}
    stages = _needed([_without_own_loads(s, axes, group, faults) for s in stages], group)
    made = {o for c in computes for o in c.outs} - stored
    faults += [f"group {group.name}: {s.name} reads {b}, which another stage computes; keep {b} "
               "in scratch or store it" for s in stages
               for b in dict.fromkeys(n.buffer for n in s.loads()) if b in made]
    if faults:
        raise ScheduleError(faults)
    return _ordered(stages, group)


def _needed(stages: list[Stage], group: Group) -> list[Stage]:
    """The stages without outputs that nobody reads, and without those that then have none."""
    needed = set(group.outputs).union(*(s.reads for s in stages))
    kept = [s if all(o.buffer in needed for o in s.outputs) else
            replace(s, outputs=tuple(o for o in s.outputs if o.buffer in needed)) for s in stages]
    if kept == stages:
        return kept
    return _needed([s for s in kept if s.outputs], group)


def touched_buffers(program: Program, group: Group) -> tuple[str, ...]:
    """The buffers that the computes of a group read and make, in order."""
    steps = [program.producer[c] for c in group.computes]
    return tuple(dict.fromkeys(b for s in steps for b in (*s.inputs, *s.outs)))


def merge_stages(program: Program, a: Group, b: Group, group: Group) -> None:
    """Makes the stages of ``group``, which has all of the Groups ``a`` and ``b`` with what ``a``
    hands ``b`` in scratch, known to ``group_stages``: they are those of both, which need not be
    formed anew.  Where a reader inside ``a`` has had such a buffer inlined they are not."""
    key = ("stages", group.computes, group.outputs, tuple(group.connect.items()))
    inlined = any(level == "register" and group.connect[x] != level
                  for x, level in a.connect.items())
    if key in program.memo or inlined:
        return
    parts = _needed([*group_stages(program, a), *group_stages(program, b)], group)
    # in the order in which ``_group_stages`` forms them: folds, then maps
    parts.sort(key=lambda s: (s.fold == "none", program.position[s.name]))
    program.memo[key] = _ordered(parts, group)


def _without_own_loads(stage: Stage, axes: Mapping[str, Axes], group: Group,
                       faults: list[str]) -> Stage:
    """An output's value that reads another output of the same stage takes its value instead: the
    points are the same, and when which of them is stored does not matter.  axes: {buffer: the axes
    it was computed along}."""
    own = {o.buffer: o for o in stage.outputs}
    if not any(n.buffer in own for o in stage.outputs for n in loads(o.value)):
        return stage

    def with_own_values(e: Expr) -> Expr:
        return rewrite(e, visit)

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer not in own:
            return None
        o = own[node.buffer]
        if all(are_equal(i, j) or are_equal(a.extent, Const(1))
               for i, j, a in zip(node.index, o.index, axes[o.buffer])):
            return with_own_values(o.value)
        faults.append(f"group {group.name}: {stage.name} reads {node}, which its own loops compute "
                      f"at [{', '.join(map(show, o.index))}]; store {node.buffer} in an earlier "
                      "group")
        return None

    return replace(stage, outputs=tuple(
        replace(o, value=with_own_values(o.value)) for o in stage.outputs))


def _fold_stage(group: Group, main: Compute, outs: Sequence[Compute], inline: Mapping[str, Compute],
                stored: Collection[str], faults: list[str]) -> Stage:
    states = main.fold.states if not isinstance(main.fold, str) else (("acc", main.acc_dtype),)
    acc = tuple(Var(n, t) for n, t in states)
    outputs: list[Output] = []
    names = [main.out]
    for c in outs:
        if c is main:
            outputs += [Output(o, main.axes, v) for o, v in zip(main.outs, acc) if o in stored]
            continue
        body = expand(c.body, inline)
        index = next(n.index for n in loads(body) if n.buffer == main.out)
        h = invert_map(index, c.axes, main.axes)
        if h is None:
            at = ", ".join(map(show, index))
            faults.append(f"group {group.name}: {c.out} reads {main.out}[{at}], which is no "
                          f"bijection of its axes; keep {main.out} in scratch or store it")
            continue
        value = _onto_main(simplify(substitute(body, h)), main, acc[0])
        if value is None:
            faults.append(f"group {group.name}: {c.out} reads {main.out} at several places; "
                          f"keep {main.out} in scratch or store it")
            continue
        outputs.append(Output(c.out, tuple(h[a] for a in c.axes), value))
        names.append(c.out)
    body = simplify(expand(main.body, inline))
    used = [b for b in inline if b not in names]
    return Stage(main.out, main.axes, main.raxes, main.fold, body, acc, tuple(outputs),
                 tuple(names + used))


def _onto_main(value: Expr, main: Compute, acc: Var) -> Expr | None:
    """Loads of the main's output at exactly its axes become ``acc``; None if any other is left."""
    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer == main.out and all(
                are_equal(i, a) or are_equal(a.extent, Const(1))
                for i, a in zip(node.index, main.axes)):
            return acc if node.dtype == acc.dtype else Cast(node.dtype, acc)
        return None

    out = rewrite(value, visit)
    return None if any(n.buffer == main.out for n in loads(out)) else out


def _map_stages(maps: Sequence[tuple[Compute, Expr]], inline: Mapping[str, Compute]) -> list[Stage]:
    """One stage per set of map outputs that live on the same points; they share its loops."""
    stages: list[Stage] = []
    taken: set[str] = set()
    reached, uses = {c.out: _reached(c, inline) for c, _ in maps}, Uses()
    for c, body in reversed(maps):
        if c.out in taken:
            continue
        outputs = [Output(c.out, c.axes, simplify(body))]
        for other, obody in maps:
            if other is c or other.out in taken:
                continue
            at = _same_points(c, other, inline, reached, uses)
            if at is not None:
                outputs.append(Output(other.out, tuple(simplify(at[a]) for a in other.axes),
                                      simplify(substitute(obody, at))))
                taken.add(other.out)
        stages.append(Stage(c.out, c.axes, (), "none", outputs[0].value, (), tuple(outputs),
                            tuple(o.buffer for o in outputs)))
    return stages[::-1]


def _same_points(c: Compute, other: Compute, inline: Mapping[str, Compute],
                 reached: Mapping[str, set[str]], uses: Uses) -> dict[Axis, Expr] | None:
    """Axes of ``other`` as expressions over ``c``'s axes, if both run over the same points: c reads
    it elementwise, or both read a common inlined map elementwise.  None if not.  reached: {map:
    buffers that it reads}; uses: what ``_single_use`` has answered so far."""
    def single_use(consumer: Compute, buffer: str) -> Shape | None:
        key = consumer.out, buffer
        if buffer not in reached[consumer.out]:
            return None
        if key not in uses:
            uses[key] = _single_use(consumer, buffer, inline)
        return uses[key]

    if other.out in inline:
        index = single_use(c, other.out)
        if index is not None and invert_map(index, c.axes, other.axes) is not None:
            return _at(other.axes, index)
    for common in inline:
        if common in (c.out, other.out):
            continue
        theirs = single_use(other, common)
        mine = None if theirs is None else single_use(c, common)
        if theirs is None or mine is None:
            continue
        back = invert_map(theirs, other.axes, inline[common].axes)
        if back is None or invert_map(mine, c.axes, inline[common].axes) is None:
            continue
        here = _at(inline[common].axes, mine)
        return {a: simplify(substitute(e, here)) for a, e in back.items()}
    return None


def _reached(consumer: Compute, inline: Mapping[str, Compute]) -> set[str]:
    """Buffers that a map reads, through inlined ones and those themselves."""
    found: set[str] = set()
    todo = list(consumer.inputs)
    while todo:
        b = todo.pop()
        if b not in found:
            found.add(b)
            todo += inline[b].inputs if b in inline else ()
    return found


def _at(axes: Axes, index: Shape) -> dict[Axis, Expr]:
    """The axes at ``index``, with 0 for an axis of extent one: its index may come from data."""
    return {a: Const(0) if are_equal(a.extent, Const(1)) else i for a, i in zip(axes, index)}


def _single_use(consumer: Compute, buffer: str, inline: Mapping[str, Compute]) -> Shape | None:
    """The one index tuple at which ``consumer`` (through inlined maps) reads ``buffer``."""
    others = {b: c for b, c in inline.items() if b != buffer}
    single = {a: Const(0) for a in consumer.axes if are_equal(a.extent, Const(1))}
    body = simplify(substitute(expand(consumer.body, others), single))
    found = {n.index for n in loads(body) if n.buffer == buffer}
    return found.pop() if len(found) == 1 else None


def _ordered(stages: Iterable[Stage], group: Group) -> tuple[Stage, ...]:
    """Stages sorted so that each runs after those whose buffers it reads; ties keep order."""
    out: list[Stage] = []
    done: set[str] = set()
    writers = {o.buffer for s in stages for o in s.outputs}
    waits = {s.name: (s.reads & writers) - {o.buffer for o in s.outputs} for s in stages}
    left = list(stages)
    while left:
        for s in left:
            if waits[s.name] <= done:
                break
        else:
            raise ScheduleError(f"group {group.name}: its stages depend on each other in a cycle")
        left.remove(s)
        out.append(s)
        done |= {o.buffer for o in s.outputs}
    return tuple(out)


def stage_category(stage: Stage) -> str:
    """The category of a Stage, as of ``aotc.ir.category``."""
    return category(stage.axes, stage.raxes, stage.fold, stage.body,
                    tuple(o.value for o in stage.outputs))


def contraction_factors(program: Program, stage: Stage | Compute) -> Factors | None:
    """The preferred orientation of a contraction (a Stage or a Compute): constant lane operand
    first, then the one whose lane axis is last in the output; None if it is no contraction."""
    pairs = factor_pairs(stage.axes, stage.raxes, stage.fold, stage.body)

    def rank(f: Factors) -> tuple[bool, int]:
        const = all(n.buffer in program.consts for n in loads(f.b))
        return (const, stage.axes.index(f.n[-1]))

    return max(pairs, key=rank) if pairs else None


def factors_for(stage: Stage, lanes: str | None) -> Factors:
    """The orientation in which the axis ``lanes`` belongs to the lane operand, as rows promise."""
    f = find_factors(stage, lanes)
    assert f is not None, f"{stage.name} is no product with lanes along {lanes}"
    return f


def find_factors(stage: Stage, lanes: str | None) -> Factors | None:
    """The same of any stage; None if there is none."""
    pairs = factor_pairs(stage.axes, stage.raxes, stage.fold, stage.body)
    return next((f for f in pairs if any(a.name == lanes for a in f.n)), None)
