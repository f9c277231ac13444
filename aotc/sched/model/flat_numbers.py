"""Sizes of the boxes of a stage that counts some of its axes through as one."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod

from aotc.sched.model.group_numbers import Access, StageModel, Width, Widths


def flat_numbers(model: StageModel, names: Sequence[str], whole: str) -> StageModel:
    """The StageModel with the axes ``names``, outermost first, counted through as the axis
    ``whole``.  So many consecutive points are as wide as what holds them: all of the inner axes
    while they fill those, then as many steps of the next one out."""
    at = [model.axes.index(n) for n in names]
    last, sizes = at[-1], [model.extents[p] for p in at]
    kept = [p for p in range(len(model.axes)) if p == last or p not in at]
    place = kept.index(last)

    def wide(w: Sequence[int]) -> Widths:
        out, inner = [0] * len(model.axes), 1
        for p, n in zip(kept, w):
            out[p] = n
        for p, n in zip(reversed(at), reversed(sizes)):
            out[p] = min(n, -(-w[place] // inner))
            inner *= n
        return tuple(out)

    def here(f: Width) -> Width:
        return lambda w: f(wide(w))

    def moved(places: Iterable[int]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(place if p in at else kept.index(p) for p in places))

    def access(a: Access) -> Access:
        return replace(a, boxes=tuple(tuple(map(here, b)) for b in a.boxes),
                       counts=tuple(tuple(map(here, b)) for b in a.counts),
                       reduces=moved(a.reduces))

    def back(found: tuple[Width, ...]) -> tuple[Width, ...]:
        return tuple((lambda w: prod([found[x](w) for x in at])) if p == last else found[p]
                     for p in kept if p < model.rank)

    return replace(
        model, axes=tuple(whole if p == last else model.axes[p] for p in kept),
        extents=tuple(prod(sizes) if p == last else model.extents[p] for p in kept),
        rank=model.rank - len(at) + 1, reads=tuple(map(access, model.reads)),
        writes=tuple(map(access, model.writes)), preimage=tuple(map(back, model.preimage)),
        packs=tuple((n, moved(places)) for n, places in model.packs))


__all__ = ["flat_numbers"]
