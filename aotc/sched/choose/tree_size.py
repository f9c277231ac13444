"""How large expressions are, written out as trees."""

from collections.abc import Mapping
from dataclasses import dataclass

from aotc.ir.expr import Expr, Load, children


@dataclass(frozen=True)
class TreeSize:
    """An expression written out as a tree: ``nodes``, ``depth`` (nodes on the longest way down)
    and ``reads`` {buffer: (how many loads of it, depth of the deepest)}."""

    nodes: int
    depth: int
    reads: dict[str, tuple[int, int]]

    def inlined(self, sizes: Mapping[str, "TreeSize"]) -> "TreeSize":
        """That of the expression with every load of a buffer in ``sizes`` ({buffer: TreeSize})
        replaced by what it reads, as ``expand`` would."""
        found = {b: self.reads[b] for b in sizes if b in self.reads}
        nodes = self.nodes + sum(times * sizes[b].nodes for b, (times, _) in found.items())
        depth = max([self.depth] + [at + sizes[b].depth for b, (_, at) in found.items()])
        reads = {b: r for b, r in self.reads.items() if b not in found}
        for b, (times, at) in found.items():
            for inner, (n, d) in sizes[b].reads.items():
                known = reads.get(inner, (0, 0))
                reads[inner] = known[0] + times * n, max(known[1], at + d)
        return TreeSize(nodes, depth, reads)


def tree_size(expr: Expr) -> TreeSize:
    """The TreeSize of an expression, which is a graph: one that reads each of its parts twice
    doubles with every level."""
    order: list[Expr] = []
    depth: dict[Expr, int] = {}
    seen: set[Expr] = set()
    todo = [(expr, False)]
    while todo:
        e, done = todo.pop()
        if done:
            order.append(e)
            depth[e] = 1 + max((depth[k] for k in children(e)), default=0)
        elif e not in seen:
            seen.add(e)
            todo.append((e, True))
            todo += [(k, False) for k in children(e)]
    times, at = dict.fromkeys(order, 0), dict.fromkeys(order, 1)
    reads: dict[str, tuple[int, int]] = {}
    times[expr] = 1
    for e in reversed(order):
        for k in children(e):
            times[k] += times[e]
            at[k] = max(at[k], at[e] + 1)
        if isinstance(e, Load):
            known = reads.get(e.buffer, (0, 0))
            reads[e.buffer] = known[0] + times[e], max(known[1], at[e])
    return TreeSize(sum(times.values()), depth[expr], reads)


__all__ = ["TreeSize", "tree_size"]
