"""Of step ``groups`` of ``decide``: which computes share a kernel at register level, where
``connect_cost`` starts.

Elementwise computes join their producers (an epilogue) or each other.  Deterministic, by structure
only.
"""

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from aotc.ir.category import factor_pairs
from aotc.ir.expr import loads
from aotc.ir.indices.remap import invert_map
from aotc.ir.numbers.narrow import FLOAT_LANES
from aotc.ir.program import Compute, Program, Step
from aotc.ir.read_boxes import reads_once
from aotc.ir.schedule import REGISTER, Group
from aotc.ir.simplify import simplify
from aotc.sched.choose.tree_size import TreeSize, tree_size
from aotc.sched.model.stages import expand, group_stages
from aotc.sched.model.tilegraph import order_groups

# nodes and depth of one element's expression with all maps of a kernel inlined: many times what
# layers of networks need (185 and 28), little enough to compile in a moment
NODES_LIMIT, DEPTH_LIMIT = 4000, 120


class _Bunch:
    """A group under construction: member computes in program order, ``number`` in order of
    creation.  A library call is a bunch of its own, which nothing joins.  ``sizes``: member ->
    TreeSize of its body with all maps among the members inlined."""

    def __init__(self, step: Step, number: int = 0) -> None:
        self.members: list[Step] = [step]
        self.number, self.sizes = number, dict[Compute, TreeSize]()
        # buffer -> members that read it; one is too large
        self.readers, self.large = dict[str, dict[Compute, None]](), False
        self.before, self.is_read = 0, False  # bits of the bunches it depends on, by number
        if isinstance(step, Compute):
            self.grow({step: tree_size(step.body)})

    @property
    def head(self) -> Compute:
        """The fold that gives the bunch its loops, or the last map."""
        folds = [c for c in self.computes if c.fold != "none"]
        return folds[-1] if folds else self.computes[-1]

    @property
    def computes(self) -> list[Compute]:
        """The members, none of a library call."""
        return [c for c in self.members if isinstance(c, Compute)]

    @property
    def is_call(self) -> bool:
        return not isinstance(self.members[0], Compute)

    def add(self, compute: Compute, size: TreeSize) -> None:
        self.members.append(compute)
        self.grow({compute: size})

    def grow(self, sizes: Mapping[Compute, TreeSize]) -> None:
        """Members' sizes as they are now."""
        self.sizes |= sizes
        for c, size in sizes.items():
            self.large = self.large or not _is_small(size)
            for b in size.reads:
                self.readers.setdefault(b, {})[c] = None

    def maps(self) -> dict[str, TreeSize]:
        """{buffer: TreeSize} of the members that can be inlined."""
        return {c.out: self.sizes[c] for c in self.computes if c.fold == "none"}

    def produces(self) -> set[str]:
        return {o for c in self.members for o in c.outs}


def connect(program: Program) -> tuple[Group, ...]:
    """Tuple of Groups (connect levels, outputs, anchor) covering every step of ``program``."""
    bunches: list[_Bunch] = []
    owner: dict[str, _Bunch] = {}
    for step in program.steps:
        target = None
        if isinstance(step, Compute):
            target = _best_host(program, step, owner)
            if target is not None:
                target.add(step, tree_size(step.body).inlined(target.maps()))
        if target is None:
            target = _Bunch(step, len(bunches))
            bunches.append(target)
        _note_dependences(bunches, target, step, owner)
        for o in step.outs:
            owner[o] = target
    _absorb_maps(program, bunches, owner)
    bunches = [part for c in bunches for part in _one_stage(program, c, owner)]
    order = _topological(program, bunches, owner)
    return tuple(_group(program, c, i) for i, c in enumerate(order))


def _best_host(program: Program, step: Compute, owner: Mapping[str, _Bunch]) -> _Bunch | None:
    """The bunch this compute joins, the one with the most work first; None to start its own."""
    read = dict.fromkeys(owner[b] for b in step.inputs if b in owner)
    hosts = [c for c in read if not c.is_call]
    hosts.sort(key=lambda c: (_weight(c), c.number), reverse=True)
    size = tree_size(step.body)
    if not _is_small(size):
        return None
    behind = _behind(read) if len(read) > 1 else ()
    for host in hosts:
        if host in behind or not _is_small(size.inlined(host.maps())):
            continue
        if step.fold == "none" and _joins_at_register(host, step):
            return host
    return None


