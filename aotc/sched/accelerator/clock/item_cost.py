"""Seconds of kernels whose work items copy: one by one, or with the next boxes on their way."""

from collections.abc import Sequence
from dataclasses import dataclass

from aotc.target.base import Machine, Memory

Boxes = tuple[tuple[Memory, int], ...]  # (memory that a box is copied from or to, its bytes)


@dataclass(frozen=True)
class StepCost:
    """What a step of a work item copies: ``moving`` boxes differ from step to step, ``still`` ones
    do not, ``made`` ones go out; ``compute``: seconds of its arithmetic."""

    moving: Boxes
    still: Boxes
    made: Boxes
    compute: float


def item_by_item(machine: Machine, cost: StepCost, items: int, workers: int) -> float:
    """Seconds of ``items`` work items of one step on so many workers."""
    active = max(1, min(items, workers))
    one = _copying(machine, (*cost.still, *cost.moving, *cost.made), active) + cost.compute
    return -(-items // workers) * one


def pipelined(machine: Machine, cost: StepCost, items: int, steps: int, workers: int) -> float:
    """Seconds of ``items`` work items of ``steps`` steps on so many workers."""
    active = max(1, min(items, workers))
    first = _copying(machine, cost.moving, active)
    busy = cost.compute + _copying(machine, cost.made, active)
    one = _copying(machine, cost.still, active) + first + (steps - 1) * max(first, busy) + busy
    return -(-items // workers) * one


def waiting(machine: Machine, items: int, copies: int) -> float:
    """Seconds that workers wait for the outermost memory to begin, where each of ``items`` work
    items copies so many times, one after the other."""
    return copies * -(-items // machine.workers) * machine.memory.latency


def _copying(machine: Machine, boxes: Sequence[tuple[Memory, int]], active: int) -> float:
    """Seconds of copies one after the other, while ``active`` workers share the outermost memory,
    or those of a cluster its own."""
    own = machine.workers // machine.clusters
    return sum(m.latency + n * (active if m == machine.memory else own) / m.bandwidth
               for m, n in boxes)


__all__ = ["Boxes", "StepCost", "item_by_item", "pipelined", "waiting"]
