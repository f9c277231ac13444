"""Where a kernel that starts before the one in front of it has ended waits for that."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from aotc.ir.block_statements import Product
from aotc.ir.contents import buffers_in, nodes
from aotc.ir.expr import Guarded
from aotc.ir.statements import Body, Scope, Section, Stmt

_ONCE = (Section, Scope, Product)  # all threads come to each of their statements, once


@dataclass(frozen=True)
class DependencyWait(Stmt):
    """Wait for the kernels in front, and let the next one start, which will wait for this."""

    def lines(self) -> list[str]:
        return ["wait for earlier kernels"]


def with_dependency_wait(body: Body, tensors: Collection[str]) -> Body:
    """A body that waits, as late as it can: in front of the first statement that touches one of
    ``tensors``, which earlier kernels read or write, or may set the fault."""
    for i, s in enumerate(body):
        if _touches(s, tensors):
            here: Body = (replace(s, body=with_dependency_wait(s.body, tensors)),) if isinstance(
                s, _ONCE) else (DependencyWait(), s)
            return (*body[:i], *here, *body[i + 1:])
    return (*body, DependencyWait())


def _touches(s: Stmt, tensors: Collection[str]) -> bool:
    return not buffers_in(s).keys().isdisjoint(tensors) or any(
        isinstance(n, Guarded) for n in nodes(s))


__all__ = ["DependencyWait", "with_dependency_wait"]