def _weight(bunch: _Bunch) -> int:
    head = bunch.head
    if factor_pairs(head.axes, head.raxes, head.fold, head.body):
        return 2
    return 1 if head.fold != "none" else 0


def _note_dependences(bunches: Iterable[_Bunch], bunch: _Bunch, step: Step,
                      owner: Mapping[str, _Bunch]) -> None:
    """``bunch`` depends on what its member ``step`` reads, and so does what depends on it."""
    read = {owner[b] for b in step.inputs if b in owner} - {bunch}
    found = bunch.before
    for c in read:
        found |= c.before | 1 << c.number
        c.is_read = True
    if found == bunch.before:
        return
    bunch.before = found
    if bunch.is_read:
        for c in bunches:
            if c.before >> bunch.number & 1:
                c.before |= found


def _behind(bunches: Collection[_Bunch]) -> set[_Bunch]:
    """Bunches that some other of ``bunches`` depends on: a step that reads both and joined the
    one that comes first would make a cycle."""
    before = 0
    for c in bunches:
        before |= c.before
    return {c for c in bunches if before >> c.number & 1}


def _inside(host: _Bunch) -> dict[str, Compute]:
    """Maps of the bunch by output, for expansion."""
    return {c.out: c for c in host.computes if c.fold == "none"}


def _is_small(size: TreeSize) -> bool:
    """True if one element is a short expression: chains of any length, and steps that read what
    is before them twice, end up in several kernels."""
    return size.nodes <= NODES_LIMIT and size.depth <= DEPTH_LIMIT


def _grown(host: _Bunch, bunch: _Bunch) -> dict[Compute, TreeSize] | None:
    """{member: TreeSize} of those of a bunch that change with the maps of another inlined; None
    if one is too large."""
    maps = bunch.maps()
    changed = dict.fromkeys(c for b in maps for c in host.readers.get(b, ()))
    sizes = {c: host.sizes[c].inlined(maps) for c in changed}
    return None if host.large or not all(map(_is_small, sizes.values())) else sizes


def _joins_at_register(host: _Bunch, step: Compute) -> bool:
    """An elementwise compute whose points match the bunch's loops one to one."""
    head = host.head
    if head.fold == "none":
        return _elementwise_pair(host, step)
    if not isinstance(head.fold, str):
        return False
    if step.body.dtype not in FLOAT_LANES and head.body.dtype == "f32":
        return False  # the micro-kernels of folds store those
    body = simplify(expand(step.body, _inside(host)))
    uses = {n.index for n in loads(body) if n.buffer == head.out}
    if len(uses) != 1:
        return False
    return invert_map(next(iter(uses)), step.axes, head.axes) is not None


def _elementwise_pair(host: _Bunch, step: Compute) -> bool:
    """Map into map: every member is read at one place that is a bijection of the step's axes."""
    for c in host.computes:
        uses = {n.index for n in step.loads if n.buffer == c.out}
        if uses and (len(uses) > 1 or invert_map(next(iter(uses)), step.axes, c.axes) is None):
            return False
    return any(c.out in step.inputs for c in host.computes)


def _absorb_maps(program: Program, bunches: list[_Bunch], owner: dict[str, _Bunch]) -> None:
    """A bunch of maps whose every output is read by one other bunch, elementwise, moves into
    it as a prologue."""
    moved = set()
    for c in bunches:
        if c.is_call or any(m.fold != "none" for m in c.computes):
            continue
        outs = [m for m in c.computes if any(owner[s.outs[0]] is not c
                                            for s in program.consumers.get(m.out, ()))
                or m.out in program.results]
        users = {id(owner[s.outs[0]]): owner[s.outs[0]] for m in outs
                 for s in program.consumers.get(m.out, ()) if owner[s.outs[0]] is not c}
        if len(users) != 1 or any(m.out in program.results for m in outs):
            continue
        host, = users.values()
        sizes = None if host.is_call else _grown(host, c)
        if sizes is None or not _prologue_fits(program, c, host, outs):
            continue
        host.grow(sizes | c.sizes)
        for m in c.computes:
            owner[m.out] = host
        host.members = sorted(host.members + c.members,
                              key=lambda m: program.position[m.outs[0]])
        moved.add(c)
    bunches[:] = [c for c in bunches if c not in moved]


