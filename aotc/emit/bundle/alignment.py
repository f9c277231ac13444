"""Which tensors of callers must lie at a multiple of how many bytes, because kernels read or store
several of their elements at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aotc.ir.block_statements import Fetch, FewRowSums, Hold, Neighbours, access_bytes
from aotc.ir.plan import Plan
from aotc.ir.statements import Stmt, walk_body


@dataclass(frozen=True)
class AlignedTensor:
    """A tensor, number ``index`` of the ``kind`` "in" or "out", that kernels touch ``size`` bytes
    of at once."""

    kind: str
    index: int
    size: int
    onnx: str


def aligned_tensors(plans: Sequence[Plan]) -> tuple[AlignedTensor, ...]:
    """Those of any of the Plans of a bundle, with the most bytes, inputs first."""
    found: dict[tuple[str, int], AlignedTensor] = {}
    for plan in plans:
        callers = {p.name: p for p in plan.places if p.storage in ("input", "output")}
        for buffer, width in (x for k in plan.kernels for s in walk_body(k.body)
                              for x in _accesses(s)):
            place = callers.get(buffer)
            if place is None or width == 1:
                continue
            key = place.storage.removesuffix("put"), place.index
            size = max(access_bytes(width, place.dtype), found[key].size if key in found else 0)
            found[key] = AlignedTensor(*key, size, place.onnx)
    return tuple(sorted(found.values(), key=lambda t: (t.kind, t.index)))


def _accesses(s: Stmt) -> Iterator[tuple[str, int]]:
    """(buffer, elements) of what a statement reads or stores at once."""
    if isinstance(s, Neighbours):
        yield from ((x.buffer, s.wide.width) for x in s.wide.reads)
        yield from ((b, s.wide.width) for b in s.wide.writes)
    elif isinstance(s, Fetch) or isinstance(s, Hold) and s.source is not None:
        assert s.source is not None, s
        yield s.source.buffer, s.width
    elif isinstance(s, FewRowSums):
        yield from s.accesses


__all__ = ["AlignedTensor", "aligned_tensors"]
