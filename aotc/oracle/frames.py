"""What a group of a Schedule executes per tile, from the meaning of its fields alone.

A *frame* is one set of loops: the axes of its root compute.  The anchor is a root; so is every
compute whose output other computes of the group read tile by tile.  A stored compute that nobody
in the group reads runs in the frame of the compute it follows (an epilogue, at the points that
frame computes), or of the one that reads it at register level.  Used by the interpreter only: it
shares no code with the lowering that it checks.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from aotc.errors import InterpreterError
from aotc.ir.expr import Axis, Const, Expr, Load, Shape, Var, loads, rewrite, show, substitute
from aotc.ir.indices.remap import invert_map
from aotc.ir.program import Compute, Program
from aotc.ir.read_boxes import read_intervals
from aotc.ir.schedule import Group
from aotc.ir.simplify import are_equal, simplify

Placement = tuple[str, Expr, Shape]  # (frame, body, index)


@dataclass(frozen=True)
class FrameNode:
    """One compute in a frame.  ``compute`` runs over the axes of the frame's root, with register
    maps inlined; its element goes to ``index`` of ``outs``.  ``reads``: {buffer of the group:
    ((first, last) per dimension)} over ``Var(axis_lo)`` and ``Var(axis_last)``."""

    name: str
    frame: str
    compute: Compute
    index: Shape
    reads: dict[str, tuple[tuple[Expr, Expr], ...]]

    @property
    def outs(self) -> tuple[str, ...]:
        return self.compute.outs


def group_frames(program: Program, group: Group) -> tuple[dict[str, tuple[FrameNode, ...]], str]:
    """(frames, anchor's frame): frames maps the root's name to its Nodes, in execution order.

    InterpreterError if a compute cannot be placed, or frames need each other in a cycle.
    """
    builder = _Builder(program, group)
    builder.place()
    return builder.ordered(), builder.anchor


def first_index(axis: Axis) -> Var:
    """Variable of the first index of a frame's box along an axis."""
    return Var(f"{axis.name}_lo")


def last_index(axis: Axis) -> Var:
    """Variable of the last index (inclusive)."""
    return Var(f"{axis.name}_last")


def _exactly(index: Iterable[Expr], axes: Iterable[Axis]) -> bool:
    """The index names the very point of the axes (an axis of extent one has only one)."""
    return all(are_equal(i, a) or are_equal(a.extent, Const(1)) for i, a in zip(index, axes))


def _compute(program: Program, group: Group, name: str) -> Compute:
    step = program.producer[name]
    if not isinstance(step, Compute):
        raise InterpreterError(f"group {group.name}: {name} is a library call; make it a group of "
                               "its own")
    return step


class _Builder:
    def __init__(self, program: Program, group: Group) -> None:
        self.program, self.group = program, group
        self.computes = [_compute(program, group, c) for c in group.computes]
        self.inside = {o: c for c in self.computes for o in c.outs}
        self.maps = {c.out: c for c in self.computes
                     if c.fold == "none" and group.connect.get(c.out) == "register"}
        self.nodes: dict[str, FrameNode] = {}
        anchor = _compute(program, group, group.anchor)
        inner = [b for b in self.reads(self.expand(anchor.body))
                 if group.connect.get(b) == "register"]
        # an absorbed anchor stands for the loops of the reduction it finishes
        self.anchor = inner[0] if anchor.fold == "none" and inner else anchor.out

    def expand(self, e: Expr, but: tuple[str, ...] = ()) -> Expr:
        """Inline register-connected maps until none is left."""
        def visit(n: Expr) -> Expr | None:
            if isinstance(n, Load) and n.buffer in self.maps and n.buffer not in but:
                p = self.maps[n.buffer]
                return self.expand(substitute(p.body, dict(zip(p.axes, n.index))), but)
            return None
        return rewrite(e, visit)

    def reads(self, body: Expr) -> list[str]:
        """Buffers of the group that a body loads, in order."""
        return [b for b in dict.fromkeys(n.buffer for n in loads(body)) if b in self.inside]

    def place(self) -> None:
        """Roots from the anchor backwards; then each stored compute that is left joins a frame."""
        self.add_roots([self.inside[self.anchor]])
        pending = [c for c in self.computes if set(c.outs) & set(self.group.outputs)]
        while pending := [c for c in pending if c.out not in self.nodes]:
            if not any(self.join(c) for c in pending):
                raise InterpreterError(
                    f"group {self.group.name}: {', '.join(c.out for c in pending)} does not "
                    f"follow from the tiles of {self.anchor}; make it a group of its own or "
                    "the anchor")

    def join(self, c: Compute) -> bool:
        """Place a compute in an existing frame; False if none offers the points it needs."""
        found = self.follow(c) or self.read_by(c) or self.beside(c)
        if found is None:
            return False
        frame, body, index = found
        axes = self.nodes[frame].compute.axes
        self.add(c.out, frame, Compute(c.outs, axes, (), "none", body, origin=c.origin), index)
        self.add_roots([self.inside[b] for b in self.reads(body)])
        return True

    def add_roots(self, todo: list[Compute]) -> None:
        while todo:
            c = todo.pop()
            if c.out in self.nodes:
                continue
            body = simplify(self.expand(c.body))
            self.add(c.out, c.out, replace(c, body=body), c.axes)
            todo += [self.inside[b] for b in self.reads(body)]

    def add(self, name: str, frame: str, compute: Compute, index: Iterable[Expr]) -> None:
        for b in self.reads(compute.body):
            if b not in self.group.connect:
                raise InterpreterError(f"group {self.group.name}: {name} reads {b} inside the "
                                       "group, but connect gives it no level")
        box = {a: (first_index(a), last_index(a)) for a in compute.axes}
        need = read_intervals(compute, box, self.program.shape)
        reads = {b: dims for b, dims in need.items() if b in self.inside}
        self.nodes[name] = FrameNode(name, frame, compute, tuple(index), reads)

    def follow(self, c: Compute) -> Placement | None:
        """(frame, body, index) of a map that reads a root of the group one to one, and nothing that
        comes after it: a reduction that it finishes in registers, if there is one."""
        body = simplify(self.expand(c.body))
        read = sorted(self.reads(body), key=lambda b: self.group.connect.get(b) != "register")
        for b in read if c.fold == "none" else ():
            root = self.nodes.get(self.inside[b].out)
            if root is None or root.frame != root.name or any(
                    self.needs(other, b) for other in read):
                continue
            found = list(dict.fromkeys(n.index for n in loads(body) if n.buffer == b))
            h = invert_map(found[0], c.axes, root.compute.axes)
            if h is None:
                continue
            moved = simplify(substitute(body, h))
            if any(n.buffer == b and not _exactly(n.index, root.compute.axes)
                   for n in loads(moved)):
                places = "; ".join(", ".join(map(show, i)) for i in found)
                raise InterpreterError(f"group {self.group.name}: {c.out} reads {b} at several "
                                       f"places ({places}); keep {b} in scratch or store it")
            return root.frame, moved, tuple(h[a] for a in c.axes)
        return None

    def needs(self, buffer: str, other: str) -> bool:
        """True if a buffer is computed from ``other``, in however many steps."""
        seen, todo = set[str](), [buffer]
        while todo and other not in seen:
            read = set(self.reads(self.inside[todo.pop()].body)) - seen
            seen |= read
            todo += read
        return other in seen

    def read_by(self, c: Compute) -> Placement | None:
        """(frame, body, index) of a stored map that a placed compute reads at one point."""
        for v in self.computes if c.fold == "none" else ():
            node = self.nodes.get(v.out)
            if node is None or v.fold != "none":  # a fold reads many points of its loops
                continue
            body = self.expand(v.body, but=(c.out,))
            found = {n.index for n in loads(body) if n.buffer == c.out}
            if len(found) != 1:
                continue
            here = dict(zip(v.axes, node.index))
            index = tuple(simplify(substitute(i, here)) for i in found.pop())
            at = dict(zip(c.axes, index))
            if not all(set(loads(i)) == set() for i in index):
                continue
            return node.frame, simplify(substitute(self.expand(c.body), at)), index
        return None

    def beside(self, c: Compute) -> Placement | None:
        """(frame, body, index) of a stored map that reads an inlined map at the very points at
        which a placed one does."""
        for v in self.computes if c.fold == "none" else ():
            node = self.nodes.get(v.out)
            if node is None or v.fold != "none":
                continue
            for m in self.maps.values():
                mine, theirs = self.point(v, m.out), self.point(c, m.out)
                if mine is None or theirs is None:
                    continue
                back = invert_map(theirs, c.axes, m.axes)
                if back is None or invert_map(mine, v.axes, m.axes) is None:
                    continue
                there, here = dict(zip(m.axes, mine)), dict(zip(v.axes, node.index))
                at = {a: simplify(substitute(substitute(e, there), here))
                      for a, e in back.items()}
                return (node.frame, simplify(substitute(self.expand(c.body), at)),
                        tuple(at[a] for a in c.axes))
        return None

    def point(self, c: Compute, buffer: str) -> Shape | None:
        """The one index at which a map (through inlined ones) reads ``buffer``, else None."""
        only = {a: Const(0) for a in c.axes if are_equal(a.extent, Const(1))}
        body = simplify(substitute(self.expand(c.body, but=(buffer,)), only))
        found = {n.index for n in loads(body) if n.buffer == buffer}
        return found.pop() if len(found) == 1 else None

    def frame_of(self, buffer: str) -> str:
        return self.nodes[self.inside[buffer].out].frame

    def ordered(self) -> dict[str, tuple[FrameNode, ...]]:
        """Frames in an order in which every buffer is computed before it is read."""
        frames: dict[str, list[FrameNode]] = {}
        for c in self.computes:
            if c.out in self.nodes:
                n = self.nodes[c.out]
                frames.setdefault(n.frame, []).append(n)
        for nodes in frames.values():
            nodes.sort(key=lambda n: n.name != n.frame)
        out: dict[str, tuple[FrameNode, ...]] = {}
        while frames:
            ready = [f for f, nodes in frames.items() if not any(
                (self.frame_of(b) in frames) and self.frame_of(b) != f
                for n in nodes for b in n.reads)]
            if not ready:
                raise InterpreterError(f"group {self.group.name}: {', '.join(frames)} need each "
                                       "other's tiles in a cycle")
            out[ready[0]] = tuple(frames.pop(ready[0]))
        return out
