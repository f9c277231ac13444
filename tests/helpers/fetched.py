"""What the statements of kernels fetch ahead, and values of index expressions."""

from aotc.ir.expr import Axis, Const, substitute, walk
from aotc.ir.simplify import simplify
from aotc.ir.statements import OWN, Prefetch, walk_body


def prefetches(plan, buffer):
    """The Prefetch statements of a buffer in all kernels of a Plan, in order."""
    return [s for k in plan.kernels for s in walk_body(k.body)
            if isinstance(s, Prefetch) and s.buffer == buffer]


def value(e, at, other=None):
    """The value of an index expression; at: {name: value} of its axes; other: of those that are
    not there (None: all are)."""
    known = {n: Const(at.get(n.name.removeprefix(OWN), other)) for n in walk(e)
             if isinstance(n, Axis)}
    found = simplify(substitute(e, known))
    assert isinstance(found, Const), found
    return found.value
