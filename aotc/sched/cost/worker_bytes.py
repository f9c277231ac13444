"""What a worker moves by the order of the work items it takes: a term of the cost for orders, whose
arithmetic is the same."""

from collections.abc import Mapping

from aotc.sched.model.group_numbers import GroupModel
from aotc.target.base import Machine


def fetched_bytes(model: GroupModel, machine: Machine, tile: Mapping[str, int],
                  cut: Mapping[str, int], first: str) -> float:
    """Bytes that one worker moves if ``first`` is outermost.  tile: {axis: extent}; cut: {axis:
    number of items}; what one step along ``first`` reads is read again in every step if it does not
    fit in the worker's own memory."""
    steps = max(1, cut[first] / machine.workers)
    inner = {a: n for a, n in tile.items() if a not in cut}
    step = model.moved(model.variables({**inner, first: tile[first]}))
    if step > machine.near.capacity:
        return steps * step
    return model.moved(model.variables({**inner, first: int(steps * tile[first])}))


def concurrent_bytes(model: GroupModel, machine: Machine, tile: Mapping[str, int],
                     counts: Mapping[str, int], wide: Mapping[str, int]) -> float:
    """Bytes of a work item where as many as there are workers move theirs at a time: ``wide`` tiles
    along one of two axes, {axis: n}, as many along the other one as that leaves, and where there
    are not so many the next n of the first.  counts: tiles along each."""
    (axis, n), = wide.items()
    (other, most), = ((a, c) for a, c in counts.items() if a != axis)
    along = min(most, -(-machine.workers // n))
    bands = -(-machine.workers // (n * along))
    return model.moved(model.variables({
        **tile, axis: bands * n * tile[axis], other: along * tile[other]})) / (bands * n * along)


__all__ = ["concurrent_bytes", "fetched_bytes"]
