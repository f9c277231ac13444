"""Extents to variants: a decision tree as boxes, the first of which holds a call."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aotc.ir.program import Program
from aotc.ir.schedule import When
from aotc.sched.model.typical_calls import Call

WITHIN = 0.98  # of the best variant's performance that the picked one has at least
MOST_LEAVES = 8
Leaf = tuple[When, int]  # extents, number of the variant


def learn(program: Program, calls: Sequence[Call], best: Sequence[int],
          serves: Callable[[int, int], float]) -> tuple[Leaf, ...]:
    """Boxes for all extents of the Program's symbols, which do not overlap, each with the variant
    that most of its calls want; the last one, {}, is for all that are left.  ``best``: the variant
    of every call; ``serves(variant, call)``: its performance by the best one's there.  The fewest
    leaves are taken with which every call gets ``WITHIN`` of the best, or the most that there may
    be."""
    from sklearn.tree import DecisionTreeClassifier  # takes a second, and few models need it

    names = [s.name for s in program.syms]
    table = np.array([[c.extents[n] for n in names] for c in calls], np.float64)
    labels, shares = np.array(best), np.array([c.share for c in calls])
    leaves: tuple[Leaf, ...] = (({}, int(np.bincount(labels, shares).argmax())),)
    for count in range(2, MOST_LEAVES + 1):
        if all(serves(pick(leaves, c), i) >= WITHIN for i, c in enumerate(calls)):
            break
        tree = DecisionTreeClassifier(max_leaf_nodes=count, random_state=0)
        tree.fit(table, labels, sample_weight=shares)
        leaves = _boxes(tree, program)
    return _last(leaves)


def _last(leaves: Sequence[Leaf]) -> tuple[Leaf, ...]:
    """The boxes without those of the variant that has most of them: what they leave is its."""
    count = Counter(variant for _, variant in leaves)
    most = max(count, key=lambda v: (count[v], -v))
    return (*(x for x in leaves if x[1] != most), ({}, most))


def pick(leaves: Sequence[Leaf], call: Call) -> int:
    """The variant that a call gets."""
    return next(variant for when, variant in leaves if call.inside(when))


def _boxes(tree: Any, program: Program) -> tuple[Leaf, ...]:
    """The leaves of a fitted tree, from left to right; neighbours of one variant are joined."""
    nodes, names = tree.tree_, [s.name for s in program.syms]
    whole = {s.name: (s.lo, s.hi) for s in program.syms}

    def visit(node: int, box: When) -> list[Leaf]:
        left, right = int(nodes.children_left[node]), int(nodes.children_right[node])
        if left < 0:
            chosen = int(tree.classes_[int(np.argmax(nodes.value[node][0]))])
            return [({n: e for n, e in box.items() if e != whole[n]}, chosen)]
        name, cut = names[int(nodes.feature[node])], int(np.floor(nodes.threshold[node]))
        lo, hi = box[name]
        below, above = visit(left, {**box, name: (lo, cut)}), visit(right, {**box,
                                                                           name: (cut + 1, hi)})
        if len(below) == len(above) == 1 and below[0][1] == above[0][1]:
            return [({n: e for n, e in box.items() if e != whole[n]}, below[0][1])]
        return below + above

    return tuple(visit(0, whole))


__all__ = ["Leaf", "MOST_LEAVES", "WITHIN", "learn", "pick"]
