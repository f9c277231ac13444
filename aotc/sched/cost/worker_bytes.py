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


__all__ = ["fetched_bytes"]