def _prologue_fits(program: Program, bunch: _Bunch, host: _Bunch, outs: Iterable[Compute]) -> bool:
    """The host's maps read every point of the bunch at most once; the fold (if any) never
    does."""
    for m in outs:
        for s in program.consumers[m.out]:
            if s in bunch.sizes:
                continue
            if not isinstance(s, Compute) or s.fold != "none":
                return False
            uses = {n.index for n in s.loads if n.buffer == m.out}
            if len(uses) != 1 or not (
                    invert_map(next(iter(uses)), s.axes, m.axes) is not None
                    or reads_once(s, m.out)):
                return False
    return True


def _one_stage(program: Program, bunch: _Bunch, owner: dict[str, _Bunch]) -> list[_Bunch]:
    """A bunch of maps that stores several of them must be one set of loops.  Where the way from
    one to another is a bijection step by step, but not seen to be one as a whole, its members get
    kernels of their own."""
    if bunch.is_call or any(m.fold != "none" for m in bunch.computes):
        return [bunch]
    group = _group(program, bunch, 0)
    if len(group.outputs) == 1 or len(group_stages(program, group)) == 1:
        return [bunch]
    parts = [_Bunch(m) for m in bunch.members]
    owner.update({o: part for part in parts for o in part.produces()})
    return parts


def _topological(program: Program, bunches: Iterable[_Bunch],
                 owner: Mapping[str, _Bunch]) -> list[_Bunch]:
    """Bunches in an order that respects every edge; ties by first member."""
    left = sorted(bunches, key=lambda c: min(program.position[m.outs[0]] for m in c.members))
    deps = [{owner[b] for m in c.members for b in m.inputs if b in owner} - {c} for c in left]
    readers, waits = dict[_Bunch, list[int]](), [len(d) for d in deps]
    for i, found in enumerate(deps):
        for c in found:
            readers.setdefault(c, []).append(i)
    ready = [i for i, n in enumerate(waits) if n == 0]  # sorted, so a heap
    out = []
    while ready:
        out.append(left[heapq.heappop(ready)])
        for i in readers.get(out[-1], ()):
            waits[i] -= 1
            if waits[i] == 0:
                heapq.heappush(ready, i)
    return out


def _group(program: Program, bunch: _Bunch, number: int) -> Group:
    if bunch.is_call:
        call, = bunch.members
        return Group(f"g{number:03d}", call.outs[:1], call.outs, call.outs[0])
    inside = {o for m in bunch.members for o in m.outs}
    outputs = tuple(o for m in bunch.members for o in m.outs if o in program.results or any(
        s not in bunch.members for s in program.consumers.get(o, ())))
    level = {b: REGISTER for m in bunch.members for b in m.inputs if b in inside}
    return Group(f"g{number:03d}", tuple(m.out for m in bunch.computes), outputs,
                 bunch.head.out, level)


def part_groups(program: Program, groups: Sequence[Group],
                names: Collection[str]) -> tuple[Group, ...]:
    """Groups with those named replaced by their parts at register level."""
    apart = {c for g in groups if g.name in names for c in g.computes}
    parts = [replace(g, name=f"{g.name}_part") for g in connect(program)
             if g.computes[0] in apart]
    whole = [g for g in groups if g.name not in names]
    return number_groups(order_groups(program, whole + parts))


def register_groups(program: Program, apart: Collection[str] = ()) -> tuple[Group, ...]:
    """Groups connected at register level only: the least fusion that is never worse.  Those of
    computes in ``apart`` are taken to pieces."""
    groups = connect(program)
    if not apart:
        return groups
    whole = [g for g in groups if set(apart).isdisjoint(g.computes)]
    inside = {c for g in whole for c in g.computes}
    pieces = [g for g in separate_groups(program) if inside.isdisjoint(g.computes)]
    return number_groups(order_groups(program, [replace(g, name=f"{g.name}_whole")
                                                for g in whole] + pieces))


def separate_groups(program: Program) -> tuple[Group, ...]:
    """Every compute a kernel of its own: what connecting is measured against."""
    return order_groups(program, [Group(f"g{i:03d}", (s.outs[0],), s.outs, s.outs[0])
                                  for i, s in enumerate(program.steps)])


def number_groups(groups: Iterable[Group]) -> tuple[Group, ...]:
    return tuple(replace(g, name=f"g{i:03d}") for i, g in enumerate(groups))


__all__ = ["number_groups", "register_groups", "separate_groups"]
